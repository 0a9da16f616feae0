//! The metrics, as Prometheus asks for them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use millpond_share::daemon::{Daemon, Options};

use crate::program::Program;
use crate::stand::{Stand, settings};

fn get(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_metrics_are_the_status() {
    let mut stand = Stand::new(settings());
    stand.stop();
    let daemon = Daemon::bind(Options { metrics_port: Some(0), ..stand.options() }).unwrap();
    let address = daemon.metrics_address().unwrap();
    assert!(address.ip().is_loopback());
    let (stop, stopped) = UnixStream::pair().unwrap();
    let running = std::thread::spawn(move || daemon.run(stopped));
    let _program = Program::connect(&stand.options().directory).with_memory(300);
    let _silent = TcpStream::connect(address).unwrap();
    let text = get(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
    let allocated =
        text.lines().find(|line| line.starts_with("millpond_share_client_allocated_bytes{"));
    assert!(allocated.is_some_and(|line| line.ends_with(" 300")), "{text}");
    assert!(get(address, b"GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 404"));
    drop(stop);
    running.join().unwrap().unwrap();
    stand.start();
}

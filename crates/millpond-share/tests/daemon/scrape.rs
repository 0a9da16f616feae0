//! The metrics, as Prometheus asks for them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use millpond_share::daemon::{Daemon, Metrics, MetricsAt, Options};

use crate::program::Program;
use crate::stand::{Stand, settings};

fn get(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

fn at_tcp() -> Metrics {
    let at = MetricsAt::Tcp((std::net::Ipv4Addr::LOCALHOST, 0).into());
    Metrics { at, hosts: Vec::new(), names: false }
}

#[test]
fn the_metrics_are_the_status() {
    let mut stand = Stand::new(settings());
    stand.stop();
    let daemon = Daemon::bind(Options { metrics: Some(at_tcp()), ..stand.options() }).unwrap();
    let address = daemon.metrics_address().unwrap();
    assert!(address.ip().is_loopback());
    let (stop, stopped) = UnixStream::pair().unwrap();
    let running = std::thread::spawn(move || daemon.run(stopped));
    let _program = Program::connect(&stand.options().directory).with_memory(300);
    let _silent = TcpStream::connect(address).unwrap();
    let text = get(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
    let allocated =
        text.lines().find(|line| line.starts_with("millpond_share_client_allocated_bytes{"));
    assert!(allocated.is_some_and(|line| line.ends_with(" 300")), "{text}");
    assert!(
        get(address, b"GET /else HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.0 404")
    );
    drop(stop);
    running.join().unwrap().unwrap();
    stand.start();
}

//! The metrics, as Prometheus asks for them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millpond_share::daemon::{Daemon, DaemonError, Metrics, MetricsAt, Options};
use millpond_share::rendezvous::metrics_socket;

use crate::program::Program;
use crate::stand::{Stand, settings};

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Longer than an answer takes on any machine, and shorter than one idle connection was waited for once.
const SOON: Duration = Duration::from_secs(8);

fn answer(mut socket: impl Read + Write, request: &[u8]) -> String {
    socket.write_all(request).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

fn get(address: SocketAddr, request: &[u8]) -> String {
    answer(TcpStream::connect(address).unwrap(), request)
}

/// A daemon with metrics, and a program that shares.
struct Measured {
    stand: Stand,
    address: Option<SocketAddr>,
    stop: UnixStream,
    running: JoinHandle<Result<(), DaemonError>>,
    program: Program,
}

impl Measured {
    fn at(at: MetricsAt, names: bool) -> Measured {
        let mut stand = Stand::new(settings());
        stand.stop();
        let metrics = Metrics { at, hosts: vec!["gpu-7.example".to_owned()], names };
        let daemon = Daemon::bind(Options { metrics: Some(metrics), ..stand.options() }).unwrap();
        let address = daemon.metrics_address();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let running = std::thread::spawn(move || daemon.run(stopped));
        let program = Program::connect(&stand.options().directory).with_memory(300);
        Measured { stand, address, stop, running, program }
    }

    fn at_port(names: bool) -> Measured {
        Measured::at(MetricsAt::Tcp((std::net::Ipv4Addr::LOCALHOST, 0).into()), names)
    }

    fn get(&self, request: &[u8]) -> String {
        get(self.address.expect("it has an address"), request)
    }

    fn end(mut self) {
        drop((self.stop, self.program));
        self.running.join().unwrap().unwrap();
        self.stand.start();
    }
}

fn allocated(text: &str) -> &str {
    let line = text.lines().find(|line| line.starts_with("millpond_share_client_allocated_bytes{"));
    line.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn the_metrics_are_the_status_and_name_no_program_where_every_user_reads_them() {
    let measured = Measured::at_port(false);
    assert!(measured.address.unwrap().ip().is_loopback());
    let _silent = TcpStream::connect(measured.address.unwrap()).unwrap();
    let text = measured.get(REQUEST);
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
    assert!(allocated(&text).ends_with(" 300"), "{text}");
    assert!(!text.contains("name="), "{text}");
    let elsewhere = measured.get(b"GET /else HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(elsewhere.starts_with("HTTP/1.0 404"), "{elsewhere}");
    measured.end();
    let measured = Measured::at_port(true);
    assert!(allocated(&measured.get(REQUEST)).contains("name=\"test\""));
    measured.end();
}

#[test]
fn a_web_page_that_has_its_name_lead_here_reads_nothing() {
    let measured = Measured::at_port(false);
    let status = |host: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\n{host}\r\n\r\n");
        measured.get(request.as_bytes())[9..12].to_owned()
    };
    assert_eq!(status("Host: rebound.example"), "403");
    assert_eq!(status("Accept: */*"), "400");
    assert_eq!(status("Host: gpu-7.example:9427"), "200");
    measured.end();
}

#[test]
fn the_owners_socket_is_the_owners_alone_and_names_programs() {
    let measured = Measured::at(MetricsAt::Socket, false);
    let path = metrics_socket(&measured.stand.options().directory);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = answer(UnixStream::connect(&path).unwrap(), b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(allocated(&text).contains("name=\"test\""), "{text}");
    measured.end();
    assert!(!path.exists());
}

#[test]
fn idle_connections_delay_no_scrape() {
    let measured = Measured::at_port(false);
    let address = measured.address.unwrap();
    let idle: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    assert!(measured.get(REQUEST).starts_with("HTTP/1.0 200 OK\r\n"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(idle);
    measured.end();
}

//! Connecting to a daemon's socket, in bounded time.
//!
//! A daemon that is stopped leaves its queue of connections full, and a plain `connect` then waits for as long as it is stopped.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};

/// Connects to the socket at a path, or fails with [`TimedOut`](io::ErrorKind::TimedOut).
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let due = Instant::now() + patience;
    loop {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The kernel takes zero for no limit.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match connect_to(&socket, &address) {
            Ok(()) => {
                set_socket_timeout(&socket, Timeout::Send, None)?;
                return Ok(UnixStream::from(socket));
            }
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) if Instant::now() < due => {}
            Err(Errno::INTR) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_full_queue_of_connections_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // As small as the kernel lets it be.
        rustix::net::listen(&listener, 0).unwrap();
        let long = Duration::from_secs(60);
        let _first = connect(&path, long).unwrap();
        let error = connect(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(listener.accept().unwrap());
        connect(&path, long).unwrap();
        drop(listener);
        assert_eq!(connect(&path, long).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    /// Signals end a `connect` early, and what is left of its time must not begin anew. The test runs itself as the process that gets
    /// them: stopped and continued again and again.
    #[test]
    fn signals_make_the_wait_no_longer() {
        const DIALS: &str = "MILLPOND_TEST_DIALS";
        let patience = Duration::from_millis(200);
        if let Some(path) = std::env::var_os(DIALS) {
            let error = connect(Path::new(&path), patience).unwrap_err();
            return assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect(&path, Duration::from_secs(60)).unwrap();
        let mut dialer = std::process::Command::new(std::env::current_exe().unwrap());
        dialer.args(["--exact", "dialing::tests::signals_make_the_wait_no_longer"]);
        let mut dialer =
            dialer.env(DIALS, &path).stdout(std::process::Stdio::null()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&dialer);
        let since = Instant::now();
        let status = loop {
            if let Some(status) = dialer.try_wait().unwrap() {
                break Some(status);
            }
            if since.elapsed() > Duration::from_secs(30) {
                dialer.kill().unwrap();
                dialer.wait().unwrap();
                break None;
            }
            for signal in [Signal::STOP, Signal::CONT] {
                rustix::process::kill_process(pid, signal).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

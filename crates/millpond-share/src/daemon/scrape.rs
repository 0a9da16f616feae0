//! Prometheus' side: as much of HTTP as it takes.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use super::connection::Ended;
use super::guest::{GuestNumber, Role};
use super::{Daemon, DaemonError, metrics};

const MOST_REQUEST_BYTES: usize = 8 << 10;

/// On the loopback only: names of programs are nobody else's business.
pub(super) fn listen(port: u16) -> Result<TcpListener, DaemonError> {
    let failed = |error: io::Error| DaemonError::Port { port, reason: error.to_string() };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

impl Daemon {
    pub(super) fn serve_scrape(&mut self, number: GuestNumber) -> Result<(), Ended> {
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        let Role::Scrape { request, answered } = &mut guest.role else { return Ok(()) };
        if !*answered {
            let mut bytes = [0; 1024];
            let Some(count) = guest.connection.receive_raw(&mut bytes)? else { return Ok(()) };
            request.extend_from_slice(&bytes[..count]);
            if request.len() > MOST_REQUEST_BYTES {
                return Err(Ended::Closed);
            }
            if !request.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(());
            }
            *answered = true;
            let asks_for_metrics =
                request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
            let answer = if asks_for_metrics {
                let text = metrics::text(&self.status());
                response("200 OK", &text)
            } else {
                response("404 Not Found", "The metrics are at /metrics.\n")
            };
            let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
            guest.connection.say_raw(answer.as_bytes())?;
        }
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        guest.connection.send_rest()?;
        // All is said: the end of the connection is the end of the answer.
        if guest.connection.has_unsent() { Ok(()) } else { Err(Ended::Closed) }
    }
}

fn response(status: &str, text: &str) -> String {
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

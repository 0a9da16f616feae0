//! Prometheus' side: as much of HTTP as it takes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::admission::MetricsListener;
use super::connection::Ended;
use super::place::Place;
use super::session::{Role, SessionId};
use super::{Daemon, DaemonError, Metrics, MetricsAt, metrics};

const MOST_REQUEST_BYTES: usize = 8 << 10;
/// For so long the figures of one scrape serve for others: many scrapes cost no more than a few.
const FRESH: Duration = Duration::from_millis(500);

/// What readers of the metrics get.
#[derive(Debug)]
pub(super) struct Scrapes {
    /// The hosts that requests may name, in lower case. `None`: it is the owner's socket, and no web page reaches it.
    hosts: Option<Vec<String>>,
    /// Whether names of programs are among the figures.
    names: bool,
    last: Option<(Instant, String)>,
}

impl Scrapes {
    pub(super) fn listen(
        options: &Metrics,
        place: &Place,
    ) -> Result<(MetricsListener, Scrapes), DaemonError> {
        let address = match options.at {
            MetricsAt::Socket => {
                let scrapes = Scrapes { hosts: None, names: true, last: None };
                return Ok((MetricsListener::Socket(place.listen_for_metrics()?), scrapes));
            }
            MetricsAt::Tcp(address) => address,
        };
        let failed = |error: io::Error| DaemonError::Address { address, reason: error.to_string() };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let hosts = Some(hosts(address, &options.hosts));
        Ok((MetricsListener::Tcp(listener), Scrapes { hosts, names: options.names, last: None }))
    }

    /// What is wrong with a request, as HTTP says it.
    fn objection(&self, request: &str) -> Option<String> {
        let hosts = self.hosts.as_ref()?;
        let named = request.lines().skip(1).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        });
        match named {
            None => Some(response("400 Bad Request", "A request names its host.\n")),
            Some(host) if hosts.contains(&without_port(host).to_ascii_lowercase()) => None,
            Some(_) => {
                let remedy = "This host is not allowed: name it with --metrics-host.\n";
                Some(response("403 Forbidden", remedy))
            }
        }
    }
}

/// What a request may call a daemon at this address. A web page that has its own name lead here would name itself.
fn hosts(address: SocketAddr, allowed: &[String]) -> Vec<String> {
    let usual = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let own = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
    let allowed = allowed.iter().map(|host| without_port(host).to_ascii_lowercase());
    usual.into_iter().chain(own).chain(allowed).collect()
}

/// A host's name or address, without brackets and port.
fn without_port(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match host.rsplit_once(':') {
        // Of an address with several colons none is before a port.
        Some((name, _)) if !name.contains(':') => name,
        _ => host,
    }
}

impl Daemon {
    pub(super) fn serve_scrape(&mut self, id: SessionId) -> Result<(), Ended> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
        let Role::Scrape { request, answered } = &mut session.role else { return Ok(()) };
        if !*answered {
            let mut bytes = [0; 1024];
            let Some(count) = session.connection.receive_raw(&mut bytes)? else { return Ok(()) };
            request.extend_from_slice(&bytes[..count]);
            if request.len() > MOST_REQUEST_BYTES {
                return Err(Ended::Closed);
            }
            if !request.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(());
            }
            *answered = true;
            session.since = Instant::now();
            let request = String::from_utf8_lossy(&std::mem::take(request)).into_owned();
            let answer = self.answer_scrape(&request);
            let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
            session.connection.say_raw(answer.as_bytes())?;
        }
        let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
        session.connection.send_rest()?;
        // All is said: the end of the connection is the end of the answer.
        if session.connection.has_unsent() { Ok(()) } else { Err(Ended::Closed) }
    }

    fn answer_scrape(&mut self, request: &str) -> String {
        let Some(scrapes) = &self.scrapes else { return String::new() };
        if let Some(objection) = scrapes.objection(request) {
            return objection;
        }
        if !["GET /metrics ", "GET / "].iter().any(|asks| request.starts_with(asks)) {
            return response("404 Not Found", "The metrics are at /metrics.\n");
        }
        if let Some((at, text)) = &scrapes.last
            && at.elapsed() < FRESH
        {
            return response("200 OK", text);
        }
        let text = metrics::text(&self.status(), scrapes.names);
        let answer = response("200 OK", &text);
        if let Some(scrapes) = &mut self.scrapes {
            scrapes.last = Some((Instant::now(), text));
        }
        answer
    }
}

fn response(status: &str, text: &str) -> String {
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_must_name_a_host_that_is_allowed() {
        let address: SocketAddr = "[fd00::5]:9427".parse().unwrap();
        let hosts =
            Some(hosts(address, &["Node-7.example".to_owned(), "10.0.0.7:9427".to_owned()]));
        let scrapes = Scrapes { hosts, names: false, last: None };
        let status = |host: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\nAccept: */*\r\n{host}\r\n\r\n");
            scrapes.objection(&request).map(|answer| answer[9..12].to_owned())
        };
        let allowed = [
            "Host: localhost",
            "host: LOCALHOST:9427",
            "Host: 127.0.0.1:9427",
            "Host: [::1]:9427",
            "Host: ::1",
            "Host: [fd00::5]:9427",
            "Host: node-7.example:80",
            "Host: 10.0.0.7",
        ];
        for host in allowed {
            assert_eq!(status(host), None, "{host}");
        }
        for host in ["Host: rebound.example", "Host: localhost.example:9427", "Host: "] {
            assert_eq!(status(host).as_deref(), Some("403"), "{host}");
        }
        assert_eq!(status("X-Host: localhost").as_deref(), Some("400"));
    }
}

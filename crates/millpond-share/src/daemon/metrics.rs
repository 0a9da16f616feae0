//! The status as Prometheus reads it.

use std::fmt::Write;

use millpond_text::shown;

use crate::control::{ClientStatus, DeviceStatus, Mode, State, Status};

/// The text of a scrape, with or without the names of programs.
pub(super) fn text(status: &Status, names: bool) -> String {
    let mut text = String::new();
    for metric in DEVICE_METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        for device in &status.devices {
            let _ = writeln!(
                text,
                "millpond_share_{}{{device=\"{}\"}} {}",
                metric.name,
                escaped(&device.device),
                (metric.value)(device)
            );
        }
    }
    for metric in CLIENT_METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        for device in &status.devices {
            for client in &device.clients {
                let name = match names {
                    true => format!(",name=\"{}\"", escaped(&client.name)),
                    false => String::new(),
                };
                let _ = writeln!(
                    text,
                    "millpond_share_{}{{device=\"{}\",pid=\"{}\"{name}}} {}",
                    metric.name,
                    escaped(&device.device),
                    client.pid,
                    (metric.value)(client)
                );
            }
        }
    }
    text
}

struct Metric<T: 'static> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
}

const DEVICE_METRICS: &[Metric<DeviceStatus>] = &[
    Metric {
        name: "device_usable_bytes",
        kind: "gauge",
        help: "Device memory that clients can have.",
        value: |device| device.usable_bytes as f64,
    },
    Metric {
        name: "device_foreign_bytes",
        kind: "gauge",
        help: "Device memory of programs that do not share, and of contexts.",
        value: |device| device.foreign_bytes as f64,
    },
    Metric {
        name: "device_turns",
        kind: "gauge",
        help: "Whether clients take turns: 1, or use the device at once: 0.",
        value: |device| f64::from(u8::from(device.mode == Mode::Turns)),
    },
    Metric {
        name: "device_quantum_seconds",
        kind: "gauge",
        help: "How long a turn is at the moment.",
        value: |device| device.effective_quantum_ms as f64 / 1e3,
    },
    Metric {
        name: "device_thrashing",
        kind: "gauge",
        help: "Whether the last turns went for the most part into moving memory.",
        value: |device| f64::from(u8::from(device.thrashing)),
    },
    Metric {
        name: "device_switches_total",
        kind: "counter",
        help: "Turns that began.",
        value: |device| device.switches as f64,
    },
    Metric {
        name: "device_useful_share",
        kind: "gauge",
        help: "Share of the time in which some client's work could go on.",
        value: |device| device.useful_share,
    },
];

const CLIENT_METRICS: &[Metric<ClientStatus>] = &[
    Metric {
        name: "client_allocated_bytes",
        kind: "gauge",
        help: "Memory the client has allocated.",
        value: |client| client.allocated_bytes as f64,
    },
    Metric {
        name: "client_resident_bytes",
        kind: "gauge",
        help: "Of that, what is on the device.",
        value: |client| client.resident_bytes as f64,
    },
    Metric {
        name: "client_moved_in_bytes_total",
        kind: "counter",
        help: "Bytes brought to the device for the client.",
        value: |client| client.moved_in_bytes as f64,
    },
    Metric {
        name: "client_moved_out_bytes_total",
        kind: "counter",
        help: "Bytes sent from the device for others.",
        value: |client| client.moved_out_bytes as f64,
    },
    Metric {
        name: "client_held_seconds_total",
        kind: "counter",
        help: "How long the client has had the device.",
        value: |client| client.held_ms as f64 / 1e3,
    },
    Metric {
        name: "client_moving_seconds_total",
        kind: "counter",
        help: "Of that, how long its memory took to come.",
        value: |client| client.moving_ms as f64 / 1e3,
    },
    Metric {
        name: "client_waited_seconds_total",
        kind: "counter",
        help: "How long the client has waited for the device.",
        value: |client| client.waited_ms as f64 / 1e3,
    },
    Metric {
        name: "client_running",
        kind: "gauge",
        help: "Whether the client's work goes on.",
        value: |client| f64::from(u8::from(client.state == State::Running)),
    },
];

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP millpond_share_{name} {help}");
    let _ = writeln!(text, "# TYPE millpond_share_{name} {kind}");
}

/// A label's value: names are the clients' own choice.
fn escaped(value: &str) -> String {
    shown(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_make_lines_of_their_own() {
        let client = ClientStatus {
            pid: 7,
            principal: "user:1000".to_owned(),
            name: "a\"} 1\nb\\\u{1b}".to_owned(),
            state: State::Running,
            weight: 1,
            priority: 0,
            memory_limit_bytes: None,
            allocated_bytes: 5,
            resident_bytes: 4,
            moved_in_bytes: 3,
            moved_out_bytes: 2,
            held_ms: 1500,
            moving_ms: 0,
            waited_ms: 0,
        };
        let device = DeviceStatus {
            device: "GPU-1".to_owned(),
            capacity_bytes: 10,
            usable_bytes: 9,
            foreign_bytes: 1,
            mode: Mode::Turns,
            quantum_ms: 30_000,
            effective_quantum_ms: 30_000,
            thrashing: false,
            holder: Some(7),
            switches: 3,
            useful_share: 0.5,
            clients: vec![client],
        };
        let status = Status { devices: vec![device] };
        assert!(!text(&status, false).contains("name="));
        let text = text(&status, true);
        let held = r#"millpond_share_client_held_seconds_total{device="GPU-1",pid="7",name="a\"} 1\nb\\\\u{1b}"} 1.5"#;
        assert!(text.lines().any(|line| line == held), "{text}");
        assert!(
            text.lines().all(|line| line.starts_with("# ") || line.starts_with("millpond_share_"))
        );
    }
}

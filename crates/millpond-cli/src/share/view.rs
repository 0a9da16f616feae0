//! How a shared device and its clients are put into words.

use std::time::Duration;

use millpond_share::control::{ClientStatus, DeviceStatus, Mode, State};
use millpond_text::shown_in_line;

use crate::output::mib;

pub(crate) const CLIENT_COLUMNS: [&str; 11] = [
    "PID",
    "NAME",
    "STATE",
    "WEIGHT",
    "PRIO",
    "ALLOC MiB",
    "RESIDENT",
    "MOVED IN",
    "MOVED OUT",
    "HELD",
    "USEFUL",
];

/// A device, in a line.
pub(crate) fn device_line(number: usize, device: &DeviceStatus) -> String {
    let quantum = Duration::from_millis(device.effective_quantum_ms);
    let mode = match device.mode {
        Mode::Together => "all run together: their memory fits".to_owned(),
        Mode::Off => "turns are off".to_owned(),
        Mode::Turns => {
            let holder = device.holder.map_or("nobody's".to_owned(), |pid| format!("{pid}'s"));
            format!("turns of {}, now {holder}", humantime::format_duration(quantum))
        }
    };
    let thrashing = if device.thrashing { "; THRASHING, so turns are longer" } else { "" };
    let foreign = match device.foreign_bytes {
        0 => String::new(),
        bytes => format!(" beside {} MiB of others", mib(bytes)),
    };
    format!(
        "{number}: {}, {} MiB{foreign}, {mode}, {:.0} % useful{thrashing}",
        shown_in_line(&device.device),
        mib(device.usable_bytes),
        device.useful_share * 100.0
    )
}

/// A client, as a row of [`CLIENT_COLUMNS`].
pub(crate) fn client_row(client: &ClientStatus) -> [String; CLIENT_COLUMNS.len()] {
    [
        client.pid.to_string(),
        shown_in_line(&client.name).into_owned(),
        state(client.state).to_owned(),
        client.weight.to_string(),
        client.priority.to_string(),
        mib(client.allocated_bytes),
        mib(client.resident_bytes),
        mib(client.moved_in_bytes),
        mib(client.moved_out_bytes),
        humantime::format_duration(Duration::from_secs(client.held_ms / 1000)).to_string(),
        useful(client),
    ]
}

fn state(state: State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Waiting => "waiting",
        State::Arriving => "arriving",
        State::Running => "running",
        State::Dropping => "dropping",
        State::Revoked => "revoked",
    }
}

/// The share of the time since it wanted something in which its work went on.
fn useful(client: &ClientStatus) -> String {
    let all = client.held_ms + client.waited_ms;
    match all {
        0 => "–".to_owned(),
        all => format!("{} %", (client.held_ms - client.moving_ms.min(client.held_ms)) * 100 / all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientStatus {
        ClientStatus {
            pid: 42,
            principal: "user:1000".to_owned(),
            name: "a\u{1b}[2J\n\u{202e}b".to_owned(),
            state: State::Running,
            weight: 1,
            priority: 0,
            memory_limit_bytes: None,
            allocated_bytes: 12 << 30,
            resident_bytes: 1 << 30,
            moved_in_bytes: 0,
            moved_out_bytes: 0,
            held_ms: 61_000,
            moving_ms: 1_000,
            waited_ms: 59_000,
        }
    }

    #[test]
    fn a_row_says_what_is_where_and_a_name_commands_nothing() {
        let row = client_row(&client());
        assert_eq!(row[1], r"a\u{1b}[2J\n\u{202e}b");
        assert_eq!(&row[5..7], ["12288", "1024"]);
        assert_eq!(&row[9..], ["1m 1s", "50 %"]);
    }
}

//! `millpond share status`.

use anyhow::{Result, bail};
use millpond_share::control::{Answer, DeviceStatus, Line, Request, Status};

use super::options::StatusOptions;
use super::view::{CLIENT_COLUMNS, client_row, device_line};
use crate::output::{print, print_line, print_table, table};

pub(crate) fn run(options: &StatusOptions) -> Result<()> {
    let status = ask(&mut Line::open(&options.place.directory())?)?;
    if options.json.write(&status)? {
        return Ok(());
    }
    if status.devices.is_empty() {
        return print("no program shares a device; run one with `millpond share run -- COMMAND`\n");
    }
    for (number, device) in status.devices.iter().enumerate() {
        if number > 0 {
            print("\n")?;
        }
        show(number, device)?;
    }
    Ok(())
}

/// How things are.
pub(crate) fn ask(line: &mut Line) -> Result<Status> {
    match line.ask(Request::Status)? {
        Answer::Status(status) => Ok(status),
        Answer::Refused(reason) => bail!("{reason}"),
        Answer::Done => bail!("the daemon answered something else than it was asked"),
    }
}

fn show(number: usize, device: &DeviceStatus) -> Result<()> {
    print_line(&device_line(number, device))?;
    print("\n")?;
    let mut rows = table(CLIENT_COLUMNS);
    for client in &device.clients {
        rows.add_row(client_row(client));
    }
    print_table(&rows)
}

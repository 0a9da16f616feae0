//! `millpond share top`: the status, again and again.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use millpond_share::control::{DeviceStatus, Line, State, Status};
use millpond_text::shown_in_line;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line as Text;
use ratatui::widgets::{Paragraph, Row, Table};

use super::options::TopOptions;
use super::status;
use super::view::{CLIENT_COLUMNS, client_row, device_line};

/// Shorter would only keep the daemon from its work.
const SHORTEST: Duration = Duration::from_millis(100);
const COLUMN_WIDTHS: [u16; CLIENT_COLUMNS.len()] = [8, 16, 8, 6, 4, 9, 9, 9, 9, 10, 6];

pub(crate) fn run(options: &TopOptions) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("top needs a terminal: use `millpond share status`, or its --json");
    }
    let directory = options.place.directory();
    // Before the screen is taken: an error is a line below the prompt.
    let mut line = Line::open(&directory)?;
    let mut seen = Ok(status::ask(&mut line)?);
    let every = options.every.max(SHORTEST);
    let mut terminal = ratatui::init();
    let mut watch = || -> Result<()> {
        loop {
            terminal.draw(|frame| match &seen {
                Ok(status) => draw(frame, status),
                Err(error) => {
                    draw_error(frame, &format!("{error:#}; looking for it again, q ends"))
                }
            })?;
            if is_ended_within(every)? {
                return Ok(());
            }
            seen = ask_again(&mut line, &directory);
        }
    };
    let outcome = watch();
    ratatui::restore();
    outcome
}

/// A daemon that has been started again is another one to talk to.
fn ask_again(line: &mut Line, directory: &Path) -> Result<Status> {
    status::ask(line).or_else(|_| {
        *line = Line::open(directory)?;
        status::ask(line)
    })
}

/// Waits; whether somebody has pressed q, Escape or Ctrl-C meanwhile.
fn is_ended_within(time: Duration) -> Result<bool> {
    let until = Instant::now() + time;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        if let Event::Key(key) = event::read()? {
            let interrupt =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn draw_error(frame: &mut Frame<'_>, error: &str) {
    frame.render_widget(Paragraph::new(shown_in_line(error)), frame.area());
}

fn draw(frame: &mut Frame<'_>, status: &Status) {
    if status.devices.is_empty() {
        let hint =
            "No program shares a device; run one with `millpond share run -- COMMAND`. q ends.";
        return frame.render_widget(Paragraph::new(hint), frame.area());
    }
    let heights = status.devices.iter().map(|device| {
        let rows = u16::try_from(device.clients.len()).unwrap_or(u16::MAX);
        Constraint::Length(rows.saturating_add(5))
    });
    let areas = Layout::vertical(heights.chain([Constraint::Min(0)])).split(frame.area());
    for (number, (device, area)) in status.devices.iter().zip(areas.iter()).enumerate() {
        draw_device(frame, number, device, *area);
    }
}

fn draw_device(frame: &mut Frame<'_>, number: usize, device: &DeviceStatus, area: Rect) {
    let [head, memory, table, _] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Text::styled(device_line(number, device), bold), head);
    frame.render_widget(Text::raw(memory_bar(device, memory.width)), memory);
    let rows = device.clients.iter().map(|client| {
        let style = match client.state {
            State::Running => Style::new().fg(Color::Green),
            State::Arriving => Style::new().fg(Color::Yellow),
            State::Dropping | State::Revoked => Style::new().fg(Color::Red),
            State::Idle | State::Waiting => Style::new(),
        };
        Row::new(client_row(client)).style(style)
    });
    let header = Row::new(CLIENT_COLUMNS).style(Style::new().add_modifier(Modifier::DIM));
    let widths = COLUMN_WIDTHS.map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(header), table);
}

/// The device's memory as a bar: a digit for each client's part, in the order of the table.
fn memory_bar(device: &DeviceStatus, width: u16) -> String {
    let cells = usize::from(width.saturating_sub(2));
    let usable = device.usable_bytes.max(1) as f64;
    let mut bar = String::new();
    let mut bytes = 0;
    for (at, client) in device.clients.iter().enumerate() {
        bytes += client.resident_bytes;
        let end = (bytes as f64 / usable * cells as f64).round() as usize;
        let digit = char::from_digit(at as u32 % 10, 10).unwrap_or('#');
        while bar.len() < end.min(cells) {
            bar.push(digit);
        }
    }
    format!("[{bar:.<cells$}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_share::control::{ClientStatus, Mode};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn client(pid: u32, state: State, resident_mib: u64) -> ClientStatus {
        ClientStatus {
            pid,
            principal: "user:1000".to_owned(),
            name: format!("train{pid}"),
            state,
            weight: 1,
            priority: 0,
            memory_limit_bytes: None,
            allocated_bytes: 12_000 << 20,
            resident_bytes: resident_mib << 20,
            moved_in_bytes: 40_000 << 20,
            moved_out_bytes: 39_000 << 20,
            held_ms: 90_000,
            moving_ms: 1_000,
            waited_ms: 90_000,
        }
    }

    fn screen(status: &Status) -> String {
        let mut terminal = Terminal::new(TestBackend::new(110, 8)).unwrap();
        terminal.draw(|frame| draw(frame, status)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..110).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..8).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn the_screen_shows_the_turn_and_who_has_how_much_of_the_device() {
        let device = DeviceStatus {
            device: "GPU-0".to_owned(),
            capacity_bytes: 16_000 << 20,
            usable_bytes: 16_000 << 20,
            foreign_bytes: 0,
            mode: Mode::Turns,
            quantum_ms: 30_000,
            effective_quantum_ms: 30_000,
            thrashing: false,
            holder: Some(7),
            switches: 6,
            useful_share: 0.98,
            clients: vec![client(7, State::Running, 12_000), client(8, State::Waiting, 4_000)],
        };
        let screen = screen(&Status { devices: vec![device] });
        assert!(
            screen.starts_with("0: GPU-0, 16000 MiB, turns of 30s, now 7's, 98 % useful\n"),
            "{screen}"
        );
        let bar = screen.lines().nth(1).unwrap();
        assert_eq!(bar.matches('0').count(), 81, "{screen}");
        assert_eq!(bar.matches('1').count(), 27, "{screen}");
        let row = screen.lines().nth(4).unwrap();
        assert!(
            row.contains("train8") && row.contains("waiting") && row.contains("39000"),
            "{screen}"
        );
    }

    #[test]
    fn nobody_is_said_so() {
        assert!(screen(&Status::default()).contains("No program shares a device"));
    }
}

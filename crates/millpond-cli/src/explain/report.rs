//! What held memory, for people and for programs.

use anyhow::Result;
use millpond::Stack;
use millpond::replay::{Left, Step};
use millpond::resource::Recoverable;
use serde::Serialize;

use super::callers::{self, OfFrame};
use super::holdings::{OfAge, OfSize, by_age, by_size};
use crate::output::{mib, print, print_figures, print_line, print_table, set_figures, table};
use crate::replay::recorded_oom::RecordedOom;

/// What held memory at one moment. Also the JSON.
#[derive(Serialize)]
pub(crate) struct Report {
    trace: String,
    allocator: String,
    /// The moment: after this event.
    event: u32,
    live_bytes: u64,
    live_blocks: usize,
    reserved_bytes: u64,
    largest_free_bytes: u64,
    device_free_bytes: u64,
    recoverable: Recoverable,
    by_size: Vec<OfSize>,
    by_age: Vec<OfAge>,
    by_frame: Vec<OfFrame>,
    oom: Option<String>,
    /// That memory ran out here when it was recorded.
    recorded_oom: Option<RecordedOom>,
}

/// Lines of the program that are printed; the rest is summed.
const MOST_PRINTED: usize = 15;

impl Report {
    pub(crate) fn new(
        trace: &str,
        stack: &Stack,
        event: u32,
        live: &[Step],
        by_frame: Vec<OfFrame>,
        left: &Left,
    ) -> Report {
        Report {
            trace: trace.to_owned(),
            allocator: stack.to_string(),
            event,
            live_bytes: left.usage.live_bytes as u64,
            live_blocks: live.len(),
            reserved_bytes: left.usage.reserved_bytes as u64,
            largest_free_bytes: left.usage.largest_free_bytes as u64,
            device_free_bytes: left.device_free_bytes,
            recoverable: left.recoverable,
            by_size: by_size(live),
            by_age: by_age(live, event),
            by_frame,
            oom: left.outcome.stopped.as_ref().map(ToString::to_string),
            recorded_oom: None,
        }
    }

    /// The moment is that at which memory ran out when it was recorded, if it did.
    pub(crate) fn at_recorded_oom(self, recorded_oom: Option<RecordedOom>) -> Report {
        let described = recorded_oom.as_ref().map(|oom| {
            format!("event {}: out of memory when it was recorded, {}", oom.event, oom.described())
        });
        Report { oom: self.oom.or(described), recorded_oom, ..self }
    }

    pub(crate) fn print(&self) -> Result<()> {
        print_line(&format!(
            "{} with {}, after event {}: {} MiB live in {} blocks, {} MiB reserved, largest free {} MiB, {} MiB free on the device",
            self.trace,
            self.allocator,
            self.event,
            mib(self.live_bytes),
            self.live_blocks,
            mib(self.reserved_bytes),
            mib(self.largest_free_bytes),
            mib(self.device_free_bytes),
        ))?;
        if let Some(oom) = &self.recorded_oom {
            let described = oom.described();
            print_line(&format!("Here memory ran out when it was recorded: {described}"))?;
        } else if let Some(oom) = &self.oom {
            print_line(&format!("It stopped at {oom}"))?;
        }
        let share =
            |bytes: u64| format!("{:.1} %", bytes as f64 / self.live_bytes.max(1) as f64 * 100.0);
        let mut sizes = table(["SIZE", "BLOCKS", "MiB", "OF LIVE"]);
        for size in &self.by_size {
            let range = format!(
                "{} … {}",
                human(size.from_bytes),
                human(size.from_bytes.saturating_mul(2))
            );
            sizes.add_row([range, size.blocks.to_string(), mib(size.bytes), share(size.bytes)]);
        }
        let mut ages = table(["ALLOCATED", "BLOCKS", "MiB", "OF LIVE"]);
        for age in &self.by_age {
            let when = age.events.map_or_else(
                || "longer ago, or before the first event".to_owned(),
                |events| format!("in the last {events} events"),
            );
            ages.add_row([when, age.blocks.to_string(), mib(age.bytes), share(age.bytes)]);
        }
        let mut frames = table(["WHERE", "BLOCKS", "MiB", "OF LIVE"]);
        let rest = callers::rest(&self.by_frame, MOST_PRINTED);
        for frame in self.by_frame.iter().take(MOST_PRINTED).chain(&rest) {
            frames.add_row([
                frame.short.clone(),
                frame.blocks.to_string(),
                mib(frame.bytes),
                share(frame.bytes),
            ]);
        }
        for rows in [sizes, ages, frames].into_iter().filter(|rows| !rows.is_empty()) {
            print("\n")?;
            print_figures(rows, &["OF LIVE"])?;
        }
        self.print_recoverable()
    }

    fn print_recoverable(&self) -> Result<()> {
        let Recoverable { drain, merge, wait, r#move, release } = self.recoverable;
        let mut steps = table(["STEP", "MiB", "WHAT IT DOES"]);
        for (name, bytes, what) in [
            ("drain", drain, "empties caches, other threads' too"),
            ("merge", merge, "merges free neighbours"),
            ("wait", wait, "waits for work that still uses freed blocks"),
            ("move", r#move, "moves free pages together"),
            ("release", release, "gives unused memory back to the driver"),
        ] {
            steps.add_row([name.to_owned(), mib(bytes as u64), what.to_owned()]);
        }
        set_figures(&mut steps, 1..2);
        print("\nWhat recovery would yield\n")?;
        print_table(&steps)
    }
}

fn human(bytes: u64) -> String {
    bytesize::ByteSize::b(bytes).display().iec().to_string()
}

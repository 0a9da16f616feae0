//! What to use, for people and for programs.

use std::time::Duration;

use anyhow::Result;
use millpond::replay::{Bench, Recorded, Replayed};
use serde::Serialize;

use super::contest::{Contest, Finalist, has_finished, late_seconds};
use super::paste::Paste;
use crate::interrupt;
use crate::output::{mib, print, print_figures, print_line, table};
use crate::replay::recorded_oom::RecordedOom;

/// What to use for one trace. Also the JSON.
#[derive(Serialize)]
pub(crate) struct Report {
    trace: String,
    device: String,
    capacity_bytes: u64,
    events: usize,
    duration_ms: f64,
    peak_live_bytes: u64,
    recorded_peak_reserved_bytes: u64,
    /// What savings are reckoned from: what was recorded, or else what PyTorch's defaults reserve.
    compared_with: &'static str,
    /// What decides what is best: `device`, the smallest that it fits in, where memory is short, or else `cost`, time × memory.
    ranked_by: &'static str,
    /// Memory that ran out already when it was recorded.
    recorded_oom: Option<RecordedOom>,
    /// What a device has to have at least: what was live at the most, with what failed when it was recorded.
    #[serde(skip)]
    least_bytes: u64,
    /// Whether Ctrl-C came before the end.
    pub(crate) interrupted: bool,
    pub(crate) ranking: Vec<Ranked>,
    /// Candidates that ran out of memory.
    ran_out: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct Ranked {
    stack: String,
    peak_reserved_bytes: u64,
    ratio: Option<f64>,
    min_capacity_bytes: Option<u64>,
    ns_per_op: f64,
    /// In the driver: modelled on a simulated device, measured on a real one. The other is none.
    modelled_ms: Option<f64>,
    measured_ms: Option<f64>,
    /// Of the later half of the events, when it has grown.
    modelled_late_ms: Option<f64>,
    measured_late_ms: Option<f64>,
    /// Less than 0: it takes more. `None` where one of the two ran out: what it reserved until then says nothing.
    saves_bytes: Option<i64>,
    /// Of the host's and the driver's time of the later half, to PyTorch's defaults; likewise.
    saves_ms: Option<f64>,
    held_out_ratio: Option<f64>,
    held_out_reserved_bytes: Option<u64>,
    /// To what PyTorch's defaults reserve on that half; likewise.
    held_out_saves_bytes: Option<i64>,
    held_out_place: usize,
    /// How far it is behind the best of them on that half; `None` if it ran out there.
    held_out_behind: Option<f64>,
    pub(crate) oom: Option<String>,
    paste: Paste,
}

impl Report {
    pub(crate) fn new(
        recorded: &Recorded,
        device: String,
        bench: &Bench,
        contest: &Contest,
    ) -> Report {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let modelled = |time| (!bench.is_real()).then(|| ms(time));
        let measured = |time| bench.is_real().then(|| ms(time));
        let summary = recorded.program.summary();
        let reserved_by = |replayed: &Replayed| replayed.outcome.peak_reserved_bytes;
        let usual = contest.usual.as_ref().filter(|usual| has_finished(usual));
        let usual_held_out = contest.usual_held_out.as_ref().filter(|usual| has_finished(usual));
        let (compared_with, reserved) = match summary.recorded_peak_reserved_bytes {
            0 => ("torch", usual.map(reserved_by)),
            recorded => ("as recorded", Some(recorded)),
        };
        let saved = |before: Option<u64>, replayed: Option<&Replayed>| {
            Some(before? as i64 - reserved_by(replayed?) as i64)
        };
        let ranked = |finalist: &Finalist| {
            let Finalist { stack, whole, min_capacity_bytes, held_out, held_out_place, .. } =
                finalist;
            let stack = stack.to_string();
            let finished = has_finished(whole).then_some(whole);
            Ranked {
                peak_reserved_bytes: whole.outcome.peak_reserved_bytes,
                ratio: whole.outcome.ratio(),
                min_capacity_bytes: *min_capacity_bytes,
                ns_per_op: whole.outcome.ns_per_operation(),
                modelled_ms: modelled(whole.modelled),
                measured_ms: measured(whole.modelled),
                modelled_late_ms: modelled(whole.modelled_late),
                measured_late_ms: measured(whole.modelled_late),
                saves_bytes: saved(reserved, finished),
                saves_ms: usual
                    .zip(finished)
                    .map(|(usual, own)| (late_seconds(usual) - late_seconds(own)) * 1e3),
                held_out_ratio: held_out.as_ref().and_then(|replayed| replayed.outcome.ratio()),
                held_out_reserved_bytes: held_out.as_ref().map(reserved_by),
                held_out_saves_bytes: saved(usual_held_out.map(reserved_by), held_out.as_ref()),
                held_out_place: *held_out_place,
                held_out_behind: Some(finalist.held_out_behind).filter(|behind| behind.is_finite()),
                oom: whole.outcome.stopped.as_ref().map(ToString::to_string),
                paste: Paste::of(&stack),
                stack,
            }
        };
        Report {
            trace: recorded.name.clone(),
            device,
            capacity_bytes: bench.capacity_bytes(),
            events: summary.events,
            duration_ms: contest.duration_us as f64 / 1e3,
            peak_live_bytes: recorded.program.peak_live_bytes(),
            recorded_peak_reserved_bytes: summary.recorded_peak_reserved_bytes,
            compared_with,
            ranked_by: if contest.is_short { "device" } else { "cost" },
            recorded_oom: RecordedOom::of(&recorded.program),
            least_bytes: recorded.program.with_failed_requests().peak_live_bytes(),
            interrupted: contest.interrupted,
            ranking: contest.finalists.iter().map(ranked).collect(),
            ran_out: contest.ran_out.clone(),
        }
    }

    pub(crate) fn print(&self) -> Result<()> {
        print_line(&format!(
            "{}: {} events in {:.0} ms, {} MiB live at the most",
            self.trace,
            self.events,
            self.duration_ms,
            mib(self.peak_live_bytes)
        ))?;
        let mut rows = table([
            "ALLOCATOR",
            "RESERVED",
            "RATIO",
            "HELD OUT",
            "FITS IN",
            "NS/OP",
            "MS",
            "LATE MS",
            "SAVES MiB",
            "SAVES MS",
        ]);
        let dash = || "–".to_owned();
        let ms = |ms: f64| format!("{ms:.1}");
        let ratio = |ratio: Option<f64>| ratio.map_or_else(dash, |ratio| format!("{ratio:.3}"));
        for ranked in &self.ranking {
            rows.add_row([
                ranked.stack.clone(),
                mib(ranked.peak_reserved_bytes),
                ratio(ranked.ratio),
                ratio(ranked.held_out_ratio),
                ranked.min_capacity_bytes.map_or_else(dash, mib),
                format!("{:.0}", ranked.ns_per_op),
                ranked.modelled_ms.or(ranked.measured_ms).map_or_else(dash, ms),
                ranked.modelled_late_ms.or(ranked.measured_late_ms).map_or_else(dash, ms),
                ranked.saves_bytes.map_or_else(dash, signed_mib),
                ranked.saves_ms.map_or_else(dash, ms),
            ]);
        }
        if !self.ranking.is_empty() {
            print_figures(rows, &["SAVES MS", "MS", "NS/OP", "SAVES MiB", "HELD OUT", "LATE MS"])?;
        }
        if let Some(oom) = &self.recorded_oom {
            print_line(&oom.line(!self.ranking.is_empty()))?;
        }
        for ranked in &self.ranking {
            if let Some(oom) = &ranked.oom {
                print_line(&format!("{} stopped at {oom}", ranked.stack))?;
            }
        }
        if !self.ran_out.is_empty() {
            print(&format!(
                "Out of memory on {} MiB: {}\n",
                mib(self.capacity_bytes),
                self.ran_out.join(", ")
            ))?;
        }
        if !self.ranking.is_empty() {
            self.print_legend()?;
        }
        match self.ranking.first() {
            _ if self.interrupted => print(&format!(
                "\n{} Not all were tried, so none is recommended; let it run to its end.\n",
                interrupt::NOTE
            )),
            Some(best) if best.oom.is_none() => self.print_best(best),
            _ => self.print_nothing(),
        }
    }

    fn print_legend(&self) -> Result<()> {
        let is_measured = self.ranking.iter().any(|ranked| ranked.measured_ms.is_some());
        print(&format!(
            "\nThe best first: {}\n\
             These were chosen by the first half of the events; who is more than 5 % behind the best on the other half is not recommended over one that is not.\n\
             HELD OUT: the ratio on the other half. FITS IN: MiB of the smallest device. NS/OP: host time of an allocation or free, measured. MS: in the driver, {};\n\
             LATE MS: in the later half of the events, without growing, which is paid once. SAVES: to what was reserved {}, and of host and driver in the later half to PyTorch's defaults.\n",
            match self.ranked_by {
                "device" =>
                    "the smallest device, since memory is short; to half a percent, then least job time × memory reserved. Who makes the job a tenth longer comes last.",
                _ =>
                    "least job time × memory reserved, once it has grown; to a percent, then least memory.",
            },
            if is_measured { "measured" } else { "modelled" },
            match self.compared_with {
                "torch" => "by PyTorch's defaults",
                _ => "when it was recorded",
            }
        ))
    }

    fn print_nothing(&self) -> Result<()> {
        let fits_in = |ranked: &Ranked| Some((ranked.min_capacity_bytes?, ranked.stack.clone()));
        let least = self.ranking.iter().filter_map(fits_in).min();
        print(&format!(
            "\nNothing fits in {} MiB: {} MiB are live at the most{}{}\n",
            mib(self.capacity_bytes),
            mib(self.least_bytes),
            match self.least_bytes > self.peak_live_bytes {
                true => ", with what failed when it was recorded",
                false => "",
            },
            least.map_or_else(String::new, |(bytes, stack)| format!(
                "; {stack} fits in {} MiB",
                mib(bytes)
            ))
        ))
    }

    fn print_best(&self, best: &Ranked) -> Result<()> {
        let place = match (best.held_out_place, best.held_out_behind) {
            (2.., Some(behind)) if behind > 0.0 => {
                format!("{:.1} % behind the best of them", behind * 100.0)
            }
            _ => "the best of them".to_owned(),
        };
        let held_out = match (best.held_out_reserved_bytes, best.held_out_saves_bytes) {
            (None, _) => "runs out of memory on the half that they were not chosen by".to_owned(),
            (Some(reserved), saves) => format!(
                "is {place} on the half that they were not chosen by, where it reserves {} MiB{}",
                mib(reserved),
                match saves {
                    Some(saves) => format!(
                        ", and PyTorch's defaults {}",
                        mib(reserved.saturating_add_signed(saves))
                    ),
                    None => ", and PyTorch's defaults run out".to_owned(),
                }
            ),
        };
        print(&format!("\nUse {}; it {held_out}.\n", best.stack))?;
        let none = "there is no setting for it".to_owned();
        print(&format!(
            "  PyTorch  {}\n  C, C++   {}\n  Rust     {}\n",
            best.paste.pytorch.as_ref().unwrap_or(&none),
            best.paste.cpp,
            best.paste.rust
        ))
    }
}

fn signed_mib(bytes: i64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

//! The adaptors that can be named.

use std::io::Write;
use std::sync::Arc;

use millpond_text::shown;

use super::entry::{AdaptorEntry, Kind, MakeError, OptionSpec};
use crate::adaptor::{
    Aligned, Budget, Ledger, Limit, OnFailure, Prefetch, Statistics, Trace, TraceLog, Track,
};

/// All of them, in the order in which they are shown. A new one is one entry.
pub static ADAPTORS: &[AdaptorEntry] = &[
    AdaptorEntry {
        name: "stats",
        about: "counts current, peak and total bytes and blocks, in nested scopes",
        options: &[],
        make: |_, resource, handles| {
            let statistics = Statistics::new(resource);
            handles.scopes.push(statistics.scopes());
            Ok(Arc::new(statistics))
        },
    },
    AdaptorEntry {
        name: "limit",
        about: "refuses what would make more live than a limit",
        options: &[OptionSpec::required("bytes", Kind::Size, "what may be live, such as 4GiB")
            .stands_alone()],
        make: |options, resource, handles| {
            let budget = Budget::new(options.size("bytes"));
            handles.budgets.push(budget.clone());
            Ok(Arc::new(Limit::new(resource, budget)))
        },
    },
    AdaptorEntry {
        name: "trace",
        about: "logs every allocation and free as RMM does (CSV)",
        options: &[OptionSpec::required("path", Kind::Path, "the file to write").stands_alone()],
        make: |options, resource, handles| {
            let log = TraceLog::create(options.path("path"))
                .map_err(|error| MakeError::value("path", format!("cannot be written: {error}")))?;
            handles.logs.push(log.clone());
            Ok(Arc::new(Trace::new(resource, log)))
        },
    },
    AdaptorEntry {
        name: "track",
        about: "tells who allocated what was never freed, and who freed twice",
        options: &[
            OptionSpec::new("backtraces", Kind::Switch, "true", "whether to remember the callers"),
            OptionSpec::new(
                "report",
                Kind::OneOf(&["stderr", "none"]),
                "stderr",
                "where to tell at the end",
            ),
        ],
        make: |options, resource, handles| {
            let track = match options.switch("backtraces") {
                true => Track::new(resource),
                false => Track::without_backtraces(resource),
            };
            handles.ledgers.push(track.ledger());
            Ok(match options.word("report") {
                "stderr" => Arc::new(track.at_end(report)),
                _ => Arc::new(track),
            })
        },
    },
    AdaptorEntry {
        name: "onfailure",
        about: "gives unused memory back when memory is out, and tries again",
        options: &[
            OptionSpec::new("retries", Kind::Count, "1", "how often to try again").stands_alone()
        ],
        make: |options, resource, _| {
            let (retries, below) = (options.count("retries"), Arc::clone(&resource));
            Ok(Arc::new(OnFailure::new(resource, move |error, tries| {
                let again = error.is_out_of_memory() && u64::from(tries) <= retries;
                if again {
                    below.trim();
                }
                again
            })))
        },
    },
    AdaptorEntry {
        name: "prefetch",
        about: "brings managed blocks to the device when they are allocated",
        options: &[],
        make: |_, resource, _| Ok(Arc::new(Prefetch::new(resource))),
    },
    AdaptorEntry {
        name: "aligned",
        about: "aligns blocks to more than 256 bytes",
        options: &[
            OptionSpec::new(
                "alignment",
                Kind::Size,
                "4KiB",
                "every address is a multiple of this power of two",
            )
            .stands_alone(),
            OptionSpec::new("threshold", Kind::Size, "0B", "smaller blocks stay as they are"),
        ],
        make: |options, resource, _| {
            let (alignment, threshold) = (options.size("alignment"), options.size("threshold"));
            let aligned = Aligned::above(resource, alignment, threshold);
            Ok(Arc::new(aligned.map_err(|_| {
                MakeError::value("alignment", "must be a power of two from 256B to 1GiB")
            })?))
        },
    },
];

/// Tells the user what was seen, if there is anything to tell.
fn report(ledger: &Ledger) {
    let text = ledger.report();
    if !text.is_empty() {
        // Where nobody reads standard error, nobody can be told.
        let _ = write!(std::io::stderr(), "millpond: {}", shown(&text));
    }
}

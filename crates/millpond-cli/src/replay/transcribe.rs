//! `--snapshot`: what an allocator did, for PyTorch's memory viewer.

use std::path::Path;

use anyhow::{Result, ensure};
use millpond::Stack;
use millpond::replay::{Bench, Recorded};
use millpond::trace::Snapshot;

/// Replays the devices of one trace once more, writing down what the allocator does, and saves it.
pub(crate) fn save(
    path: &Path,
    bench: &Bench,
    stacks: &[Stack],
    traces: usize,
    recorded: &[Recorded],
) -> Result<()> {
    ensure!(
        traces == 1 && stacks.len() == 1,
        "--snapshot shows one allocator with one trace: give one file, and name the allocator with --allocator"
    );
    let mut whole = Snapshot::default();
    for recorded in recorded {
        let device = recorded.program.device();
        let mut snapshot = bench.transcribe(&stacks[0], &recorded.program)?;
        let traces = whole.device_traces.len().max(snapshot.device_traces.len());
        whole.device_traces.resize(traces, Vec::new());
        whole.device_traces[device as usize] =
            snapshot.device_traces.pop().expect("the device's own is the last");
        whole.segments.append(&mut snapshot.segments);
        whole.allocator_settings = snapshot.allocator_settings;
    }
    whole.save(path)?;
    Ok(())
}

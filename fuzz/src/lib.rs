//! Coverage-guided fuzzing of everything that reads bytes from outside: `cargo xtask fuzz`.
//!
//! Each program in `bin/` is one target of libFuzzer's, and `corpus/` has the inputs that reach its branches. The project is built with
//! `--cfg fuzzing` for it, in which checksums are not compared: what stands behind them has to be reached.

use millpond::replay::Program;
use millpond::trace::Limits;
use millpond::{Trace, TraceError};

/// Small enough that an input that makes a reader take more than it may is seen by libFuzzer's limit.
const LIMITS: Limits = Limits { memory_bytes: 4 << 20, unpacked_bytes: 64 << 20 };

/// Reads a file of any format. The answer is an error of one line, or a trace that can be used and written.
pub fn read_trace(bytes: &[u8]) {
    let trace = match Trace::read(bytes, LIMITS) {
        Ok(trace) => trace,
        Err(error) => return is_one_line(&error),
    };
    std::hint::black_box(trace.summary());
    let owners = trace.stacks.owners();
    for device in &trace.devices {
        for event in &device.events {
            std::hint::black_box(owners.of(event.stack));
            std::hint::black_box(trace.stacks.frames(event.stack).count());
        }
        let program = Program::of(device);
        for step in program.steps().expect("it is in memory") {
            let step = step.expect("it was read");
            assert!((step.block as usize) < program.blocks());
            assert!((step.stream as usize) < program.streams());
            assert!(usize::from(step.thread) < program.threads());
        }
    }
    let written = trace.write_compact(Vec::new()).expect("memory takes it");
    let again =
        Trace::read(&written[..], Limits::default()).expect("Millpond reads what it writes");
    assert_eq!(again.event_count(), trace.event_count());
}

fn is_one_line(error: &TraceError) {
    assert!(!error.to_string().contains('\n'), "{error}");
}

/// What is left of an input: a target takes its choices from it.
#[derive(Debug)]
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

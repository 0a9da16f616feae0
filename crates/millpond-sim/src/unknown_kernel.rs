//! Kernels of which only the parameters are known.
//!
//! A word of a parameter that is an address says where a kernel *could* look, and no more: the field may never have been set, the pointer may be one past
//! the end of a range, a flag may say that it is not to be used. So such a touch is a guess. It counts for the kernel's time, and it brings managed
//! memory to the device. The detector remembers nothing of it, and where there is no memory for it the device goes on: that is a [`Suspicion`], and
//! never a finding.

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{Call, DevicePtr, DriverResult, Stream, StreamId, Touch};

use crate::detector::Actor;
use crate::gpu::SimGpu;
use crate::inspect::Allocation;
use crate::machine::{Machine, Toucher};
use crate::work::Work;

/// A kernel whose code says nothing that could be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKernel {
    /// What its code calls it.
    pub name: String,
    /// What of its parameters can only be meant as addresses.
    pub addresses: Vec<AddressWord>,
    /// How long it takes at least.
    pub duration: Duration,
}

/// A word of a parameter that can only be meant as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressWord {
    /// The address.
    pub ptr: DevicePtr,
    /// Where in its parameter the word lies.
    pub offset: usize,
    /// How long that parameter is. `None`: the code does not tell where one ends and the next begins.
    pub parameter_bytes: Option<usize>,
}

impl AddressWord {
    /// Whether the parameter is this word and nothing else: nobody passes a pointer of its own without having set it to something.
    pub fn is_whole_parameter(&self) -> bool {
        self.parameter_bytes == Some(8)
    }
}

/// What a kernel may have done wrong: if it used an address among its parameters, it used memory that was not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The kernel's name.
    pub kernel: String,
    /// The stream it ran on.
    pub stream: StreamId,
    /// When it ran, in virtual time.
    pub at: Duration,
    /// Which of its parameters' words it is about.
    pub word: AddressWord,
    /// What became of the memory.
    pub reason: String,
}

impl std::fmt::Display for Suspicion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Suspicion { kernel, stream, at, word, reason } = self;
        let AddressWord { ptr, offset, parameter_bytes } = word;
        write!(f, "{kernel} on stream {} at {at:?} may have used {ptr} (", stream.0)?;
        match parameter_bytes {
            Some(8) => write!(f, "a parameter of its own")?,
            Some(bytes) => write!(f, "byte {offset} of a parameter of {bytes}")?,
            None => write!(f, "byte {offset} of parameters of unknown layout")?,
        }
        write!(f, "): {reason}")
    }
}

/// A guess about a kernel that runs.
#[derive(Clone, Debug)]
pub(crate) struct Guess {
    kernel: Arc<UnknownKernel>,
    word: AddressWord,
    stream: StreamId,
    at: u64,
}

impl Guess {
    pub(crate) fn suspicion(&self, reason: String) -> Suspicion {
        Suspicion {
            kernel: self.kernel.name.clone(),
            stream: self.stream,
            at: Duration::from_nanos(self.at),
            word: self.word,
            reason,
        }
    }
}

impl SimGpu {
    /// Launches a kernel of which only the parameters are known.
    ///
    /// # Errors
    /// As [`Driver::launch`](millpond::Driver::launch). Where the addresses lead to is no error.
    pub fn launch_unknown(&self, kernel: &Arc<UnknownKernel>, stream: Stream) -> DriverResult<()> {
        let mut machine = self.enter(Call::Launch)?;
        machine.submit(Call::Launch, stream, Work::Unknown(Arc::clone(kernel)))
    }

    /// What kernels may have done wrong so far, the first few things.
    pub fn suspicions(&self) -> Vec<Suspicion> {
        self.machine.lock().detector.suspicions().to_vec()
    }
}

impl Machine {
    /// Runs a kernel of which only the parameters are known; returns when it ends.
    pub(crate) fn run_unknown(&mut self, kernel: &Arc<UnknownKernel>, actor: &Actor) -> u64 {
        let mut ready = actor.at;
        let mut touched_bytes = 0;
        let mut seen: Vec<DevicePtr> = Vec::with_capacity(kernel.addresses.len());
        for word in &kernel.addresses {
            let (stream, at) = (actor.stream, actor.at);
            let guess = Guess { kernel: Arc::clone(kernel), word: *word, stream, at };
            let Some(Allocation { start, bytes, .. }) = self.allocation_at(word.ptr) else {
                let violation = self.space.nothing_at(word.ptr.0);
                self.detector.suspect(guess.suspicion(violation.reason));
                continue;
            };
            if seen.contains(&start) {
                continue;
            }
            seen.push(start);
            touched_bytes += bytes as u64;
            let read = Touch::read(start, bytes);
            // Whether it is read or written is not known. What is only read need not be written back.
            if let Ok(spans) = self.space.resolve(read.ptr, bytes as u64, read.kind) {
                ready = self.fault_in(&spans, read.kind, ready);
            }
            self.touched.push((read, Toucher::Guess(guess)));
        }
        let least_ns = u64::try_from(kernel.duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.compute(ready, touched_bytes, least_ns)
    }
}

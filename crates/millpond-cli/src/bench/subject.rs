//! What is measured: something that hands out blocks and takes them back.

/// Which of its two streams a workload allocates or frees on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamNumber {
    Zero,
    One,
}

/// An allocator as the workloads call it.
///
/// So that figures can be compared, **each operation is exactly one call that the compiler cannot see
/// through**. The functions of a C library are such calls by themselves; every other subject marks its
/// two methods `#[inline(never)]`. The workloads are generic over subjects: nothing else lies between.
///
/// Subjects never touch the memory they hand out, beyond what their own book-keeping does there.
pub(crate) trait Subject {
    /// A block that is held. Where it is raw memory it cannot be copied, so that safe code cannot free it twice.
    type Block: Send;

    /// A block of at least `bytes`. There is no error to return: who cannot allocate [gives up](give_up).
    fn allocate(&mut self, bytes: usize, stream: StreamNumber) -> Self::Block;

    /// Whether there are blocks of this size at all.
    fn has_blocks_of(&mut self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Takes a block of this subject back, with the size it was allocated with.
    fn free(&mut self, block: Self::Block, bytes: usize, stream: StreamNumber);
}

/// Ends the program: a subject refused, and other threads of the workload may be waiting for this one.
#[cold]
pub(crate) fn give_up(subject: &str, reason: &dyn std::fmt::Display) -> ! {
    crate::output::say(&format!("millpond: {subject} cannot run this workload: {reason}"));
    std::process::exit(1)
}

/// Allocates nothing: what it is measured to take is what the harness itself costs.
#[derive(Clone, Copy)]
pub(crate) struct Nothing;

impl Subject for Nothing {
    type Block = usize;

    #[inline(never)]
    fn allocate(&mut self, bytes: usize, _stream: StreamNumber) -> usize {
        std::hint::black_box(bytes)
    }

    #[inline(never)]
    fn free(&mut self, block: usize, _bytes: usize, _stream: StreamNumber) {
        std::hint::black_box(block);
    }
}

//! The newest block, and what became of it.

/// What happened last: a block was allocated, or that block was freed again at once, or something else.
///
/// A block that is freed right after it was allocated leaves everything as it was before. Whoever then asks for as much again gets the same
/// block, whatever the policy. So such a block is kept in hand, and made free only when something else happens: programs that take a
/// temporary block again and again pay for finding it once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Recent<B> {
    #[default]
    Other,
    Allocated(B),
    /// In hand: its user has freed it, and nobody else knows yet.
    Freed(B),
}

impl<B: Copy> Recent<B> {
    /// The block in hand, if it is what is asked for. It is its user's again.
    #[inline]
    pub(super) fn again(&mut self, is_asked_for: impl FnOnce(&B) -> bool) -> Option<B> {
        match *self {
            Recent::Freed(block) if is_asked_for(&block) => {
                *self = Recent::Allocated(block);
                Some(block)
            }
            _ => None,
        }
    }

    /// Whether a block that is being freed is the newest, and is kept in hand.
    #[inline]
    pub(super) fn keeps(&mut self, is_freed: impl FnOnce(&B) -> bool) -> bool {
        match *self {
            Recent::Allocated(block) if is_freed(&block) => {
                *self = Recent::Freed(block);
                true
            }
            _ => false,
        }
    }

    /// Something else is about to happen: the block in hand, which has to be made free before that.
    #[inline]
    pub(super) fn end(&mut self) -> Option<B> {
        match std::mem::take(self) {
            Recent::Freed(block) => Some(block),
            _ => None,
        }
    }
}

//! PyTorch's allocator with the setting that it had when it was recorded.

use anyhow::Result;
use millpond::Stack;
use millpond::replay::Program;

/// Expandable segments change all that PyTorch does, and a snapshot shows them: in what is mapped, and in its segments. Its other settings
/// are not followed.
pub(crate) fn as_recorded(program: &Program) -> Result<Stack> {
    Ok(name(program.summary().is_expandable).parse()?)
}

pub(super) fn name(is_expandable: bool) -> &'static str {
    if is_expandable { "torch:expandable_segments=true" } else { "torch" }
}

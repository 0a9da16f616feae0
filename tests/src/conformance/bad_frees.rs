//! What is no block of the resource is refused, and nothing changes.

use millpond::driver::DevicePtr;
use millpond::{FreeError, Stream};

use super::Subject;
use super::lab::{Lab, Wrong};

/// What is wrong with a free.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Foreign,
    Interior,
    WrongSize,
}

/// Zero bytes is null, and null can be freed.
///
/// # Errors
/// What was wrong.
pub fn empty_blocks(subject: &Subject) -> Result<(), Wrong> {
    let mut lab = Lab::new(subject, 0);
    lab.allocate(0, 0)?.map_err(|error| format!("zero bytes: {error}"))?;
    for bytes in [0, 1, usize::MAX] {
        lab.resource()
            .deallocate(DevicePtr::NULL, bytes, Stream::LEGACY)
            .map_err(|error| format!("null with size {bytes}: {error}"))?;
    }
    lab.check_books()?;
    lab.close(subject.promises.returns_upstream)
}

/// Foreign, interior, already free, wrong size: refused with the right error, and the block stays.
///
/// # Errors
/// What was wrong.
pub fn bad_frees(subject: &Subject) -> Result<(), Wrong> {
    let mut lab = Lab::new(subject, 0);
    for bytes in [1000, 70_000, 5 << 20].map(|bytes| subject.promises.at_most(bytes)) {
        let ptr = lab.allocate(bytes, 2)?.map_err(|error| error.to_string())?;
        let stream = lab.stream(2);
        let tries = [
            (DevicePtr(0x10), bytes, Fault::Foreign),
            (DevicePtr(u64::MAX), bytes, Fault::Foreign),
            (DevicePtr(ptr.0 ^ (1 << 62)), bytes, Fault::Foreign),
            (ptr.offset(256), bytes - 256, Fault::Interior),
            (ptr.offset(1), bytes, Fault::Interior),
            (ptr, bytes + (1 << 20), Fault::WrongSize),
            (ptr, 0, Fault::WrongSize),
        ];
        for (bad, size, fault) in tries {
            let answer = lab.resource().deallocate(bad, size, stream);
            let right = match (fault, &answer) {
                (Fault::Foreign, Err(FreeError::Foreign { .. })) => true,
                (Fault::Interior, Err(FreeError::Interior { block, .. })) => *block == ptr,
                (Fault::WrongSize, Err(FreeError::WrongSize { allocated_bytes, .. })) => {
                    *allocated_bytes == bytes
                }
                _ => false,
            };
            if !right {
                return Err(format!("a free of {size} bytes at {bad} ({fault:?}) gave {answer:?}"));
            }
            lab.check_books()?;
        }
        let block = lab.block(0).expect("one is held");
        lab.free(&block, 2)?.map_err(|error| format!("a right free was refused: {error}"))?;
        match lab.resource().deallocate(ptr, bytes, stream) {
            Err(FreeError::AlreadyFree { .. } | FreeError::Foreign { .. }) => lab.check_books()?,
            other => return Err(format!("the second free of {ptr} gave {other:?}")),
        }
    }
    lab.close(subject.promises.returns_upstream)
}

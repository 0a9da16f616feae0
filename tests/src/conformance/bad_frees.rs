//! What is no block of the resource is refused, and nothing changes.

use millpond::driver::DevicePtr;
use millpond::{FreeError, Stream};

use super::Subject;
use super::lab::{Lab, Wrong};

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
    for bytes in [1000, 70_000, 5 << 20] {
        let ptr = lab.allocate(bytes, 2)?.map_err(|error| error.to_string())?;
        let stream = lab.stream(2);
        let tries = [
            (DevicePtr(0x10), bytes),
            (DevicePtr(u64::MAX), bytes),
            (DevicePtr(ptr.0 ^ (1 << 62)), bytes),
            (ptr.offset(256), bytes - 256),
            (ptr.offset(1), bytes),
            (ptr, bytes + (1 << 20)),
            (ptr, 0),
        ];
        for (bad, size) in tries {
            match lab.resource().deallocate(bad, size, stream) {
                Ok(()) => return Err(format!("a free of {size} bytes at {bad} was taken")),
                Err(FreeError::Driver(error)) => {
                    return Err(format!(
                        "a free of {size} bytes at {bad} reached the driver: {error}"
                    ));
                }
                Err(FreeError::WrongSize { .. }) if bad != ptr => {
                    return Err(format!("{bad} is no block, so its size cannot be wrong"));
                }
                Err(_) => lab.check_books()?,
            }
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

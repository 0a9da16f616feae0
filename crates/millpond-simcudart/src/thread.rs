//! What each thread has of its own. Plain cells without destructors where it can be, because programs call the runtime from
//! destructors too, when the thread's storage is on its way out.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use crate::abi::{Dim3, Stream};
use crate::code::Code;

thread_local! {
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    static CONFIGURATIONS: RefCell<Vec<CallConfiguration>> = const { RefCell::new(Vec::new()) };
}

/// What stands between `<<<` and `>>>`: pushed before the arguments are evaluated, popped by the compiler's stub of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallConfiguration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: Stream,
}

/// Notes what a call answered: an error stays until it is asked for, success changes nothing.
pub(crate) fn note(result: Result<(), Code>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(code) => {
            LAST_ERROR.set(code.number());
            code.number()
        }
    }
}

pub(crate) fn last_error() -> c_int {
    LAST_ERROR.get()
}

pub(crate) fn take_last_error() -> c_int {
    LAST_ERROR.replace(0)
}

/// The device that this thread's context is made on if it has none yet.
pub(crate) fn device() -> c_int {
    DEVICE.get()
}

pub(crate) fn choose_device(device: c_int) {
    DEVICE.set(device);
}

pub(crate) fn push_configuration(configuration: CallConfiguration) -> Result<(), Code> {
    CONFIGURATIONS
        .try_with(|pushed| pushed.borrow_mut().push(configuration))
        .map_err(|_| Code::UNKNOWN)
}

pub(crate) fn pop_configuration() -> Result<CallConfiguration, Code> {
    CONFIGURATIONS
        .try_with(|pushed| pushed.borrow_mut().pop())
        .map_err(|_| Code::UNKNOWN)?
        .ok_or(Code::MISSING_CONFIGURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_until_it_is_taken_and_belongs_to_its_thread() {
        assert_eq!(note(Err(Code::INVALID_VALUE)), 1);
        assert_eq!(note(Ok(())), 0);
        std::thread::spawn(|| assert_eq!(last_error(), 0)).join().unwrap();
        assert_eq!((last_error(), take_last_error(), last_error()), (1, 1, 0));
    }

    #[test]
    fn configurations_nest() {
        let of = |x| CallConfiguration {
            grid: Dim3 { x, y: 1, z: 1 },
            block: Dim3 { x: 1, y: 1, z: 1 },
            shared_bytes: 0,
            stream: std::ptr::null_mut(),
        };
        push_configuration(of(1)).unwrap();
        push_configuration(of(2)).unwrap();
        assert_eq!((pop_configuration(), pop_configuration()), (Ok(of(2)), Ok(of(1))));
        assert_eq!(pop_configuration(), Err(Code::MISSING_CONFIGURATION));
    }
}

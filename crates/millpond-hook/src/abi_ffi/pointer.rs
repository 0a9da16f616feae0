//! What is known of an address: of memory that became managed, what would be known of device memory.

use crate::code::Code;
use crate::entry_ffi::entries;
use crate::memory::is_disguised;

/// `CU_POINTER_ATTRIBUTE_HOST_POINTER` and `…_IS_MANAGED`.
const HOST_POINTER: i32 = 4;
const IS_MANAGED: i32 = 8;

entries! {
    fn cuPointerGetAttribute(data: *mut u8, attribute: i32, ptr: u64) {
        let concerns = matches!(attribute, HOST_POINTER | IS_MANAGED) && is_disguised(ptr);
        if concerns && attribute == HOST_POINTER {
            return Code::INVALID_VALUE.0;
        }
        let answer = real(data, attribute, ptr);
        if answer == 0 && concerns {
            // SAFETY: the driver has just written a 0 or 1 there, of whatever size.
            unsafe { *data = 0 };
        }
        answer
    }

    fn cuPointerGetAttributes(count: u32, attributes: *const i32, data: *const *mut u8, ptr: u64) {
        let answer = real(count, attributes, data, ptr);
        if answer != 0 || !is_disguised(ptr) {
            return answer;
        }
        for index in 0..count as usize {
            // SAFETY: the driver has read so many of both, and written where the data points.
            unsafe {
                let to = *data.add(index);
                match *attributes.add(index) {
                    IS_MANAGED => *to = 0,
                    HOST_POINTER => to.cast::<u64>().write_unaligned(0),
                    _ => {}
                }
            }
        }
        answer
    }
}

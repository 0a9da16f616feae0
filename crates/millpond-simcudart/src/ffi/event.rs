//! Events.

use std::ffi::c_uint;

use crate::abi::{Event, Stream};

entry_points! {
    context fn cudaEventCreate(driver, out: *mut Event) { driver.cuEventCreate(out, 0) }
    context fn cudaEventCreateWithFlags(driver, out: *mut Event, flags: c_uint) { driver.cuEventCreate(out, flags) }
    context fn cudaEventDestroy(driver, event: Event) { driver.cuEventDestroy(event) }
    context fn cudaEventRecord | cudaEventRecord_ptsz(driver, event: Event, stream: Stream) {
        driver.cuEventRecord(event, stream)
    }
    context fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz(
        driver, event: Event, stream: Stream, flags: c_uint,
    ) { driver.cuEventRecordWithFlags(event, stream, flags) }
    context fn cudaEventQuery(driver, event: Event) { driver.cuEventQuery(event) }
    context fn cudaEventSynchronize(driver, event: Event) { driver.cuEventSynchronize(event) }
    context fn cudaEventElapsedTime(driver, out: *mut f32, start: Event, end: Event) {
        driver.cuEventElapsedTime(out, start, end)
    }
    context fn cudaEventElapsedTime_v2(driver, out: *mut f32, start: Event, end: Event) {
        driver.cuEventElapsedTime(out, start, end)
    }
}

//! A device's primary context: the one that everything in the process which does not insist on its own shares.

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::device::Device;
use super::library::Cuda;
use super::status::{Status, call};

/// A hold on a device's primary context, let go when dropped.
#[derive(Debug)]
pub(crate) struct Context {
    cuda: &'static Cuda,
    device: CUdevice,
    /// A `CUcontext`, as a number since threads may share it: the driver allows any of them to call.
    raw: usize,
}

impl Context {
    /// Takes hold of it, making it if nobody has it yet.
    pub(crate) fn retain(device: &Device) -> Result<Context, Status> {
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device is one that the driver has named; the context goes into a variable that is there.
        unsafe { call!(device.cuda, cuDevicePrimaryCtxRetain(&mut raw, device.raw)) }?;
        Ok(Context { cuda: device.cuda, device: device.raw, raw: raw as usize })
    }

    pub(crate) fn cuda(&self) -> &'static Cuda {
        self.cuda
    }

    /// The handle, for other libraries to compare theirs with.
    pub(crate) fn raw(&self) -> CUcontext {
        self.raw as CUcontext
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// Makes calls with this context current. The thread's own is current again afterwards, so that nobody else in the process
    /// notices; where it is this one already, as in most programs, asking is all it takes.
    pub(super) fn with<T>(
        &self,
        calls: impl FnOnce(&'static Cuda) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let cuda = self.cuda;
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: the context goes into a variable that is there.
        unsafe { call!(cuda, cuCtxGetCurrent(&mut current)) }?;
        if current == self.raw() {
            return calls(cuda);
        }
        // SAFETY: this value holds the context, so it is alive.
        unsafe { call!(cuda, cuCtxPushCurrent(self.raw())) }?;
        let answer = calls(cuda);
        // SAFETY: what is popped is what was pushed: `calls` are calls of the driver which leave the stack as it is.
        let popped = unsafe { call!(cuda, cuCtxPopCurrent(&mut current)) };
        // An error of the calls says more; a stack that lost its top was somebody else's doing and harms nothing here.
        let _ = popped;
        answer
    }

    /// Waits for everything queued in this context.
    pub(crate) fn synchronize(&self) -> Result<(), Status> {
        // SAFETY: takes nothing.
        self.with(|cuda| unsafe { call!(cuda, cuCtxSynchronize()) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, by `retain`. At the end of the process the driver may be gone already and says so.
        let released = unsafe { call!(self.cuda, cuDevicePrimaryCtxRelease(self.device)) };
        let _ = released;
    }
}

//! A device whose streams the program has from elsewhere, such as CUDA's runtime.

use std::sync::Arc;

use millpond::device::DeviceName;
use millpond::driver::Driver;
use millpond_cuda::CudaGpu;
use millpond_sim::{Profile, SimGpu};

use crate::status::{Failure, millpond_status};

/// The device of a name.
pub(crate) fn open_device(name: &DeviceName) -> Result<Arc<dyn Driver>, Failure> {
    match name {
        DeviceName::Simulated(profile) => {
            let profile = Profile::named(profile).map_err(Failure::invalid)?;
            Ok(Arc::new(SimGpu::new(profile)))
        }
        DeviceName::Cuda(number) => {
            // SAFETY: the header says of every stream that it must be one of the device, and alive.
            let gpu = unsafe { CudaGpu::open_for_foreign_streams(*number) };
            let gpu = gpu.map_err(|error| {
                Failure::new(millpond_status::Driver, format!("{name}: {error}"))
            })?;
            Ok(Arc::new(gpu))
        }
    }
}

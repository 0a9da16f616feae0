//! From the name of a device to the device.

use std::sync::Arc;

use anyhow::{Context, Result};
use millpond::device::{DEFAULT_DEVICE, DeviceName};
use millpond::driver::Driver;
use millpond_cuda::CudaGpu;
use millpond_sim::{Profile, SimGpu};

/// The variable that names the device to use when no option does.
pub(crate) const DEVICE_VARIABLE: &str = "MILLPOND_DEVICE";

/// The device that is used when none is named.
pub(crate) fn default_name() -> String {
    std::env::var(DEVICE_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| DEFAULT_DEVICE.to_owned())
}

/// The device that an option names, or the usual one, by its whole name: of a simulated one the profile alone is enough.
pub(crate) fn chosen(option: Option<&str>) -> String {
    whole_name(&option.map_or_else(default_name, str::to_owned))
}

/// A profile's name alone is that of a simulated device.
pub(crate) fn whole_name(name: &str) -> String {
    match !name.contains(':') && Profile::named(name).is_ok() {
        true => format!("sim:{name}"),
        false => name.to_owned(),
    }
}

/// Where something runs.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    /// On simulated devices, one for each who asks.
    Simulated(Box<Profile>),
    /// On a real one, which there is once.
    Real(Arc<CudaGpu>),
}

impl Site {
    /// The device of a name.
    pub(crate) fn named(name: &str) -> Result<Site> {
        match name.parse()? {
            DeviceName::Simulated(profile) => {
                Ok(Site::Simulated(Box::new(Profile::named(&profile)?)))
            }
            DeviceName::Cuda(number) => {
                let gpu = CudaGpu::open(number).with_context(|| name.to_owned())?;
                Ok(Site::Real(Arc::new(gpu)))
            }
        }
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Site::Real(_))
    }

    /// A driver for one allocator: of a device that it has for itself, or of the real one.
    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        match self {
            Site::Simulated(profile) => Arc::new(SimGpu::new(Profile::clone(profile))),
            Site::Real(gpu) => gpu.clone(),
        }
    }
}

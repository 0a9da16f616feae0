//! `millpond devices`: what there is to run on.

use anyhow::{Context, Result};
use bytesize::ByteSize;
use millpond::device::DeviceName;
use millpond::driver::DeviceKind;
use millpond_cuda::{CudaDevice, OpenError};
use millpond_sim::{Figure, Profile};
use serde::Serialize;

use crate::cli::DevicesOptions;
use crate::device;
use crate::output::{print, print_line, print_table, table};

#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    device: String,
    kind: DeviceKind,
    title: String,
    default: bool,
    capacity_bytes: u64,
    granularity_bytes: u64,
    /// 0 where a real device's driver does not tell.
    memory_bytes_per_second: f64,
    #[serde(flatten)]
    link: Option<Link>,
    copy_engines: u32,
    multiprocessors: u32,
    #[serde(flatten)]
    driver: Option<RealDriver>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<SourcedFigure>,
}

/// What a profile has of the link; of a real device nobody tells.
#[derive(Serialize)]
struct Link {
    link_to_device_bytes_per_second: f64,
    link_to_host_bytes_per_second: f64,
    link_both_bytes_per_second: f64,
}

/// What only a real device has.
#[derive(Serialize)]
struct RealDriver {
    /// As it counts: 12090 is 12.9.
    driver_version: u32,
    compute_capability: String,
    virtual_memory: bool,
    memory_pools: bool,
    concurrent_managed_access: bool,
    exportable_memory: bool,
    rdma_memory: bool,
}

#[derive(Serialize)]
struct SourcedFigure {
    key: String,
    value: String,
    source: String,
}

impl Device {
    fn new(profile: &Profile, default: &str) -> Device {
        let device = format!("sim:{}", profile.name);
        Device {
            default: device == default,
            device,
            kind: DeviceKind::Simulated,
            title: profile.title.clone(),
            capacity_bytes: profile.capacity_bytes as u64,
            granularity_bytes: profile.granularity_bytes as u64,
            memory_bytes_per_second: profile.bandwidth,
            link: Some(Link {
                link_to_device_bytes_per_second: profile.link_to_device,
                link_to_host_bytes_per_second: profile.link_to_host,
                link_both_bytes_per_second: profile.link_both,
            }),
            copy_engines: profile.copy_engines as u32,
            multiprocessors: profile.multiprocessors as u32,
            driver: None,
            figures: Vec::new(),
        }
    }

    fn real(device: &CudaDevice, default: &str) -> Device {
        let info = &device.info;
        let (major, minor) = device.compute_capability;
        Device {
            default: info.name == default,
            device: info.name.clone(),
            kind: info.kind,
            title: device.title.clone(),
            capacity_bytes: info.capacity_bytes as u64,
            granularity_bytes: info.granularity_bytes as u64,
            memory_bytes_per_second: device.memory_bytes_per_second,
            link: None,
            copy_engines: info.copy_engines,
            multiprocessors: info.multiprocessors,
            driver: Some(RealDriver {
                driver_version: device.driver_version,
                compute_capability: format!("{major}.{minor}"),
                virtual_memory: info.virtual_memory,
                memory_pools: info.memory_pools,
                concurrent_managed_access: info.concurrent_managed_access,
                exportable_memory: device.exportable_memory,
                rdma_memory: device.rdma_memory,
            }),
            figures: Vec::new(),
        }
    }
}

/// Lists all devices, or all figures of one.
pub(crate) fn run(options: &DevicesOptions) -> Result<()> {
    let default = device::default_name();
    match &options.device {
        Some(name) => match device::whole_name(name).parse()? {
            DeviceName::Simulated(profile) => {
                describe(&Profile::named(&profile)?, &default, options)
            }
            DeviceName::Cuda(number) => describe_real(&real(number)?, &default, options),
        },
        None => list(&default, options),
    }
}

/// The real device of a number.
fn real(number: u32) -> Result<CudaDevice> {
    let mut devices = CudaDevice::all().with_context(|| format!("cuda:{number}"))?;
    let count = devices.len() as u32;
    if number >= count {
        return Err(OpenError::NoSuchDevice { number, count }.into());
    }
    Ok(devices.swap_remove(number as usize))
}

fn list(default: &str, options: &DevicesOptions) -> Result<()> {
    let mut profiles = Profile::names().map(Profile::named).collect::<Result<Vec<_>, _>>()?;
    // A device from a file is listed when the environment makes it the default.
    if let DeviceName::Simulated(name) = default.parse()? {
        let chosen = Profile::named(&name)?;
        if !profiles.iter().any(|profile| profile.name == chosen.name) {
            profiles.push(chosen);
        }
    }
    let (reals, why_none) = match CudaDevice::all() {
        Ok(devices) => (devices, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let devices: Vec<Device> = reals
        .iter()
        .map(|device| Device::real(device, default))
        .chain(profiles.iter().map(|profile| Device::new(profile, default)))
        .collect();
    let report = Report { devices };
    if options.json.write(&report)? {
        return Ok(());
    }
    let mut rows =
        table(["DEVICE", "KIND", "MEMORY", "PAGE", "GB/s", "LINK GB/s", "SMs", "WHAT IT IS"]);
    for device in &report.devices {
        rows.add_row([
            format!("{}{}", device.device, if device.default { " *" } else { "" }),
            device.kind.to_string(),
            size(device.capacity_bytes),
            size(device.granularity_bytes),
            gigabytes(device.memory_bytes_per_second),
            device.link.as_ref().map_or_else(dash, |link| {
                format!(
                    "{}/{}",
                    gigabytes(link.link_to_device_bytes_per_second),
                    gigabytes(link.link_to_host_bytes_per_second)
                )
            }),
            device.multiprocessors.to_string(),
            device.title.clone(),
        ]);
    }
    print_table(&rows)?;
    print(
        "\n* used when no device is named. LINK is to the device / to the host. Times on simulated devices are modelled;\n  \
         `millpond devices --device NAME` shows every figure with its source.\n",
    )?;
    match why_none {
        // That there is no GPU is usual; that there is one which cannot be used is worth a line.
        None | Some(OpenError::NoDriver) => Ok(()),
        Some(why) => print_line(&format!("No real device: {why}")),
    }
}

fn describe_real(device: &CudaDevice, default: &str, options: &DevicesOptions) -> Result<()> {
    let report = Report { devices: vec![Device::real(device, default)] };
    if options.json.write(&report)? {
        return Ok(());
    }
    let info = &device.info;
    let (major, minor) = device.compute_capability;
    let version = device.driver_version;
    print_line(&format!("{}, {}, as its driver describes it", info.name, device.title))?;
    print("\n")?;
    let yes = |has: bool| if has { "yes" } else { "no" }.to_owned();
    let mut rows = table(["FIGURE", "VALUE"]);
    for (figure, value) in [
        ("memory", size(info.capacity_bytes as u64)),
        ("page", size(info.granularity_bytes as u64)),
        ("memory bandwidth, GB/s", gigabytes(device.memory_bytes_per_second)),
        ("multiprocessors", info.multiprocessors.to_string()),
        ("copy engines", info.copy_engines.to_string()),
        ("compute capability", format!("{major}.{minor}")),
        ("CUDA of the driver", format!("{}.{}", version / 1000, version % 1000 / 10)),
        ("virtual memory management", yes(info.virtual_memory)),
        ("stream-ordered pools", yes(info.memory_pools)),
        ("managed memory used by both sides at once", yes(info.concurrent_managed_access)),
        ("memory for other processes", yes(device.exportable_memory)),
        ("memory for network cards", yes(device.rdma_memory)),
    ] {
        rows.add_row([figure.to_owned(), value]);
    }
    print_table(&rows)
}

fn describe(profile: &Profile, default: &str, options: &DevicesOptions) -> Result<()> {
    let mut device = Device::new(profile, default);
    device.figures = profile
        .figures()
        .iter()
        .map(|Figure { key, value, source }| SourcedFigure {
            key: key.clone(),
            value: value.clone(),
            source: source.clone(),
        })
        .collect();
    let report = Report { devices: vec![device] };
    if options.json.write(&report)? {
        return Ok(());
    }
    print_line(&format!("{}, simulated; times are in microseconds", profile.title))?;
    print("\n")?;
    let mut rows = table(["FIGURE", "VALUE", "SOURCE"]);
    for figure in profile.figures() {
        rows.add_row([&figure.key, &figure.value, &figure.source]);
    }
    print_table(&rows)
}

fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string().replace(".0 ", " ")
}

fn dash() -> String {
    "–".to_owned()
}

fn gigabytes(bytes_per_second: f64) -> String {
    if bytes_per_second == 0.0 {
        return dash();
    }
    format!("{:.1}", bytes_per_second / 1e9).trim_end_matches(".0").to_owned()
}

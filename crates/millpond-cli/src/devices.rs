//! `millpond devices`: what there is to run on.

use anyhow::Result;
use bytesize::ByteSize;
use millpond::driver::DeviceKind;
use millpond_sim::{Figure, Profile};
use serde::Serialize;

use crate::cli::DevicesOptions;
use crate::device;
use crate::output::{print, print_table, table};

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
    memory_bytes_per_second: f64,
    link_to_device_bytes_per_second: f64,
    link_to_host_bytes_per_second: f64,
    link_both_bytes_per_second: f64,
    copy_engines: u32,
    multiprocessors: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<SourcedFigure>,
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
            link_to_device_bytes_per_second: profile.link_to_device,
            link_to_host_bytes_per_second: profile.link_to_host,
            link_both_bytes_per_second: profile.link_both,
            copy_engines: profile.copy_engines as u32,
            multiprocessors: profile.multiprocessors as u32,
            figures: Vec::new(),
        }
    }
}

/// Lists all devices, or all figures of one.
pub(crate) fn run(options: &DevicesOptions) -> Result<()> {
    let default = device::default_name();
    match &options.device {
        Some(name) => describe(&device::profile(name)?, &default, options),
        None => list(&default, options),
    }
}

fn list(default: &str, options: &DevicesOptions) -> Result<()> {
    let mut profiles = Profile::names().map(Profile::named).collect::<Result<Vec<_>, _>>()?;
    // A device from a file is listed when the environment makes it the default.
    let chosen = device::profile(default)?;
    if !profiles.iter().any(|profile| profile.name == chosen.name) {
        profiles.push(chosen);
    }
    let devices: Vec<Device> =
        profiles.iter().map(|profile| Device::new(profile, default)).collect();
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
            format!(
                "{}/{}",
                gigabytes(device.link_to_device_bytes_per_second),
                gigabytes(device.link_to_host_bytes_per_second)
            ),
            device.multiprocessors.to_string(),
            device.title.clone(),
        ]);
    }
    print_table(&rows)?;
    print(
        "\n* used when no device is named. LINK is to the device / to the host. Times on simulated devices are modelled;\n  \
         `millpond devices --device NAME` shows every figure with its source.\n",
    )
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
    print(&format!("{}, simulated; times are in microseconds\n\n", profile.title))?;
    let mut rows = table(["FIGURE", "VALUE", "SOURCE"]);
    for figure in profile.figures() {
        rows.add_row([&figure.key, &figure.value, &figure.source]);
    }
    print_table(&rows)
}

fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string().replace(".0 ", " ")
}

fn gigabytes(bytes_per_second: f64) -> String {
    format!("{:.1}", bytes_per_second / 1e9).trim_end_matches(".0").to_owned()
}

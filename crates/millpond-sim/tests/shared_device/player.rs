//! A process that has joined a device and does what it is told, line by line.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::time::Duration;

use millpond::driver::{
    Access, DevicePtr, Driver, DriverError, EventTiming, Kernel, PhysicalHandle,
    PhysicalProperties, Stream, Touch,
};
use millpond_sim::{ExportToken, Profile, SharedName, Sharing, SimClock, SimGpu, SimOptions};

use crate::fork_process::{a_forked_child_that_sleeps, in_a_forked_child};

/// What a player reads its part from.
pub(crate) const PART: &str = "MILLPOND_TEST_PART";
/// What every answer begins with; other lines are the test harness's.
pub(crate) const ANSWER: &str = "> ";

/// Joins as the environment says, and answers every line of standard input with one line.
pub(crate) fn play() {
    let Ok(part) = std::env::var(PART) else { return };
    let part: HashMap<&str, &str> =
        part.split(',').filter_map(|pair| pair.split_once('=')).collect();
    let text = |key: &str| part.get(key).copied();
    let number = |key: &str| text(key).and_then(|text| text.parse::<u64>().ok());
    let profile = match text("link") {
        Some(rate) => {
            let to = format!("base=\"v100-16g\"\n[link]\nto_device=\"{rate}\"\nto_host=\"{rate}\"");
            Profile::parse("slow-link", &to).unwrap()
        }
        None => Profile::named(text("profile").unwrap_or("v100-16g")).unwrap(),
    };
    let profile = profile.with_capacity(number("capacity").unwrap()).unwrap();
    let clock = SimClock::Real { speed: number("speed").unwrap_or(1_000_000) as u32 };
    let name = SharedName::new(text("name").unwrap()).unwrap();
    let mut sharing = Sharing::new(name, text("broker").unwrap());
    sharing.idle = Duration::from_millis(number("idle_ms").unwrap_or(2000));
    sharing.device = number("device").unwrap_or(0) as u32;
    let options = SimOptions { clock, ..SimOptions::default() };
    let gpu = match SimGpu::join(profile, options, &sharing) {
        Ok(gpu) => gpu,
        Err(error) => return answer(&format!("not joined: {error}")),
    };
    answer("joined");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match act(&gpu, &line) {
            Ok(said) => answer(&said),
            Err(error) => answer(&format!("error {error}")),
        }
    }
}

fn answer(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{ANSWER}{line}").and_then(|()| out.flush()).unwrap();
}

fn act(gpu: &SimGpu, line: &str) -> Result<String, DriverError> {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or("");
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let at = |index: usize| numbers[index];
    let ptr = |index: usize| DevicePtr(numbers[index]);
    let done = "done".to_owned();
    Ok(match verb {
        "broker" => gpu.joined().unwrap().broker_pid.to_string(),
        "now" => gpu.now().as_nanos().to_string(),
        "free-bytes" => gpu.memory_info()?.free_bytes.to_string(),
        "alloc" => gpu.alloc(at(0) as usize)?.0.to_string(),
        "free" => gpu.free(ptr(0)).map(|()| done)?,
        "write" => {
            gpu.copy_to_device(ptr(0), &pattern(at(1), at(2)), Stream::LEGACY)?;
            gpu.synchronize_device().map(|()| done)?
        }
        "check" => {
            let mut bytes = vec![0; at(2) as usize];
            gpu.copy_to_host(&mut bytes, ptr(0), Stream::LEGACY)?;
            let good = bytes == pattern(at(1), at(2));
            if good { "same" } else { "different" }.to_owned()
        }
        "check-zero" => {
            let mut bytes = vec![1; at(1) as usize];
            gpu.copy_to_host(&mut bytes, ptr(0), Stream::LEGACY)?;
            if bytes.iter().all(|byte| *byte == 0) { "zero" } else { "not zero" }.to_owned()
        }
        "managed" => gpu.alloc_managed(at(0) as usize)?.0.to_string(),
        "touch" => {
            let touches = vec![Touch::write(ptr(0), at(1) as usize)];
            let kernel = Kernel::Work { duration: Duration::ZERO, touches };
            gpu.launch(&kernel, Stream::LEGACY)?;
            gpu.synchronize_device().map(|()| done)?
        }
        "resident" => gpu.resident_bytes(ptr(0), at(1) as usize).to_string(),
        "create" => {
            let properties = PhysicalProperties { exportable: true, ..Default::default() };
            gpu.create(at(0) as usize, properties)?.0.to_string()
        }
        "export" => gpu.export(PhysicalHandle(at(0)))?.0.to_string(),
        "import" => gpu.import(ExportToken(at(0)))?.0.to_string(),
        "release" => gpu.release(PhysicalHandle(at(0))).map(|()| done)?,
        "map" => {
            let start = gpu.reserve(at(1) as usize, 0)?;
            gpu.map(start, at(1) as usize, PhysicalHandle(at(0)))?;
            gpu.set_access(start, at(1) as usize, Access::ReadWrite)?;
            start.0.to_string()
        }
        "unmap" => gpu.unmap(ptr(0), at(1) as usize).map(|()| done)?,
        "copies" => copies(gpu, at(0), at(1), at(2) as usize)?,
        "wait" => {
            let duration = Duration::from_nanos(at(0));
            gpu.launch(&Kernel::Work { duration, touches: Vec::new() }, Stream::LEGACY)?;
            gpu.synchronize_device().map(|()| done)?
        }
        "storm" => storm(gpu, at(0)),
        "reset" => {
            gpu.reset();
            done
        }
        "stray" => {
            gpu.launch(
                &Kernel::Fill { dst: DevicePtr(1 << 50), value: 0, count: 1 },
                Stream::LEGACY,
            )?;
            gpu.synchronize_device().map(|()| done)?
        }
        "fork-a-sleeper" => a_forked_child_that_sleeps().to_string(),
        "fork" => {
            let in_child = in_a_forked_child(|| match (gpu.alloc(4096), gpu.held().plain_bytes) {
                (Err(error), 0) => error.to_string(),
                other => format!("{other:?}"),
            });
            in_child.replace('\n', " ")
        }
        _ => panic!("'{verb}' is nothing to do"),
    })
}

/// Bytes that only this seed gives.
fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| rng.u8(..)).collect()
}

/// Copies to the device, `count` times, beginning at a time of the device's clock: how long they took on the device.
fn copies(gpu: &SimGpu, start_ns: u64, count: u64, bytes: usize) -> Result<String, DriverError> {
    let (host, device) = (gpu.alloc_pinned(bytes)?, gpu.alloc(bytes)?);
    let (start, end) =
        (gpu.create_event(EventTiming::Enabled)?, gpu.create_event(EventTiming::Enabled)?);
    let Some(ahead) =
        start_ns.checked_sub(gpu.now().as_nanos() as u64).filter(|ns| *ns > 1_000_000)
    else {
        return Ok("late".to_owned());
    };
    // A kernel that ends at about the time holds the copies back; work begins at its own time, not when the host wakes up.
    let hold = Kernel::Work { duration: Duration::from_nanos(ahead), touches: Vec::new() };
    gpu.launch(&hold, Stream::LEGACY)?;
    gpu.record_event(start, Stream::LEGACY)?;
    for _ in 0..count {
        gpu.copy(device, host, bytes, Stream::LEGACY)?;
    }
    gpu.record_event(end, Stream::LEGACY)?;
    gpu.synchronize_device()?;
    let took = gpu.elapsed(start, end)?;
    gpu.free(device)?;
    Ok(took.as_nanos().to_string())
}

/// Calls of every kind that a board serves, until the process dies.
fn storm(gpu: &SimGpu, seed: u64) -> String {
    answer("storm begins");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut blocks = Vec::new();
    let managed = gpu.alloc_managed(8 << 20).unwrap();
    loop {
        let bytes = rng.usize(1..6 << 20);
        match rng.u32(0..6) {
            0 | 1 => blocks.extend(gpu.alloc(bytes)),
            2 if !blocks.is_empty() => {
                let _ = gpu.free(blocks.swap_remove(rng.usize(0..blocks.len())));
            }
            3 => {
                if let Some(block) = blocks.last() {
                    let _ = gpu.copy_to_device(*block, &[0xAB], Stream::LEGACY);
                }
            }
            4 => {
                let touches = vec![Touch::write(managed, 8 << 20)];
                let _ =
                    gpu.launch(&Kernel::Work { duration: Duration::ZERO, touches }, Stream::LEGACY);
                let _ = gpu.synchronize_device();
            }
            _ => {
                let properties = PhysicalProperties { exportable: true, ..Default::default() };
                if let Ok(handle) = gpu.create(2 << 20, properties) {
                    let imported = gpu.export(handle).and_then(|token| gpu.import(token));
                    let _ = gpu.release(handle);
                    // Every other import is left for the end.
                    if rng.bool()
                        && let Ok(imported) = imported
                    {
                        let _ = gpu.release(imported);
                    }
                }
            }
        }
    }
}

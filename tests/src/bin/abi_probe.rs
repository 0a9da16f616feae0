//! Asks whatever libcuda is there for one thing, and prints the answer.

use std::ffi::CStr;

use millpond_tests::abi_call::{Library, status_of};

/// `CUdevice_attribute`.
const MAJOR: u64 = 75;
const MINOR: u64 = 76;
const VIRTUAL_MEMORY: u64 = 102;
const POOLS: u64 = 115;

fn main() {
    let library = Library::open();
    match std::env::args().nth(1).as_deref() {
        Some("initialize") => println!("cuInit: {}", library.call("cuInit", &[0])),
        Some("devices") => devices(&library),
        Some("names") => names(&library),
        Some("allocations") => allocations(&library),
        Some("fork") => fork(&library),
        Some("kernel") => kernel(&library),
        Some("scale") => scale(&library),
        other => panic!("what of {other:?}?"),
    }
}

fn begin(library: &Library) {
    assert_eq!(library.call("cuInit", &[0]), 0);
    let context = library.answer("cuDevicePrimaryCtxRetain", |out| vec![out, 0]);
    assert_eq!(library.call("cuCtxSetCurrent", &[context]), 0);
}

fn devices(library: &Library) {
    println!("driver {}", library.answer("cuDriverGetVersion", |out| vec![out]));
    assert_eq!(library.call("cuInit", &[0]), 0);
    for device in 0..library.answer("cuDeviceGetCount", |out| vec![out]) {
        let of =
            |attribute| library.answer("cuDeviceGetAttribute", |out| vec![out, attribute, device]);
        let bytes = library.answer("cuDeviceTotalMem_v2", |out| vec![out, device]);
        print!("{bytes} bytes, capability {}.{}", of(MAJOR), of(MINOR));
        if of(VIRTUAL_MEMORY) == 0 && of(POOLS) == 0 {
            print!(", without virtual memory, pools");
        }
        println!();
    }
}

fn names(library: &Library) {
    for (name, version) in [("cuMemAllocAsync", 11020), ("cuStreamGetId", 12000)] {
        let text = format!("{name}\0");
        let mut function = 0_u64;
        let arguments = [text.as_ptr() as u64, (&raw mut function) as u64, version, 0];
        let status = library.call("cuGetProcAddress", &arguments);
        let found = if status == 0 && function != 0 { "found" } else { "refused" };
        println!("{name}@{version} {found}");
    }
}

fn allocations(library: &Library) {
    begin(library);
    let mut memory = 0_u64;
    let allocate =
        |memory: &mut u64| library.call("cuMemAlloc_v2", &[std::ptr::from_mut(memory) as u64, 256]);
    let statuses = [(); 3].map(|()| allocate(&mut memory).to_string());
    println!("{}", statuses.join(" "));
}

fn fork(library: &Library) {
    begin(library);
    let mut free = [0_u64; 2];
    let out = free.as_mut_ptr() as u64;
    let ask = || library.call("cuMemGetInfo_v2", &[out, out + 8]);
    println!("child: {}", status_of(ask));
    println!("parent: {}", ask());
}

/// How long a kernel takes that is none of the stand-in's own, as events tell.
fn kernel(library: &Library) {
    const PTX: &CStr = c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry stranger(.param .u64 where)\n{\nret;\n}\n";
    begin(library);
    let memory = library.answer("cuMemAlloc_v2", |out| vec![out, 256]);
    let module = library.answer("cuModuleLoadData", |out| vec![out, PTX.as_ptr() as u64]);
    let name = c"stranger".as_ptr() as u64;
    let function = library.answer("cuModuleGetFunction", |out| vec![out, module, name]);
    let events = [(); 2].map(|()| library.answer("cuEventCreate", |out| vec![out, 0]));
    let record = |event: u64| assert_eq!(library.call("cuEventRecord", &[event, 0]), 0);
    record(events[0]);
    let parameters = [&raw const memory as u64];
    let launch = [function, 1, 1, 1, 32, 1, 1, 0, 0, parameters.as_ptr() as u64, 0];
    assert_eq!(library.call("cuLaunchKernel", &launch), 0);
    record(events[1]);
    assert_eq!(library.call("cuEventSynchronize", &[events[1]]), 0);
    let mut ms = 0_f32;
    let out = (&raw mut ms) as u64;
    assert_eq!(library.call("cuEventElapsedTime", &[out, events[0], events[1]]), 0);
    println!("{ms:.0} ms");
}

/// 100,000 allocations; then 40,960 handles of 2 MiB, mapped twice each.
fn scale(library: &Library) {
    const PAGE: u64 = 2 << 20;
    begin(library);
    let allocate = |bytes| library.answer("cuMemAlloc_v2", |out| vec![out, bytes]);
    let blocks: Vec<u64> = (0..100_000).map(|number| allocate(256 + number % 7 * 256)).collect();
    for block in blocks {
        assert_eq!(library.call("cuMemFree_v2", &[block]), 0);
    }
    // CUmemAllocationProp: pinned memory of device 0; CUmemAccessDesc: device 0 reads and writes.
    let properties: [i32; 8] = [1, 0, 1, 0, 0, 0, 0, 0];
    let access: [i32; 3] = [1, 0, 3];
    let pages = 40_960;
    let addresses =
        library.answer("cuMemAddressReserve", |out| vec![out, 2 * pages * PAGE, 0, 0, 0]);
    for page in 0..pages {
        let create = |out| vec![out, PAGE, properties.as_ptr() as u64, 0];
        let handle = library.answer("cuMemCreate", create);
        for place in [page, pages + page] {
            let at = addresses + place * PAGE;
            assert_eq!(library.call("cuMemMap", &[at, PAGE, 0, handle, 0]), 0);
        }
    }
    let all = [addresses, 2 * pages * PAGE, access.as_ptr() as u64, 1];
    assert_eq!(library.call("cuMemSetAccess", &all), 0);
    let entries = |path| std::fs::read_dir(path).map_or(0, Iterator::count);
    println!("descriptors: {}", entries("/proc/self/fd"));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    println!("host mappings: {}", maps.lines().count());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap_or(u64::MAX);
    println!("MiB for 80 GiB mapped twice: {}", kib / 1024);
}

//! Physical memory that is exported and imported in one process.

use millpond::driver::{
    Access, Driver, DriverErrorKind, PhysicalHandle, PhysicalProperties, Stream,
};
use millpond_sim::{ExportToken, Profile, SimGpu};

const PAGE: usize = 2 << 20;

fn mapped(gpu: &SimGpu, handle: PhysicalHandle) -> millpond::driver::DevicePtr {
    let ptr = gpu.reserve(PAGE, 0).unwrap();
    gpu.map(ptr, PAGE, handle).unwrap();
    gpu.set_access(ptr, PAGE, Access::ReadWrite).unwrap();
    ptr
}

#[test]
fn an_import_is_the_same_memory_and_lasts_without_the_first_handle() {
    let gpu = SimGpu::new(Profile::named("v100-16g").unwrap());
    let free = gpu.memory_info().unwrap().free_bytes;
    let exportable = PhysicalProperties { exportable: true, ..Default::default() };
    let first = gpu.create(PAGE, exportable).unwrap();
    let token = gpu.export(first).unwrap();
    let second = gpu.import(token).unwrap();
    let (at_first, at_second) = (mapped(&gpu, first), mapped(&gpu, second));
    gpu.copy_to_device(at_first, &[1, 2, 3], Stream::LEGACY).unwrap();
    gpu.unmap(at_first, PAGE).unwrap();
    gpu.release(first).unwrap();
    let mut bytes = [0; 3];
    gpu.copy_to_host(&mut bytes, at_second, Stream::LEGACY).unwrap();
    assert_eq!(bytes, [1, 2, 3]);
    assert_eq!(gpu.memory_info().unwrap().free_bytes, free - PAGE);

    gpu.unmap(at_second, PAGE).unwrap();
    gpu.release(second).unwrap();
    assert_eq!(gpu.memory_info().unwrap().free_bytes, free);
    assert_eq!(gpu.import(token).unwrap_err().kind, DriverErrorKind::InvalidHandle);
    // The next owner of the frames finds them clean, and the detector has forgotten who used them.
    let next = gpu.create(PAGE, exportable).unwrap();
    let at_next = mapped(&gpu, next);
    gpu.copy_to_host(&mut bytes, at_next, Stream::LEGACY).unwrap();
    assert_eq!((bytes, gpu.findings()), ([0; 3], vec![]));
}

#[test]
fn only_what_was_made_for_it_is_exported() {
    let gpu = SimGpu::new(Profile::named("v100-16g").unwrap());
    let plain = gpu.create(PAGE, PhysicalProperties::default()).unwrap();
    assert_eq!(gpu.export(plain).unwrap_err().kind, DriverErrorKind::InvalidValue);
    gpu.release(plain).unwrap();
    assert_eq!(gpu.export(plain).unwrap_err().kind, DriverErrorKind::InvalidHandle);
    assert_eq!(gpu.import(ExportToken(0)).unwrap_err().kind, DriverErrorKind::InvalidHandle);
}

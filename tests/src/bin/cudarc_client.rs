//! A client of the cudarc crate, as its users write them, over whatever libcuda is there.

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry millpond_add(.param .u64 dst, .param .u64 a, .param .u64 b, .param .u64 count) { ret; }
";

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    assert!(context.name()?.contains("simulated"), "{}", context.name()?);
    let stream = context.new_stream()?;

    let numbers: Vec<u32> = (0..10_000).collect();
    let a = stream.clone_htod(&numbers)?;
    let b = stream.clone_htod(&numbers)?;
    let mut sum = stream.alloc_zeros::<u32>(numbers.len())?;
    assert!(stream.clone_dtoh(&sum)?.iter().all(|number| *number == 0));

    let module = context.load_module(Ptx::from_src(PTX))?;
    let add = module.load_function("millpond_add")?;
    let count = numbers.len() as u64;
    let mut launch = stream.launch_builder(&add);
    launch.arg(&mut sum).arg(&a).arg(&b).arg(&count);
    // SAFETY: the kernel has these parameters, and all slices have `count` numbers.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count as u32)) }?;
    let doubled: Vec<u32> = numbers.iter().map(|number| number * 2).collect();
    assert_eq!(stream.clone_dtoh(&sum)?, doubled);

    // Part of one slice into part of another, on a stream that waits for the first.
    let other = context.new_stream()?;
    other.join(&stream)?;
    let mut target = other.alloc_zeros::<u32>(100)?;
    other.memcpy_dtod(&sum.slice(50..100), &mut target.slice_mut(0..50))?;
    assert_eq!(other.clone_dtoh(&target)?[..50], doubled[50..100]);

    let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(timed)?;
    stream.memset_zeros(&mut sum)?;
    let end = stream.record_event(timed)?;
    stream.synchronize()?;
    assert!(start.elapsed_ms(&end)? > 0.0);

    println!("all is well");
    Ok(())
}

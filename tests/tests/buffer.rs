//! Typed buffers against vectors.

use std::sync::Arc;

use millpond::driver::{Call, Driver, StreamFlags};
use millpond::pool::Pool;
use millpond::resource::Direct;
use millpond::{AllocError, BufferError, DeviceBuffer, Resource, Stream, stack};
use millpond_sim::{Fault, Profile, RunOrder, SimGpu, SimOptions};

fn gpu(seed: u64) -> Arc<SimGpu> {
    let profile = Profile::named("p100-16g").unwrap();
    let run_order = RunOrder::Adversarial;
    Arc::new(SimGpu::with_options(profile, SimOptions { seed, run_order, ..SimOptions::default() }))
}

/// Whatever is done to a buffer and to a vector leaves the same in both, in whatever order the device runs its streams.
#[test]
fn a_buffer_is_a_vector() {
    for seed in 0..60 {
        let gpu = gpu(seed);
        let names = ["direct", "pool:enable_defrag=false", "track:report=none/aligned:4KiB/direct"];
        let built = names[seed as usize % 3].parse::<millpond::Stack>().unwrap();
        let resource = built.build(gpu.clone()).unwrap().resource;
        let streams: Vec<Stream> =
            (0..3).map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap()).collect();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pairs: Vec<(DeviceBuffer<u32, _>, Vec<u32>)> = Vec::new();
        for step in 0..150 {
            let random =
                |rng: &mut fastrand::Rng, len| (0..len).map(|_| rng.u32(..)).collect::<Vec<_>>();
            let which = rng.usize(0..pairs.len().max(1));
            let pair = pairs.get_mut(which);
            match (rng.u32(0..12), pair) {
                (0..3, _) | (_, None) => {
                    let len = rng.usize(0..3000);
                    let (elements, stream) =
                        (random(&mut rng, len), *rng.choice(&streams).unwrap());
                    let buffer = match rng.bool() {
                        true => DeviceBuffer::from_slice(resource.clone(), &elements, stream),
                        false => {
                            let mut buffer =
                                DeviceBuffer::zeroed(resource.clone(), len, stream).unwrap();
                            buffer.write(0, &elements).map(|()| buffer)
                        }
                    };
                    pairs.push((buffer.unwrap(), elements));
                }
                (3..6, Some((buffer, vector))) => {
                    let len = rng.usize(0..4000);
                    buffer.resize(len).unwrap();
                    vector.resize(len, 0);
                }
                (6, Some((buffer, _))) => {
                    buffer.shrink_to_fit().unwrap();
                    assert_eq!(buffer.capacity(), buffer.len());
                }
                (7..9, Some((buffer, vector))) => {
                    let start = rng.usize(0..=vector.len());
                    let count = rng.usize(0..=vector.len() - start);
                    let elements = random(&mut rng, count);
                    buffer.write(start, &elements).unwrap();
                    vector[start..start + count].copy_from_slice(&elements);
                }
                (9, Some((buffer, vector))) => {
                    let start = rng.usize(0..=vector.len());
                    let mut read = vec![0; rng.usize(0..=vector.len() - start)];
                    buffer.read(start, &mut read).unwrap();
                    assert_eq!(read, vector[start..start + read.len()], "seed {seed}, step {step}");
                }
                (10, Some((buffer, vector))) => {
                    assert_eq!(buffer.to_vec().unwrap(), *vector, "seed {seed}, step {step}");
                    assert_eq!((buffer.len(), buffer.bytes()), (vector.len(), 4 * vector.len()));
                }
                (_, Some(_)) => drop(pairs.swap_remove(which)),
            }
            let live: usize = pairs.iter().map(|(buffer, _)| 4 * buffer.capacity()).sum();
            assert_eq!(resource.usage().live_bytes, live, "seed {seed}, step {step}");
        }
        for (buffer, vector) in pairs {
            assert_eq!(buffer.to_vec().unwrap(), vector, "seed {seed}");
            buffer.free().unwrap();
        }
        assert_eq!(resource.usage().live_bytes, 0);
        gpu.synchronize_device().unwrap();
        assert!(gpu.findings().is_empty(), "seed {seed}: {:?}", gpu.findings());
    }
}

/// Every driver call that a buffer makes fails once: an error, and the buffer is as it was.
#[test]
fn a_call_that_fails_changes_nothing() {
    let before: Vec<u64> = (0..1000).collect();
    for call in 0..200 {
        let gpu = gpu(call);
        let direct = Direct::new(gpu.clone());
        let mut buffer = DeviceBuffer::from_slice(&direct, &before, Stream::LEGACY).unwrap();
        gpu.set_faults(&[Fault::Nth(call)]);
        let answer = buffer.resize(5000);
        let injected = gpu.injected_faults() > 0;
        gpu.set_faults(&[]);
        assert_eq!(answer.is_err(), injected, "{answer:?}");
        let (len, live) = (buffer.len(), direct.usage().live_bytes);
        assert_eq!(len, if injected { 1000 } else { 5000 });
        assert_eq!(live, 8 * buffer.capacity(), "call {call}: something leaks");
        assert_eq!(buffer.to_vec().unwrap()[..1000], before[..]);
        if !injected {
            return;
        }
    }
    panic!("there are no so many calls");
}

#[test]
fn errors_say_what_is_wrong() {
    let gpu = gpu(0);
    let pool = Pool::new(gpu.clone()).unwrap();
    let mut buffer = DeviceBuffer::from_slice(&pool, &[1.5_f64; 4], Stream::LEGACY).unwrap();
    let outside = buffer.write(3, &[0.0; 2]).unwrap_err();
    assert_eq!(outside, BufferError::OutOfBounds { start: 3, count: 2, len: 4 });
    assert_eq!(
        outside.to_string(),
        "2 elements from number 3 on are not in a buffer of 4: resize it, or copy fewer"
    );
    assert!(buffer.read(usize::MAX, &mut [0.0]).is_err());
    let huge = buffer.resize(usize::MAX).unwrap_err();
    assert!(matches!(huge, BufferError::Alloc(AllocError::TooLarge { .. })), "{huge}");
    let large = buffer.resize(1 << 40).unwrap_err();
    assert!(matches!(&large, BufferError::Alloc(error) if error.is_out_of_memory()), "{large}");
    assert_eq!(buffer.to_vec().unwrap(), [1.5; 4]);
    gpu.set_faults(&[Fault::All(Call::CopyToDevice)]);
    assert!(matches!(buffer.write(0, &[0.0]), Err(BufferError::Driver(_))));
}

#[test]
fn nothing_takes_nothing() {
    let resource = stack::build("direct", gpu(0)).unwrap();
    let mut buffer = DeviceBuffer::<u8, _>::zeroed(&resource, 0, Stream::LEGACY).unwrap();
    assert!(buffer.ptr().is_null() && buffer.is_empty() && buffer.to_vec().unwrap().is_empty());
    buffer.resize(3).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [0; 3]);
    buffer.resize(0).unwrap();
    buffer.shrink_to_fit().unwrap();
    assert!(buffer.ptr().is_null());
    assert_eq!(resource.usage().live_bytes, 0);
}

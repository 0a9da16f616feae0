//! A limit is never exceeded, by however many threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::adaptor::{Budget, Limit};
use millpond::pool::Pool;
use millpond::{AllocError, FreeError, Resource, Stream, stack};

use crate::driver;

const LIMIT_BYTES: usize = 10 << 20;
const THREADS: u64 = 8;

#[test]
fn eight_threads_never_exceed_it() {
    let limit = Limit::new(Pool::new(driver()).unwrap(), Budget::new(LIMIT_BYTES));
    // What users hold: counted up after a block is had and down before it is freed, so it is never more than was live.
    let held = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limit, held, refused) = (limit.clone(), &held, &refused);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                let mut mine = Vec::new();
                for _ in 0..5_000 {
                    if rng.u32(0..5) < 3 {
                        let bytes = rng.usize(1..400_000);
                        match limit.allocate(bytes, Stream::PER_THREAD) {
                            Ok(ptr) => {
                                let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                                assert!(now <= LIMIT_BYTES, "{now} bytes are held");
                                mine.push((ptr, bytes));
                            }
                            Err(AllocError::OverLimit(over)) => {
                                assert!(over.live_bytes <= LIMIT_BYTES);
                                assert!(over.live_bytes + bytes > LIMIT_BYTES);
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    } else if !mine.is_empty() {
                        let (ptr, bytes) = mine.swap_remove(rng.usize(..mine.len()));
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        limit.deallocate(ptr, bytes, Stream::PER_THREAD).unwrap();
                    }
                    assert!(limit.budget().used_bytes() <= LIMIT_BYTES);
                }
                for (ptr, bytes) in mine {
                    held.fetch_sub(bytes, Ordering::SeqCst);
                    limit.deallocate(ptr, bytes, Stream::PER_THREAD).unwrap();
                }
            });
        }
    });
    assert!(refused.into_inner() > 0, "the limit was never reached");
    assert_eq!(limit.budget().used_bytes(), 0);
    assert_eq!(limit.usage().live_bytes, 0);
}

#[test]
fn a_bad_free_gives_nothing_back() {
    let built = "limit:1000/direct".parse::<millpond::Stack>().unwrap().build(driver()).unwrap();
    let budget = &built.handles.budgets[0];
    let block = built.resource.allocate(900, Stream::LEGACY).unwrap();
    let wrong = built.resource.deallocate(block, 800, Stream::LEGACY);
    assert!(matches!(wrong, Err(FreeError::WrongSize { .. })));
    assert_eq!((budget.used_bytes(), budget.left_bytes()), (900, 100));
    assert_eq!(
        built.resource.allocate(usize::MAX, Stream::LEGACY).unwrap_err().to_string(),
        format!(
            "out of memory: {} bytes asked for, 900 of the limit's 1000 are live: free blocks or raise the limit",
            usize::MAX
        )
    );
    built.resource.deallocate(block, 900, Stream::LEGACY).unwrap();
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn a_device_that_is_out_of_memory_gives_the_budget_back() {
    let resource = stack::build("limit:1TiB/direct", driver()).unwrap();
    let error = resource.allocate(100 << 30, Stream::LEGACY).unwrap_err();
    assert!(matches!(error, AllocError::OutOfMemory(_)), "{error}");
    let error = resource.allocate(1 << 40, Stream::LEGACY).unwrap_err();
    assert!(matches!(error, AllocError::OutOfMemory(_)), "all of the limit is left: {error}");
}

//! What the kernel has to be told before the pool's caches can be used.

#![cfg(target_os = "linux")]

use std::sync::Arc;

use millpond::pool::Pool;
use millpond_sim::{Profile, SimGpu};
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};

/// Registering takes the kernel some 10 ms once there are threads. A pool does it when it is made, so that no allocation waits for it.
#[test]
fn a_pool_registers_for_barriers_when_it_is_made() {
    let barrier = || membarrier(MembarrierCommand::PrivateExpedited);
    assert_eq!(barrier(), Err(Errno::PERM), "nobody has registered so far");
    let gpu = SimGpu::new(Profile::named("a100-80g").unwrap());
    let _pool = Pool::new(Arc::new(gpu)).unwrap();
    assert_eq!(barrier(), Ok(()));
}

//! Threads on a pool, for valgrind's DRD to watch: `cargo xtask races`.
//!
//! Thread caches are off, so that what runs is what locks guard: inboxes, the global cache, slabs, the back, settings, statistics.
//! Threads allocate, leave blocks for each other, free their own and each other's, trim, come and go.

use std::sync::Arc;

use millpond::Resource;
use millpond::driver::{DevicePtr, Driver, Stream, StreamFlags};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::{Profile, SimGpu};
use parking_lot::Mutex;

const THREADS: u64 = 3;
/// Each is a new set of threads, which find the caches of those before.
const GENERATIONS: u64 = 3;
const ACTIONS: usize = 250;

type Blocks = Vec<(DevicePtr, usize)>;

fn main() {
    let gpu: Arc<SimGpu> = Arc::new(SimGpu::new(Profile::named("p100-16g").expect("built in")));
    let streams: Vec<Stream> = (0..2)
        .map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING).expect("an empty device"))
        .collect();
    let pool = Pool::new(gpu.clone()).expect("an empty device");
    let config = PoolConfig {
        thread_cache_max_blocks: 0,
        global_cache_max_blocks: 64,
        ..PoolConfig::default()
    };
    pool.set_config(config).expect("right settings");
    let exchange = Mutex::new(Blocks::new());
    for generation in 0..GENERATIONS {
        std::thread::scope(|scope| {
            let start = |thread| {
                let (pool, exchange, streams) = (&pool, &exchange, &streams);
                scope.spawn(move || work(pool, exchange, streams, generation * THREADS + thread))
            };
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            // One by one: DRD knows what joining orders, and nothing of how a scope waits.
            threads.into_iter().for_each(|thread| thread.join().expect("right calls succeed"));
        });
        pool.assert_valid();
    }
    for (ptr, bytes) in exchange.lock().drain(..) {
        pool.deallocate(ptr, bytes, streams[0]).expect("a right free");
    }
    pool.trim();
    assert_eq!((pool.usage().live_bytes, pool.usage().reserved_bytes), (0, 0));
    drop(pool);
    assert_eq!(gpu.held().total_bytes(), 0);
}

fn work(pool: &Pool, exchange: &Mutex<Blocks>, streams: &[Stream], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut mine = Blocks::new();
    for _ in 0..ACTIONS {
        let stream = streams[rng.usize(0..streams.len())];
        match rng.u32(0..100) {
            0..45 => {
                let most = 1 << rng.u32(4..22);
                let bytes = rng.usize(1..=most);
                mine.push((pool.allocate(bytes, stream).expect("little is live"), bytes));
            }
            45..65 if !mine.is_empty() => {
                let (ptr, bytes) = mine.swap_remove(rng.usize(0..mine.len()));
                pool.deallocate(ptr, bytes, stream).expect("a right free");
            }
            65..80 if !mine.is_empty() => {
                let block = mine.swap_remove(rng.usize(0..mine.len()));
                exchange.lock().push(block);
            }
            80..94 => {
                let taken = exchange.lock().pop();
                if let Some((ptr, bytes)) = taken {
                    pool.deallocate(ptr, bytes, stream).expect("a right free");
                }
            }
            94 => drop(pool.trim()),
            95 => pool.trim_cache(),
            96 => {
                let slack = rng.f64();
                pool.set_config(PoolConfig { slack, ..pool.config() }).expect("a right slack");
            }
            97 => pool.reset_stats(),
            98 => drop(pool.stats()),
            _ => drop(pool.usage()),
        }
    }
    exchange.lock().append(&mut mine);
}

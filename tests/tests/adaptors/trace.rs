//! What the trace adaptor writes, and what it does where nothing can be written.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use millpond::adaptor::{Trace, TraceFailure, TraceLog};
use millpond::driver::{Driver, StreamFlags};
use millpond::pool::Pool;
use millpond::resource::Direct;
use millpond::{Resource, Stream, stack};

use crate::rmm_log;
use crate::{driver, gpu};

/// Keeps what is written, for the test to read.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_call_is_a_line_as_rmm_writes_it() {
    let gpu = gpu();
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let page = Page::default();
    let resource = Trace::new(Direct::new(gpu), TraceLog::to_writer("page", page.clone()).unwrap());
    let block = resource.allocate(1000, stream).unwrap();
    resource.allocate(1 << 50, Stream::LEGACY).unwrap_err();
    resource.deallocate(block, 1000, Stream::LEGACY).unwrap();
    resource.allocate(0, stream).unwrap();
    resource.log().flush().unwrap();
    let lines = rmm_log::read(&page.text()).unwrap();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.action.as_str(), line.pointer, line.size, line.stream))
        .collect();
    assert_eq!(
        told,
        [
            ("allocate", block.0, 1000, stream.0),
            ("allocate failure", 0, 1 << 50, 0),
            ("free", block.0, 1000, 0),
            ("allocate", 0, 0, stream.0),
        ]
    );
    assert!(lines.iter().all(|line| line.thread == lines[0].thread && line.thread > 0));
    assert!(lines.windows(2).all(|two| two[0].micros <= two[1].micros), "time goes on");
}

/// Whatever threads do, the log is a right history: an address is freed before it is allocated again.
#[test]
fn the_lines_of_many_threads_are_a_right_history() {
    const THREADS: u64 = 4;
    const PAIRS: usize = 5_000;
    let page = Page::default();
    let resource = Trace::new(
        Pool::new(driver()).unwrap(),
        TraceLog::to_writer("page", page.clone()).unwrap(),
    );
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let resource = &resource;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..PAIRS {
                    let bytes = rng.usize(1..10_000);
                    let block = resource.allocate(bytes, Stream::LEGACY).unwrap();
                    resource.deallocate(block, bytes, Stream::LEGACY).unwrap();
                }
            });
        }
    });
    drop(resource);
    let lines = rmm_log::read(&page.text()).unwrap();
    assert_eq!(lines.len(), THREADS as usize * PAIRS * 2);
    let mut live = HashMap::new();
    for line in &lines {
        match line.action.as_str() {
            "allocate" => {
                assert_eq!(live.insert(line.pointer, line.size), None, "{line:?} is live already");
            }
            _ => assert_eq!(live.remove(&line.pointer), Some(line.size), "{line:?} is not live"),
        }
    }
    assert!(live.is_empty());
    let threads: std::collections::HashSet<u64> = lines.iter().map(|line| line.thread).collect();
    assert_eq!(threads.len(), THREADS as usize);
}

#[test]
fn a_full_disk_is_reported_and_allocations_go_on() {
    let built =
        "trace:/dev/full/direct".parse::<millpond::Stack>().unwrap().build(driver()).unwrap();
    let log = &built.handles.logs[0];
    for _ in 0..100 {
        let block = built.resource.allocate(1000, Stream::LEGACY).unwrap();
        built.resource.deallocate(block, 1000, Stream::LEGACY).unwrap();
    }
    let failure = log.flush().unwrap_err();
    assert_eq!(log.failure().as_ref(), Some(&failure));
    let text = failure.to_string();
    assert!(text.starts_with("the trace '/dev/full' ends after 0 lines: No space left"), "{text}");
    built.resource.allocate(1000, Stream::LEGACY).unwrap();
}

/// A disk that takes nothing until it is told to.
struct Stuck(mpsc::Receiver<()>, Page);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_hangs_holds_no_allocation_up() {
    const PAIRS: usize = 20_000;
    let (go_on, wait) = mpsc::channel();
    let page = Page::default();
    let log = TraceLog::to_writer("stuck", Stuck(wait, page.clone())).unwrap();
    let resource = Trace::new(Direct::new(driver()), log);
    let start = Instant::now();
    for _ in 0..PAIRS {
        let block = resource.allocate(1000, Stream::LEGACY).unwrap();
        resource.deallocate(block, 1000, Stream::LEGACY).unwrap();
    }
    // The disk has taken nothing, not even the header; on the busiest machine these took less than a minute.
    assert!(page.text().is_empty() && start.elapsed() < Duration::from_secs(60));
    assert!(resource.log().failure().is_none());
    drop(go_on);
    drop(resource);
    assert_eq!(rmm_log::read(&page.text()).unwrap().len(), 2 * PAIRS);
}

#[test]
fn a_failure_says_what_was_lost() {
    let failure = TraceFailure::Slow { log: "x.csv".into() };
    assert!(failure.to_string().contains("has taken nothing for 5 seconds"), "{failure}");
    let error =
        stack::build("trace:/no/such/dir/x.csv/direct", driver()).err().unwrap().to_string();
    assert!(
        error.starts_with("trace: path = /no/such/dir/x.csv: cannot be written: No such file"),
        "{error}"
    );
}

//! Programs that end in the middle of things, and what their traces hold then.
//!
//! Each is this test program again, told by a variable to be one that ends so.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use millpond::adaptor::{Trace, TraceLog};
use millpond::pool::Pool;
use millpond::{Resource, Stream};

use crate::{driver, rmm_log};

const PATH_VARIABLE: &str = "MILLPOND_TEST_TRACE";
const PAIRS: usize = 3_000;

/// Allocates, and leaves a traced resource behind that nobody will drop.
fn allocate_and_forget(path: &str) {
    let log = TraceLog::create(path.as_ref()).unwrap();
    let resource = Trace::new(Pool::new(driver()).unwrap(), log);
    for number in 1..=PAIRS {
        let block = resource.allocate(number, Stream::LEGACY).unwrap();
        resource.deallocate(block, number, Stream::LEGACY).unwrap();
    }
    std::mem::forget(resource);
}

/// Runs `test` of this program as a program of its own, and reads the trace it leaves.
fn left_by(test: &str) -> (ExitStatus, Vec<rmm_log::Line>) {
    let path: PathBuf =
        std::env::temp_dir().join(format!("millpond-{test}-{}.csv", std::process::id()));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("trace_at_the_end::{test}"), "--nocapture", "--test-threads=1"])
        .env(PATH_VARIABLE, &path)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    std::fs::remove_file(&path).unwrap();
    (output.status, rmm_log::read(&text).unwrap())
}

fn is_complete(lines: &[rmm_log::Line]) -> bool {
    let sizes: Vec<usize> = lines.iter().map(|line| line.size).collect();
    sizes == (1..=PAIRS).flat_map(|number| [number, number]).collect::<Vec<_>>()
}

#[test]
fn panics_then_aborts() {
    let Ok(path) = std::env::var(PATH_VARIABLE) else { return };
    allocate_and_forget(&path);
    // What is not written when the panic is over never will be.
    let _ = std::panic::catch_unwind(|| panic!("on purpose"));
    std::process::abort();
}

#[test]
fn a_program_that_panics_loses_no_line() {
    let (status, lines) = left_by("panics_then_aborts");
    assert!(!status.success());
    assert!(is_complete(&lines), "{} lines", lines.len());
}

#[test]
fn exits_at_once() {
    let Ok(path) = std::env::var(PATH_VARIABLE) else { return };
    allocate_and_forget(&path);
    std::process::exit(3);
}

#[test]
fn a_program_that_exits_loses_no_line() {
    let (status, lines) = left_by("exits_at_once");
    assert_eq!(status.code(), Some(3));
    assert!(is_complete(&lines), "{} lines", lines.len());
}

#[test]
fn another_thread_exits() {
    let Ok(path) = std::env::var(PATH_VARIABLE) else { return };
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        allocate_and_forget(&path);
        done.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    is_done.recv().unwrap();
    std::process::exit(3);
}

#[test]
fn a_program_that_another_thread_ends_loses_no_line() {
    let (status, lines) = left_by("another_thread_exits");
    assert_eq!(status.code(), Some(3));
    assert!(is_complete(&lines), "{} lines", lines.len());
}

#[test]
fn unwinds_from_a_panic() {
    let Ok(path) = std::env::var(PATH_VARIABLE) else { return };
    let log = TraceLog::create(path.as_ref()).unwrap();
    let resource = Trace::new(Pool::new(driver()).unwrap(), log);
    for number in 1..=PAIRS {
        let block = resource.allocate(number, Stream::LEGACY).unwrap();
        resource.deallocate(block, number, Stream::LEGACY).unwrap();
    }
    panic!("on purpose");
}

#[test]
fn a_resource_that_is_dropped_while_a_thread_unwinds_loses_no_line() {
    let (status, lines) = left_by("unwinds_from_a_panic");
    assert!(!status.success());
    assert!(is_complete(&lines), "{} lines", lines.len());
}

/// A program that is killed loses what it recorded in the last moment, and nothing older.
#[test]
fn waits_and_aborts() {
    let Ok(path) = std::env::var(PATH_VARIABLE) else { return };
    allocate_and_forget(&path);
    // The writer gathers for a millisecond; a busy machine may take longer to let it run.
    let is_written =
        || std::fs::read_to_string(&path).is_ok_and(|text| text.lines().count() > 2 * PAIRS);
    for _ in 0..1000 {
        if is_written() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::process::abort();
}

#[test]
fn what_was_recorded_is_soon_written_without_being_asked() {
    let (_, lines) = left_by("waits_and_aborts");
    assert!(is_complete(&lines), "{} lines", lines.len());
}

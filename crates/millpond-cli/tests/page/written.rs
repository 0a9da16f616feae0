//! Pages that the program wrote.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::browser::target;

pub(crate) const TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");

/// A page, and the same figures as JSON.
pub(crate) struct Written {
    pub(crate) page: PathBuf,
    pub(crate) json: Value,
}

/// The checked-in trace with these allocators; written once.
pub(crate) fn tiny() -> &'static Written {
    static TINY: OnceLock<Written> = OnceLock::new();
    TINY.get_or_init(|| {
        replay("tiny", &[TRACE, "--allocator", "pool,direct,bestfit,torch,arena", "--quick"])
    })
}

/// What `millpond replay` writes.
pub(crate) fn replay(name: &str, arguments: &[&str]) -> Written {
    written(name, "replay", arguments)
}

/// What `millpond compare` writes.
pub(crate) fn compare(name: &str, arguments: &[&str]) -> Written {
    written(name, "compare", arguments)
}

/// What `millpond share simulate` writes.
pub(crate) fn simulate(name: &str, arguments: &[&str]) -> Written {
    written(name, "share simulate", arguments)
}

fn written(name: &str, command: &str, arguments: &[&str]) -> Written {
    let page = folder().join(format!("{name}.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .args(command.split(' '))
        .args(arguments)
        .arg("--html")
        .arg(&page)
        .arg("--json")
        .env_remove("MILLPOND_DEVICE")
        .output()
        .expect("the program runs");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Written { page, json: serde_json::from_slice(&output.stdout).expect("it prints JSON") }
}

impl Written {
    /// A figure of an allocator on the first trace.
    pub(crate) fn figure(&self, allocator: &str, key: &str) -> f64 {
        let results = self.json["traces"][0]["results"].as_array().expect("a list");
        let result = results.iter().find(|result| result["allocator"] == allocator);
        result.expect("was replayed with")[key].as_f64().expect("a number")
    }

    pub(crate) fn peak_live_bytes(&self) -> f64 {
        self.json["traces"][0]["peak_live_bytes"].as_f64().expect("a number")
    }

    /// What the page has in it.
    pub(crate) fn data(&self) -> Value {
        let text = std::fs::read_to_string(&self.page).expect("the page was written");
        let (_, data) = text.split_once("application/json\">").expect("it has data");
        serde_json::from_str(data.split_once("</script>").expect("that ends").0).expect("is JSON")
    }
}

pub(crate) fn folder() -> PathBuf {
    let folder = target().join("page");
    std::fs::create_dir_all(&folder).expect("a folder for pages");
    folder
}

/// A log of so many events that allocate 1 MiB and free it, but for one block at `spike`.
pub(crate) fn log_with_spike(path: &Path, events: u64, spike: u64, spike_bytes: u64) {
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for event in 0..events {
        let bytes = if event / 2 == spike / 2 { spike_bytes } else { 1 << 20 };
        let action = if event % 2 == 0 { "allocate" } else { "free" };
        let seconds = event / 1000 % 60;
        let (minutes, micros) = (event / 60_000, event % 1000 * 1000);
        // A different address for each of some blocks, as real logs have.
        let address = 0x7f00_0000_0000 + event / 2 % 64 * (1 << 32);
        writeln!(
            log,
            "1,10:{minutes:02}:{seconds:02}.{micros:06},{action},{address:#x},{bytes},0x0"
        )
        .expect("a string takes everything");
    }
    std::fs::write(path, log).expect("the log can be written");
}

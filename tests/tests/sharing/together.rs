//! Jobs on a shared device, and what the status says of them.

use std::process::Command;
use std::time::{Duration, Instant};

use millpond_tests::sharing::{Ground, Running, job};
use serde_json::Value;

/// Of a device of 128 MiB: two do not fit together.
pub(crate) const LARGE_MIB: &str = "90";
const PATIENCE: Duration = Duration::from_secs(60);

/// A job of so many steps of 5 ms.
pub(crate) fn start(ground: &Ground, options: &[&str], mib: &str, steps: &str) -> Running {
    let mut command: Command = ground.shared(&job(), options);
    command.args(["--mib", mib, "--steps", steps, "--step-ms", "5"]);
    Running::start(&mut command)
}

/// Asks for the status until something is in it.
pub(crate) fn wait_for<T>(ground: &Ground, look: impl Fn(&Value) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        let output = ground.status();
        assert!(output.status.success(), "{output:?}");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        if let Some(found) = look(&status) {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "it never comes: {status:#}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client by its process, once it is there.
pub(crate) fn client(status: &Value, pid: u32) -> Option<&Value> {
    let clients = status["devices"][0]["clients"].as_array()?;
    clients.iter().find(|client| client["pid"] == pid)
}

/// The process of a client in a state.
pub(crate) fn process_in(status: &Value, state: &str) -> Option<u32> {
    let clients = status["devices"][0]["clients"].as_array()?;
    let found = clients.iter().find(|client| client["state"] == state)?;
    u32::try_from(found["pid"].as_u64()?).ok()
}

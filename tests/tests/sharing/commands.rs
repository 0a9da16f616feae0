//! `serve`, `run`, `status`, `set` and `top`.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use millpond_tests::sharing::{Ground, Running, job};
use millpond_tests::terminal::Terminal;
use serde_json::Value;

use crate::together::{LARGE_MIB, client, start, wait_for};

fn set(ground: &Ground, arguments: &[&str]) -> Output {
    ground.millpond(&[&["share", "set"], arguments].concat()).output().unwrap()
}

#[test]
fn the_status_has_every_key_and_what_run_was_told() {
    let ground = Ground::new("status", 128, &["--quantum", "7s"]);
    let options =
        ["--weight", "3", "--priority", "-2", "--memory-limit", "100MiB", "--name", "trainer"];
    let running = start(&ground, &options, "32", "400");
    let status = wait_for(&ground, |status| {
        client(status, running.pid())?["allocated_bytes"]
            .as_u64()
            .filter(|bytes| *bytes >= 32 << 20)?;
        Some(status.clone())
    });
    let device = &status["devices"][0];
    for key in ["device", "capacity_bytes", "mode", "quantum_ms", "holder", "clients"] {
        assert!(device.get(key).is_some(), "{key}: {device:#}");
    }
    assert_eq!((&device["quantum_ms"], &device["mode"]), (&7000.into(), &"together".into()));
    assert_eq!(device["capacity_bytes"], 128 << 20);
    let client = client(&status, running.pid()).unwrap();
    let keys = [
        "pid",
        "name",
        "state",
        "weight",
        "priority",
        "allocated_bytes",
        "resident_bytes",
        "moved_in_bytes",
        "moved_out_bytes",
        "held_ms",
        "waited_ms",
    ];
    for key in keys {
        assert!(client.get(key).is_some(), "{key}: {client:#}");
    }
    assert_eq!(client["name"], "trainer");
    assert_eq!((&client["weight"], &client["priority"]), (&3.into(), &Value::from(-2)));
    assert_eq!(client["memory_limit_bytes"], 100 << 20);
    running.number();
}

#[test]
fn who_wants_more_than_its_limit_runs_out_of_memory_and_hears_why() {
    let ground = Ground::new("limit", 128, &[]);
    let running = start(&ground, &["--memory-limit", "32MiB"], "64", "1");
    let output = running.finish();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("its limit"), "{said}");
}

#[test]
fn set_changes_what_the_status_says() {
    let ground = Ground::new("set", 128, &[]);
    let mut running = start(&ground, &[], "32", "100000");
    let pid = running.pid();
    wait_for(&ground, |status| client(status, pid).map(drop));
    let changed = |arguments: &[&str]| -> Value {
        let output = set(&ground, &[&["--json"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(changed(&["quantum", "10s"])["devices"][0]["quantum_ms"], 10_000);
    let status = changed(&["weight", "5", "--pid", &pid.to_string()]);
    assert_eq!(client(&status, pid).unwrap()["weight"], 5);
    assert_eq!(changed(&["off"])["devices"][0]["mode"], "off");
    assert_eq!(changed(&["on"])["devices"][0]["mode"], "together");
    let quiet = set(&ground, &["quantum", "20s"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty(), "{quiet:?}");
    let refused = set(&ground, &["weight", "5", "--pid", "1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no client"), "{refused:?}");
    running.kill();
}

#[test]
fn what_was_set_outlasts_a_daemon_that_is_killed() {
    let mut ground = Ground::new("kept", 128, &["--prefetch", "all"]);
    let mut running = start(&ground, &["--weight", "2"], "32", "100000");
    let pid = running.pid();
    wait_for(&ground, |status| client(status, pid).map(drop));
    let pid_text = pid.to_string();
    for arguments in
        [&["quantum", "7s"][..], &["weight", "5", "--pid", &pid_text], &["prefetch", "off"]]
    {
        assert!(set(&ground, arguments).status.success());
    }
    ground.kill_daemon();
    ground.start_daemon();
    let status = wait_for(&ground, |status| client(status, pid).map(|_| status.clone()));
    assert_eq!(status["devices"][0]["quantum_ms"], 7000);
    assert_eq!(client(&status, pid).unwrap()["weight"], 5);
    assert!(running.is_alive());
    running.kill();
}

#[test]
fn programs_that_map_memory_themselves_finish_with_turns_off_and_with_nothing_prefetched() {
    for (name, arguments) in [("off", &["off"][..]), ("unfetched", &["prefetch", "off"])] {
        let ground = Ground::new(name, 128, &["--quantum", "150ms"]);
        assert!(set(&ground, arguments).status.success());
        let one = || {
            let mut command = ground.shared(&job(), &[]);
            command.args(["--mib", LARGE_MIB, "--steps", "60", "--step-ms", "5"]);
            command.args(["--kind", "virtual"]);
            Running::start(&mut command)
        };
        let running = [one(), one()];
        for job in running {
            job.number();
        }
    }
}

/// Also where the sockets' modes would let it in.
#[test]
fn another_user_is_refused() {
    const NOBODY: u32 = 65534;
    let ground = Ground::new("user", 128, &[]);
    let everybody = || Permissions::from_mode(0o777);
    let ours = ground.millpond(&[]);
    // Not every directory above ours need be open to others.
    let program = ground.directory().join("millpond");
    std::fs::copy(ours.get_program(), &program).unwrap();
    for entry in std::fs::read_dir(ground.directory()).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), everybody()).unwrap();
    }
    std::fs::set_permissions(ground.directory(), everybody()).unwrap();
    let mut theirs = Command::new(program);
    theirs.args(["share", "status"]).env("MILLPOND_SHARE_DIR", ground.directory());
    let refused = match theirs.uid(NOBODY).gid(NOBODY).output() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return println!("skipped: only root can be another user");
        }
        output => output.unwrap(),
    };
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(ground.status().status.success());
}

#[test]
fn top_draws_who_is_there_until_q_is_pressed() {
    let ground = Ground::new("top", 128, &[]);
    let mut running = start(&ground, &["--name", "seen"], "32", "100000");
    wait_for(&ground, |status| client(status, running.pid()).map(drop));
    let mut top = Terminal::start(&mut ground.millpond(&["share", "top"]), 160, 40);
    top.shows(&["seen", "GPU-", "USEFUL"]);
    top.ends_with(b'q');
    running.kill();
}

//! The program as people and scripts use it.

use std::process::Command;

use crate::run::{complaint, millpond, stdout};

#[test]
fn devices_lists_every_profile_and_marks_the_default() {
    let text = stdout(&millpond(&["devices"]));
    for name in
        ["sim:a100-80g *", "sim:h100-80g", "sim:v100-16g", "sim:rtx4090-24g", "sim:p100-16g"]
    {
        assert!(text.contains(name), "{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn devices_as_json_has_the_keys_that_programs_rely_on() {
    let report: serde_json::Value =
        serde_json::from_str(&stdout(&millpond(&["devices", "--json"]))).unwrap();
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 5);
    assert_eq!(devices[0]["device"], "sim:a100-80g");
    assert_eq!(devices[0]["kind"], "simulated");
    assert_eq!(devices[0]["capacity_bytes"], 80_u64 << 30);
    assert_eq!(devices[0]["granularity_bytes"], 2 << 20);
}

#[test]
fn json_can_go_to_a_file() {
    let path = std::env::temp_dir().join(format!("millpond-devices-{}.json", std::process::id()));
    let option = format!("--json={}", path.display());
    assert_eq!(stdout(&millpond(&["devices", &option])), "");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(report["devices"].is_array());
    std::fs::remove_file(path).unwrap();
    let nowhere = complaint(&millpond(&["devices", "--json=/no/such/directory/x.json"]));
    assert!(nowhere.contains("cannot write '/no/such/directory/x.json'"), "{nowhere}");
}

#[test]
fn one_device_shows_every_figure_with_its_source() {
    let text = stdout(&millpond(&["devices", "--device", "sim:v100-16g"]));
    for word in [
        "link.to_device",
        "12.4GB/s",
        "managed.fault_batch",
        "NVIDIA open kernel modules",
        "latency.map",
    ] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
}

#[test]
fn a_profile_file_is_a_device_too() {
    let path = std::env::temp_dir().join(format!("millpond-profile-{}.toml", std::process::id()));
    std::fs::write(
        &path,
        "base = 'p100-16g'\ntitle = 'Half a P100'\n[memory]\ncapacity = '8GiB'\n",
    )
    .unwrap();
    let name = format!("sim:{}", path.display());
    let text = stdout(&millpond(&["devices", "--device", &name]));
    assert!(text.contains("Half a P100") && text.contains("8GiB"), "{text}");
    let listed = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .arg("devices")
        .env("MILLPOND_DEVICE", &name)
        .output()
        .unwrap();
    assert!(stdout(&listed).contains("Half a P100"));

    std::fs::write(&path, "base = 'p100-16g'\n[memory]\ncapacity = 8GiB\n").unwrap();
    let broken = complaint(&millpond(&["devices", "--device", &name]));
    assert!(broken.contains("line 3"), "{broken}");
    std::fs::write(&path, "base = 'p100-16g'\n[memory]\ncapcity = '8GiB'\n").unwrap();
    let mistyped = complaint(&millpond(&["devices", "--device", &name]));
    assert!(mistyped.contains("did you mean 'memory.capacity'?"), "{mistyped}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_wrong_device_is_answered_with_a_right_one() {
    let cases = [
        ("sim:a100", "did you mean 'a100-80g'?"),
        ("sim:nothing-like-it", "known: a100-80g"),
        ("sim:/no/such/file.toml", "cannot read profile file '/no/such/file.toml'"),
        ("gpu0", "use sim:PROFILE (such as sim:a100-80g) or cuda:N"),
        ("cuda:x", "use a number, such as cuda:0"),
        ("cuda:0", "use a simulated device such as sim:a100-80g"),
        ("sim:", "add a profile"),
    ];
    for (name, expected) in cases {
        let complaint = complaint(&millpond(&["devices", "--device", name]));
        assert!(complaint.contains(expected), "{name}: {complaint}");
    }
}

#[test]
fn help_says_what_the_program_is_for() {
    let text = stdout(&millpond(&["--help"]));
    for word in ["GPU memory without a GPU", "devices", "completions", "Exit codes", "sim:PROFILE"]
    {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    let nothing = millpond(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("Usage: millpond"));
    let unknown = millpond(&["devises"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("similar"), "{unknown:?}");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&millpond(&["completions", shell]));
        assert!(script.contains("devices"), "{shell}");
    }
    assert!(stdout(&millpond(&["man"])).contains(".TH"));
    let dir = std::env::temp_dir().join(format!("millpond-man-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    stdout(&millpond(&["man", "--dir", dir.to_str().unwrap()]));
    assert!(dir.join("millpond.1").exists() && dir.join("millpond-devices.1").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .args(["devices", "--device", "sim:a100-80g"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

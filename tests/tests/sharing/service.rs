//! The daemon as a service of the system.

use std::process::Command;

use millpond_tests::{dist, sharing};

#[test]
fn systemd_understands_the_unit() {
    let verify = |unit: &std::path::Path| {
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output()
    };
    let unit = dist::directory().join("lib/systemd/system/millpond-share.service");
    let text = std::fs::read_to_string(unit).unwrap();
    // Who runs it wants no metrics unless asked, on a machine whose users do not trust each other.
    let starts: Vec<&str> = text.lines().filter(|line| line.starts_with("ExecStart=")).collect();
    assert!(starts.len() == 1 && starts[0].contains(" --everyone"), "{starts:?}");
    assert!(!starts[0].contains("--metrics"), "{starts:?}");
    // The program is not installed here.
    let millpond = sharing::beside_us("millpond");
    let text = text.replace("/usr/bin/millpond", millpond.to_str().unwrap());
    let directory = std::env::temp_dir().join(format!("millpond-unit-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let copy = directory.join("millpond-share.service");
    std::fs::write(&copy, text).unwrap();
    let Ok(output) = verify(&copy) else { return println!("skipped: there is no systemd-analyze") };
    std::fs::remove_dir_all(directory).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("millpond-share")).collect();
    assert!(output.status.success() && of_ours.is_empty(), "{said}");
}

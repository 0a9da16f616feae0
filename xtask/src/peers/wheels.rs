//! The peers' published packages, fetched once.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::make;

/// A package, and which of its files are wanted: those whose paths contain one of these.
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    pub(crate) wanted: &'static [&'static str],
}

/// Downloads, unpacks what is wanted, and drops the rest. Marked when all is there.
const FETCH: &str = r#"
import pathlib, subprocess, sys, tempfile, zipfile
package, directory, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
directory.mkdir(parents=True, exist_ok=True)
with tempfile.TemporaryDirectory(dir=directory) as downloaded:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", downloaded, package], check=True)
    (wheel,) = pathlib.Path(downloaded).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory, [name for name in archive.namelist() if any(part in name for part in wanted)])
(directory / "fetched").touch()
"#;

impl Wheel {
    /// Where its files are.
    pub(crate) fn fetch(&self, peers: &Path) -> Result<PathBuf> {
        let directory = peers.join(self.package.replace("==", "-"));
        if !directory.join("fetched").exists() {
            eprintln!("peers: fetching {}", self.package);
            let mut python = Command::new("python3");
            python.args(["-c", FETCH, self.package]).arg(&directory).args(self.wanted);
            make(&mut python).with_context(|| format!("cannot fetch {}", self.package))?;
        }
        Ok(directory)
    }
}

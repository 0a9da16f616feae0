//! Chromium without a window, driven by its own protocol over a pair of pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Whatever an answer may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// How Chromium is called on different systems.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Chromium without a window. It ends by itself when its pipes are closed.
pub(crate) struct Browser {
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// What it told without being asked.
    pub(crate) events: Vec<Value>,
    last_id: u64,
    _process: Child,
}

impl Browser {
    /// Starts the one that is installed. `None`: there is none.
    pub(crate) fn start() -> Option<Browser> {
        let program = NAMES.iter().find(|name| runs(name))?;
        let profile = target().join("tmp/chromium");
        // Left by the last run.
        let _ = std::fs::remove_dir_all(&profile);
        // Chromium reads commands from descriptor 3 and answers on 4; the shell makes them of the pipes that we have.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", program])
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"])
            .args(["--disable-extensions", "--disable-component-update", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        let (sender, messages) = channel();
        let mut answers = BufReader::new(process.stdout.take().expect("is a pipe"));
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let told = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if sender.send(told).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let commands = process.stdin.take().expect("is a pipe");
        Some(Browser { commands, messages, events: Vec::new(), last_id: 0, _process: process })
    }

    /// Gives a command, to a tab if one is named, and waits for the answer.
    pub(crate) fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut command = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        write!(self.commands, "{command}\0").expect("the browser runs");
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
    quiet.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("is below target").to_owned()
}

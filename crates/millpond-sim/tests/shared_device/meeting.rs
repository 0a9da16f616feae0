//! A place where the processes of one test meet, and those processes.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::player::{ANSWER, PART};

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of its own for each test, so that no two meet by accident.
pub(crate) struct Meeting {
    directory: PathBuf,
    /// What all players of the test have in common.
    part: String,
}

impl Meeting {
    pub(crate) fn new(part: &str) -> Meeting {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millpond-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let broker = env!("CARGO_BIN_EXE_millpond-sim-broker");
        Meeting { directory, part: format!("name=test,broker={broker},{part}") }
    }

    pub(crate) fn file(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("millpond-sim/test.{kind}"))
    }

    /// How often a broker has begun here.
    pub(crate) fn brokers(&self) -> usize {
        std::fs::read_to_string(self.file("log")).unwrap().matches("begins").count()
    }

    /// A process that has begun to join, with some parts different from the others'.
    pub(crate) fn start(&self, different: &str) -> Player {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "play", "--ignored", "--nocapture", "--quiet"])
            .env(PART, format!("{},{different}", self.part))
            .env("XDG_RUNTIME_DIR", &self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Player { child, input, output: BufReader::new(output) }
    }

    /// A process that has joined.
    pub(crate) fn join(&self) -> Player {
        let mut player = self.start("");
        assert_eq!(player.answer().as_deref(), Some("joined"));
        player
    }

    /// Waits until no broker is left.
    pub(crate) fn end(self) {
        wait_until("the broker has left", || !self.file("socket").exists());
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Waits for what must come.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn kill(process: u32) {
    let process = Pid::from_raw(process as i32).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

/// Another process. It is killed when the test is done with it.
pub(crate) struct Player {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Player {
    /// Its next answer; none if it has ended.
    pub(crate) fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, answer)) = line.trim_end().split_once(ANSWER) {
                return Some(answer.to_owned());
            }
            line.clear();
        }
        None
    }

    /// Tells it what to do, without waiting for it.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer().expect("it is alive")
    }

    pub(crate) fn ask_number(&mut self, line: &str) -> u64 {
        let answer = self.ask(line);
        answer.parse().unwrap_or_else(|_| panic!("{line}: {answer}"))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! `tests/clients/shared_job.c`: a program that does with a GPU what the test tells it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use millpond_tests::programs::succeeds;
use millpond_tests::{dist, simcuda};

/// Longer than anything takes: only a test that fails waits for it.
pub(crate) const NEVER: Duration = Duration::from_secs(60);

/// Waits for something that nobody tells of.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < NEVER, "{what} never comes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How a program finds the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Linked,
    Dlsym,
    Dlvsym,
    Name,
    NameV1,
    NamePerThread,
}

impl Route {
    pub(crate) const ALL: [Route; 6] = [
        Route::Linked,
        Route::Dlsym,
        Route::Dlvsym,
        Route::Name,
        Route::NameV1,
        Route::NamePerThread,
    ];

    fn flag(self) -> &'static str {
        match self {
            Route::Linked => "-lcuda",
            Route::Dlsym => "-DBY_DLSYM",
            Route::Dlvsym => "-DBY_DLVSYM",
            Route::Name => "-DBY_NAME",
            Route::NameV1 => "-DBY_NAME_V1",
            Route::NamePerThread => "-DBY_NAME_PER_THREAD",
        }
    }
}

/// Compiles a program of `tests/clients`, once.
pub(crate) fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiled = COMPILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if compiled.contains(&program) {
        return program;
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-O1", "-o"]).arg(&program);
    compiler.arg(simcuda::root().join("tests/clients").join(source));
    compiler.arg("-L").arg(simcuda::directory()).args(flags).args(["-ldl", "-lpthread"]);
    succeeds(&mut compiler);
    compiled.push(program.clone());
    program
}

/// A program under the hook, whose daemon is in a directory.
pub(crate) fn hooked(program: &Path, simulated: &str, daemon: &Path) -> Command {
    let mut command = simcuda::program(program, simulated);
    command.env("LD_PRELOAD", dist::directory().join("lib/libmillpond_hook.so"));
    command.env("MILLPOND_SHARE_DIR", daemon);
    command
}

/// The program, running.
pub(crate) struct Job {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Job {
    pub(crate) fn linked(daemon: &Path, simulated: &str) -> Job {
        Job::by(Route::Linked, daemon, simulated, &[])
    }

    pub(crate) fn by(
        route: Route,
        daemon: &Path,
        simulated: &str,
        environment: &[(&str, &str)],
    ) -> Job {
        let name = format!("shared_job_{route:?}");
        let mut command =
            hooked(&compile("shared_job.c", &name, &[route.flag()]), simulated, daemon);
        Job::spawn(command.envs(environment.iter().copied()))
    }

    pub(crate) fn spawn(command: &mut Command) -> Job {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Job { child, orders, answers }
    }

    /// Gives an order, whose answer is to be fetched later.
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.orders.as_mut().expect("it runs"), "{order}").unwrap();
    }

    /// The answer to the oldest order: the driver's code, and numbers.
    pub(crate) fn answer(&mut self) -> (u64, Vec<u64>) {
        parsed(&self.answers.recv_timeout(NEVER).expect("the program answers"))
    }

    /// The answer to the oldest order, if it is there.
    pub(crate) fn answer_if_there(&mut self) -> Option<(u64, Vec<u64>)> {
        self.answers.try_recv().ok().map(|line| parsed(&line))
    }

    /// Whether there is an answer, without waiting for one.
    pub(crate) fn has_answered(&mut self) -> bool {
        match self.answers.try_recv() {
            Ok(_) => true,
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => panic!("the program has ended"),
        }
    }

    /// Whether there is an answer within a time.
    pub(crate) fn answers_within(&mut self, time: Duration) -> bool {
        self.answers.recv_timeout(time).is_ok()
    }

    /// Gives an order that succeeds; its numbers.
    pub(crate) fn ask(&mut self, order: &str) -> Vec<u64> {
        self.tell(order);
        let (code, numbers) = self.answer();
        assert_eq!(code, 0, "{order}");
        numbers
    }

    /// The code that an order gets.
    pub(crate) fn code(&mut self, order: &str) -> u64 {
        self.tell(order);
        self.answer().0
    }

    /// Ends it, and whether it went well.
    pub(crate) fn ends(mut self) -> bool {
        drop(self.orders.take());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may wait at the gate for a turn that nobody will grant.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parsed(line: &str) -> (u64, Vec<u64>) {
    let mut numbers = line.split(' ').map(|word| word.parse().expect("a number"));
    (numbers.next().expect("a code"), numbers.collect())
}

//! A terminal of our own, for programs that want one.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Nothing takes so long unless it never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal; it ends with this value at the latest.
#[derive(Debug)]
pub struct Terminal {
    ours: File,
    child: Child,
    written: Receiver<Vec<u8>>,
    /// Everything that has been written to it, control sequences and all.
    screen: String,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    ///
    /// # Panics
    /// If there are no terminals here, or no such program.
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = File::from(open(name, flags, Mode::empty()).expect("it has another end"));
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).expect("it has a size");
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let ours = File::from(ours);
        let mut reader = ours.try_clone().expect("a descriptor");
        let (sender, written) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Once nobody has the other end open, reading is an error.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        // The command keeps its ends: with them the other end would never be closed.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Terminal { ours, child, written, screen: String::new() }
    }

    /// Waits until all of these have been written.
    ///
    /// # Panics
    /// If they never are.
    pub fn shows(&mut self, wanted: &[&str]) {
        let until = Instant::now() + PATIENCE;
        while !wanted.iter().all(|text| self.screen.contains(text)) {
            let left = until.saturating_duration_since(Instant::now());
            match self.written.recv_timeout(left) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{wanted:?} never comes ({error}): {:?}", self.screen),
            }
        }
    }

    /// Everything that the program writes until it ends, control sequences and all.
    ///
    /// # Panics
    /// If it does not end.
    pub fn whole(mut self) -> String {
        let until = Instant::now() + PATIENCE;
        let mut written = Vec::new();
        loop {
            match self.written.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => written.extend(bytes),
                // The other end is closed: the program was the last that had it.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("it does not end ({error}): {written:?}"),
            }
        }
        self.child.wait().expect("it is ours");
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Types a key, and waits until the program has ended well because of it.
    ///
    /// # Panics
    /// If it has not.
    pub fn ends_with(mut self, key: u8) {
        self.ours.write_all(&[key]).expect("the program is there");
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return assert!(status.success(), "{status}: {:?}", self.screen);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end: {:?}", self.screen);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! What was set while a daemon ran, for the next one in its directory.
//!
//! A file beside the sockets, replaced as a whole. What does not look like the daemon's is not followed.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::control_session::{LEAST_QUANTUM_MS, MOST_QUANTUM_MS};
use super::directory::Directory;
use crate::control::Setting;
use crate::framing::{Inbox, append};
use crate::policy::{MOST_PRIORITY, MOST_WEIGHT, Principal, Settings};
use crate::protocol::{DeviceId, Hello, Prefetch};

const FILE: &str = "settings";
/// Changes whenever what is kept does.
const VERSION: u32 = 2;
const MOST_BYTES: usize = 1 << 16;
/// The most of which something is kept: of more, the first are forgotten.
const MOST_CLIENTS: usize = 1024;
const MOST_DEVICES: usize = 64;

/// What a client is known by: the number that it drew when it began, and what the kernel says of its process. The number alone would
/// let another process of its user have what was set for this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) instance: u64,
    pub(super) pid: u32,
    pub(super) uid: u32,
}

impl Known {
    pub(super) fn principal(&self) -> Principal {
        Principal::User(self.uid)
    }
}

/// What was set for one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfClient {
    known: Known,
    weight: Option<u32>,
    priority: Option<i32>,
    /// `Some(None)`: that it has none.
    memory_limit: Option<Option<u64>>,
}

/// See the module. Nothing that is not here was set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    quantum_ms: Option<u64>,
    prefetch: Option<Prefetch>,
    turns: Option<bool>,
    quantum_ms_of: BTreeMap<DeviceId, u64>,
    clients: Vec<OfClient>,
}

/// What the daemon was told at its start, which counts more than what was set before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// How long turns are.
    pub quantum: bool,
    /// What is brought in.
    pub prefetch: bool,
}

impl Kept {
    /// What is in a directory, and what is wrong with it.
    pub(super) fn load(directory: &Directory) -> (Kept, Option<String>) {
        match read(directory) {
            Ok(kept) => (kept.unwrap_or_default(), None),
            Err(why) => {
                let path = directory.path().join(FILE);
                let path = path.display();
                (Kept::default(), Some(format!("{path}: {why}: what was set before is forgotten")))
            }
        }
    }

    /// Replaces what is in a directory.
    pub(super) fn store(&self, directory: &Directory) -> io::Result<()> {
        let mut bytes = Vec::new();
        append(&(VERSION, self), &mut bytes);
        directory.replace(FILE, &bytes)
    }

    /// What was given is not what was set any more.
    pub(super) fn forget(&mut self, given: Given) {
        if given.quantum {
            self.quantum_ms = None;
            self.quantum_ms_of.clear();
        }
        if given.prefetch {
            self.prefetch = None;
        }
    }

    /// Something has been set; `device` is the one that it is for, if it is for one, and `clients` those.
    pub(super) fn note(&mut self, setting: &Setting, device: Option<DeviceId>, clients: &[Known]) {
        match *setting {
            Setting::Quantum { quantum_ms, .. } => match device {
                Some(device) => {
                    self.quantum_ms_of.insert(device, quantum_ms);
                    while self.quantum_ms_of.len() > MOST_DEVICES {
                        self.quantum_ms_of.pop_first();
                    }
                }
                None => {
                    self.quantum_ms = Some(quantum_ms);
                    self.quantum_ms_of.clear();
                }
            },
            Setting::Prefetch(prefetch) => self.prefetch = Some(prefetch),
            Setting::Turns(turns) => self.turns = Some(turns),
            Setting::Weight(_, weight) => {
                let weight = weight.clamp(1, MOST_WEIGHT);
                self.note_of(clients, |client| client.weight = Some(weight));
            }
            Setting::Priority(_, priority) => {
                let priority = priority.clamp(-MOST_PRIORITY, MOST_PRIORITY);
                self.note_of(clients, |client| client.priority = Some(priority));
            }
            Setting::MemoryLimit(_, limit) => {
                self.note_of(clients, |client| client.memory_limit = Some(limit));
            }
        }
    }

    fn note_of(&mut self, clients: &[Known], change: impl Fn(&mut OfClient)) {
        for &known in clients {
            let place = self.clients.iter().position(|client| client.known == known);
            let before = place.map(|at| self.clients.remove(at));
            let mut client = before.unwrap_or(OfClient { known, ..OfClient::default() });
            change(&mut client);
            self.clients.push(client);
        }
        let too_many = self.clients.len().saturating_sub(MOST_CLIENTS);
        self.clients.drain(..too_many);
    }

    /// A daemon's settings with what was set.
    pub(super) fn settings(&self, mut settings: Settings) -> Settings {
        if let Some(quantum_ms) = self.quantum_ms {
            settings.quantum = Duration::from_millis(quantum_ms);
        }
        settings.prefetch = self.prefetch.unwrap_or(settings.prefetch);
        settings.turns = self.turns.unwrap_or(settings.turns);
        settings
    }

    /// A device's settings with what was set for it.
    pub(super) fn settings_of(&self, device: DeviceId, mut settings: Settings) -> Settings {
        if let Some(quantum_ms) = self.quantum_ms_of.get(&device) {
            settings.quantum = Duration::from_millis(*quantum_ms);
        }
        settings
    }

    /// A client's hello with what was set for it: it does not know.
    pub(super) fn correct(&self, hello: &mut Hello, known: Known) {
        let Some(client) = self.clients.iter().find(|client| client.known == known) else { return };
        hello.weight = client.weight.unwrap_or(hello.weight);
        hello.priority = client.priority.unwrap_or(hello.priority);
        hello.memory_limit = client.memory_limit.unwrap_or(hello.memory_limit);
    }

    fn is_possible(&self) -> bool {
        let quanta = self.quantum_ms.iter().chain(self.quantum_ms_of.values());
        let mut quanta = quanta.map(|ms| (LEAST_QUANTUM_MS..=MOST_QUANTUM_MS).contains(ms));
        let of_client = |client: &OfClient| {
            client.weight.is_none_or(|weight| (1..=MOST_WEIGHT).contains(&weight))
                && client.priority.is_none_or(|p| (-MOST_PRIORITY..=MOST_PRIORITY).contains(&p))
        };
        let few = self.clients.len() <= MOST_CLIENTS && self.quantum_ms_of.len() <= MOST_DEVICES;
        few && quanta.all(|possible| possible) && self.clients.iter().all(of_client)
    }
}

/// `None`: there is no file.
fn read(directory: &Directory) -> Result<Option<Kept>, String> {
    let bytes = directory.read(FILE, MOST_BYTES).map_err(|error| error.to_string())?;
    let Some(bytes) = bytes else { return Ok(None) };
    let inbox = || {
        let mut inbox = Inbox::new(MOST_BYTES);
        inbox.add(&bytes);
        inbox
    };
    match inbox().peek::<u32>() {
        Ok(Some(VERSION)) => {}
        Ok(Some(version)) => return Err(format!("of version {version}, and not {VERSION}")),
        _ => return Err("not a file of ours".to_owned()),
    }
    match inbox().take::<(u32, Kept)>() {
        Ok(Some((_, kept))) if kept.is_possible() => Ok(Some(kept)),
        _ => Err("it means nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Target;
    use crate::protocol::Standing;
    use std::fs;

    /// A directory of the daemon's, which goes with the first of the two.
    fn directory() -> (tempfile::TempDir, Directory) {
        let above = tempfile::tempdir().unwrap();
        let directory = Directory::open_or_make(&above.path().join("share"), 0o700).unwrap();
        (above, directory)
    }

    fn known(instance: u64) -> Known {
        Known { instance, pid: u32::MAX, uid: u32::MAX }
    }

    fn some() -> Kept {
        let mut kept = Kept::default();
        kept.note(&Setting::Quantum { device: None, quantum_ms: 5000 }, None, &[]);
        let device = Some(DeviceId([7; 16]));
        kept.note(&Setting::Quantum { device: Some(0), quantum_ms: 700 }, device, &[]);
        kept.note(&Setting::Turns(false), None, &[]);
        kept.note(&Setting::Weight(Target::Everyone, 5000), None, &[known(1), known(2)]);
        kept.note(&Setting::MemoryLimit(Target::Process(9), None), None, &[known(2)]);
        kept
    }

    #[test]
    fn what_is_kept_is_read_again_and_bounded() {
        let (_above, directory) = directory();
        assert_eq!(Kept::load(&directory), (Kept::default(), None));
        let mut kept = some();
        kept.store(&directory).unwrap();
        assert_eq!(Kept::load(&directory), (kept.clone(), None));
        assert_eq!(kept.clients[0].weight, Some(MOST_WEIGHT));
        for instance in 0..5000 {
            kept.note(&Setting::Priority(Target::Process(1), -9999), None, &[known(instance)]);
            let device = Some(DeviceId([(instance % 251) as u8; 16]));
            kept.note(&Setting::Quantum { device: Some(0), quantum_ms: 700 }, device, &[]);
        }
        kept.store(&directory).unwrap();
        assert_eq!(Kept::load(&directory), (kept.clone(), None));
        kept.forget(Given { quantum: true, prefetch: true });
        let usual = Settings::default();
        assert_eq!(kept.settings(usual.clone()), Settings { turns: false, ..usual });
    }

    #[test]
    fn what_was_set_for_a_process_is_not_another_ones() {
        let hello = |instance| Hello {
            protocol: 0,
            instance,
            device: DeviceId([7; 16]),
            capacity_bytes: 1,
            taken_bytes: None,
            name: String::new(),
            weight: 1,
            priority: 0,
            memory_limit: None,
            standing: Standing::default(),
        };
        let weight = |known: Known| {
            let mut hello = hello(known.instance);
            some().correct(&mut hello, known);
            hello.weight
        };
        assert_eq!(weight(known(1)), MOST_WEIGHT);
        // The number is the client's own choice.
        assert_eq!(weight(Known { pid: 7, ..known(1) }), 1);
        assert_eq!(weight(Known { uid: 7, ..known(1) }), 1);
    }

    #[test]
    fn what_cannot_be_is_forgotten_with_a_word() {
        let (_above, directory) = directory();
        let path = directory.path().join(FILE);
        some().store(&directory).unwrap();
        let good = fs::read(&path).unwrap();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..500 {
            let mut bytes = good.clone();
            let at = rng.usize(..bytes.len());
            match rng.u32(0..3) {
                0 => bytes[at] = rng.u8(..),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, rng.u8(..)),
            }
            fs::write(&path, &bytes).unwrap();
            let (kept, why) = Kept::load(&directory);
            assert!(kept.is_possible() && (why.is_none() || kept == Kept::default()));
        }
        let impossible = Kept { quantum_ms: Some(0), ..some() };
        impossible.store(&directory).unwrap();
        assert!(Kept::load(&directory).1.unwrap().contains("means nothing"));
        let mut bytes = Vec::new();
        append(&(VERSION + 1, 7_u8), &mut bytes);
        fs::write(&path, bytes).unwrap();
        assert!(Kept::load(&directory).1.unwrap().contains("version 3"));
        for nonsense in [vec![], vec![0xff; 4], vec![0; MOST_BYTES + 1]] {
            fs::write(&path, nonsense).unwrap();
            assert!(Kept::load(&directory).1.is_some());
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(Kept::load(&directory).1.is_some());
    }
}

//! Status and settings.

use std::time::{Duration, Instant};

use super::Daemon;
use super::connection::Ended;
use super::kept::Known;
use super::session::{Role, Session, SessionId};
use crate::control::{Answer, CONTROL_PROTOCOL, Request, Setting, Status, Target, Versioned};
use crate::policy::Event;
use crate::protocol::DeviceId;

/// Turns shorter than this would be nothing but switches.
pub(super) const LEAST_QUANTUM_MS: u64 = 10;
pub(super) const MOST_QUANTUM_MS: u64 = 24 * 3_600_000;

impl Daemon {
    pub(super) fn serve_control(&mut self, id: SessionId) -> Result<(), Ended> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
        session.connection.send_rest()?;
        session.connection.receive()?;
        let Some(protocol) = session.connection.peek::<u32>()? else { return Ok(()) };
        let answer = if protocol == CONTROL_PROTOCOL {
            match session.connection.take::<Versioned>()? {
                Some(asked) => self.answer(asked.request),
                None => return Ok(()),
            }
        } else {
            Answer::Refused(format!(
                "the daemon speaks version {CONTROL_PROTOCOL} and you {protocol}: use the millpond of its release"
            ))
        };
        let refused = protocol != CONTROL_PROTOCOL;
        let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
        (session.role, session.since) = (Role::Control { asked: true }, Instant::now());
        session.connection.say(&answer)?;
        if refused { Err(Ended::Closed) } else { Ok(()) }
    }

    pub(super) fn status(&self) -> Status {
        let now = self.start.elapsed();
        Status {
            devices: self.devices.iter().map(|(id, device)| device.status(*id, now)).collect(),
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => Answer::Status(self.status()),
            Request::Set(setting) => match self.set(setting) {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Refused(reason),
            },
        }
    }

    fn set(&mut self, setting: Setting) -> Result<(), String> {
        let all: Vec<DeviceId> = self.devices.keys().copied().collect();
        let mut concerned = all.clone();
        let mut clients = Vec::new();
        let mut only = None;
        match &setting {
            Setting::Quantum { quantum_ms, .. }
                if !(LEAST_QUANTUM_MS..=MOST_QUANTUM_MS).contains(quantum_ms) =>
            {
                return Err("a quantum is from 10ms to 24h".to_owned());
            }
            Setting::Quantum { device: Some(index), .. } => {
                let device = all.get(*index as usize).ok_or_else(|| {
                    format!("there is no device {index}: `millpond share status` lists them from 0")
                })?;
                concerned = vec![*device];
                only = Some(*device);
            }
            Setting::Quantum { device: None, quantum_ms } => {
                self.settings.quantum = Duration::from_millis(*quantum_ms);
            }
            Setting::Weight(_, 0) => return Err("a weight is at least 1".to_owned()),
            Setting::Weight(target, _)
            | Setting::Priority(target, _)
            | Setting::MemoryLimit(target, _) => {
                clients = self.find(*target)?;
            }
            Setting::Prefetch(prefetch) => self.settings.prefetch = *prefetch,
            Setting::Turns(on) => self.settings.turns = *on,
        }
        for device in concerned {
            self.happened(device, Event::Set(setting.clone()));
        }
        self.kept.note(&setting, only, &clients);
        // It holds for this daemon at least.
        if let Err(error) = self.kept.store(self.place.directory()) {
            self.log.say(format!("what was set cannot be kept for the next daemon: {error}"));
        }
        Ok(())
    }

    /// The clients that a setting is for.
    fn find(&self, target: Target) -> Result<Vec<Known>, String> {
        let is_meant = |session: &&Session| match target {
            Target::Process(pid) => session.pid() == Some(pid),
            Target::Everyone => true,
        };
        let meant = self.sessions.iter().map(|(_, session)| session).filter(is_meant);
        let found: Vec<Known> = meant.filter_map(Session::known).collect();
        match target {
            Target::Process(pid) if found.is_empty() => {
                Err(format!("process {pid} is no client: `millpond share status` lists them"))
            }
            _ => Ok(found),
        }
    }
}

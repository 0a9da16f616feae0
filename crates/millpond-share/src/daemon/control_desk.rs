//! Status and settings.

use std::time::{Duration, Instant};

use super::Daemon;
use super::connection::Ended;
use super::guest::{GuestNumber, Role};
use crate::control::{Answer, CONTROL_PROTOCOL, Request, Setting, Status, Versioned, Whom};
use crate::policy::Event;
use crate::protocol::DeviceId;

/// Turns shorter than this would be nothing but switches.
const LEAST_QUANTUM_MS: u64 = 10;
const MOST_QUANTUM_MS: u64 = 24 * 3_600_000;

impl Daemon {
    pub(super) fn serve_control(&mut self, number: GuestNumber) -> Result<(), Ended> {
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        guest.connection.send_rest()?;
        guest.connection.receive()?;
        let Some(protocol) = guest.connection.peek::<u32>()? else { return Ok(()) };
        let answer = if protocol == CONTROL_PROTOCOL {
            match guest.connection.take::<Versioned>()? {
                Some(asked) => self.answer(asked.request),
                None => return Ok(()),
            }
        } else {
            Answer::Refused(format!(
                "the daemon speaks version {CONTROL_PROTOCOL} and you {protocol}: use the millpond of its release"
            ))
        };
        let refused = protocol != CONTROL_PROTOCOL;
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        (guest.role, guest.since) = (Role::Control { asked: true }, Instant::now());
        guest.connection.say(&answer)?;
        if refused { Err(Ended::Closed) } else { Ok(()) }
    }

    pub(super) fn status(&self) -> Status {
        let now = self.now();
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
            }
            Setting::Quantum { device: None, quantum_ms } => {
                self.settings.quantum = Duration::from_millis(*quantum_ms);
            }
            Setting::Weight(_, 0) => return Err("a weight is at least 1".to_owned()),
            Setting::Weight(whom, _)
            | Setting::Priority(whom, _)
            | Setting::MemoryLimit(whom, _) => {
                self.find(*whom)?;
            }
            Setting::Prefetch(prefetch) => self.settings.prefetch = *prefetch,
            Setting::Turns(on) => self.settings.turns = *on,
        }
        for device in concerned {
            self.happened(device, Event::Set(setting.clone()));
        }
        Ok(())
    }

    fn find(&self, whom: Whom) -> Result<(), String> {
        let Whom::Process(pid) = whom else { return Ok(()) };
        let clients = self.guests.values().filter(|guest| guest.is_client());
        match clients.filter_map(|guest| guest.pid()).any(|known| known == pid) {
            true => Ok(()),
            false => Err(format!("process {pid} is no client: `millpond share status` lists them")),
        }
    }
}

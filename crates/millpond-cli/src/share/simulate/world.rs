//! Jobs, the policy between them, and the simulated GPU below: everything in simulated time.

use std::time::Duration;

use anyhow::{Result, bail};
use millpond_share::control::{ClientStatus, DeviceStatus};
use millpond_share::policy::{Action, ClientId, Event, Moment, Policy, Settings};
use millpond_sim::{FaultModel, Profile, SimGpu, SimOptions};

use super::job::{HookSettings, Job};
use super::spec::JobSpec;
use super::timeline::Timeline;

/// What is played.
#[derive(Clone, Debug)]
pub(super) struct Play {
    pub(super) profile: Profile,
    pub(super) faults: FaultModel,
    pub(super) settings: Settings,
    pub(super) jobs: Vec<JobSpec>,
    /// The part of the time in which memory is faulted in that is hidden behind computing.
    pub(super) overlap: f64,
    pub(super) seed: u64,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub(super) struct JobOutcome {
    pub(super) alone: Duration,
    pub(super) finished: Moment,
    /// What the policy knew of it when it left.
    pub(super) status: ClientStatus,
    pub(super) timeline: Timeline,
}

/// What came of it all.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) jobs: Vec<JobOutcome>,
    pub(super) wall: Duration,
    pub(super) switches: u64,
    /// The turns as long as they were at the end.
    pub(super) effective_quantum_ms: u64,
    /// As the simulated GPU counted them.
    pub(super) moved_in_bytes: u64,
    pub(super) moved_out_bytes: u64,
}

impl Outcome {
    /// The time that the jobs would have taken one after the other, alone, to the time that they took.
    pub(super) fn useful_share(&self) -> f64 {
        let alone: Duration = self.jobs.iter().map(|job| job.alone).sum();
        alone.as_secs_f64() / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

struct World {
    gpu: SimGpu,
    policy: Policy,
    jobs: Vec<Job>,
    left: Vec<Option<ClientStatus>>,
    /// The device computes one kernel at a time; whoever has waited longest is next.
    computes_until: Moment,
    next_to_compute: usize,
    /// Those without the hook have nobody to speak to.
    is_alone: bool,
    /// The longest that turns had become when a job left others behind.
    effective_quantum_ms: u64,
}

/// Plays jobs to their end.
pub(super) fn play(play: &Play) -> Result<Outcome> {
    let alone = times_alone(play)?;
    let hook = HookSettings {
        prefetch: play.settings.prefetch,
        idle: play.settings.idle,
        overlap: play.overlap,
    };
    let options = SimOptions { seed: play.seed, fault_model: play.faults, ..SimOptions::default() };
    let mut world = World::new(SimGpu::with_options(play.profile.clone(), options), &play.settings);
    for (number, spec) in play.jobs.iter().enumerate() {
        let client = ClientId(number as u64 + 1);
        world.jobs.push(Job::new(client, spec.clone(), hook, play.seed));
    }
    world.left = vec![None; play.jobs.len()];
    world.run()?;
    let status = world.policy.status(world.gpu.now());
    let traffic = world.gpu.managed_traffic();
    let jobs: Vec<_> = world.jobs.into_iter().zip(world.left).zip(alone).collect();
    let jobs = jobs
        .into_iter()
        .map(|((job, left), alone)| JobOutcome {
            alone,
            finished: job.finished().expect("all have"),
            status: left.expect("it has left"),
            timeline: job.timeline,
        })
        .collect::<Vec<_>>();
    Ok(Outcome {
        wall: jobs.iter().map(|job| job.finished).max().unwrap_or_default(),
        jobs,
        switches: status.switches,
        effective_quantum_ms: world.effective_quantum_ms.max(status.quantum_ms),
        moved_in_bytes: traffic.moved_in_bytes,
        moved_out_bytes: traffic.moved_out_bytes,
    })
}

/// How long each job takes on a device of its own, in plain memory. Equal jobs are played once.
fn times_alone(play: &Play) -> Result<Vec<Duration>> {
    let mut known: Vec<(JobSpec, Duration)> = Vec::new();
    let mut times = Vec::new();
    for spec in &play.jobs {
        let spec = JobSpec { start: Duration::ZERO, weight: 1, priority: 0, ..spec.clone() };
        if let Some((_, time)) = known.iter().find(|(other, _)| *other == spec) {
            times.push(*time);
            continue;
        }
        let gpu = SimGpu::new(play.profile.clone());
        let job = Job::alone(&gpu, spec.clone(), play.seed)?;
        let began = gpu.now();
        let mut world = World { is_alone: true, ..World::new(gpu, &play.settings) };
        world.jobs.push(job);
        world.run()?;
        let time = world.jobs[0].finished().expect("it has") - began;
        known.push((spec, time));
        times.push(time);
    }
    Ok(times)
}

impl World {
    fn new(gpu: SimGpu, settings: &Settings) -> World {
        World {
            gpu,
            policy: Policy::new(settings.clone()),
            jobs: Vec::new(),
            left: Vec::new(),
            computes_until: Moment::ZERO,
            next_to_compute: 0,
            is_alone: false,
            effective_quantum_ms: 0,
        }
    }

    fn run(&mut self) -> Result<()> {
        loop {
            self.do_what_can_be_done_now()?;
            if self.jobs.iter().all(|job| job.finished().is_some()) {
                return Ok(());
            }
            let now = self.gpu.now();
            let policy = self.policy.next_moment().filter(|_| !self.is_alone);
            let own = self.jobs.iter().filter_map(Job::next_moment);
            let Some(next) = own.chain(policy).filter(|&next| next > now).min() else {
                bail!("nobody can go on at {now:?}: this is a mistake in the simulation");
            };
            self.gpu.advance(next - now);
        }
    }

    /// Until nobody has anything more to say.
    fn do_what_can_be_done_now(&mut self) -> Result<()> {
        loop {
            let mut said = Vec::new();
            for job in &mut self.jobs {
                job.step(&self.gpu, self.gpu.now(), &mut said)?;
            }
            self.compute()?;
            if self.is_alone {
                return Ok(());
            }
            let now = self.gpu.now();
            if self.policy.next_moment().is_some_and(|moment| moment <= now) {
                said.push(Event::Nothing);
            }
            // Memory that nothing is in yet comes in no time.
            if said.is_empty() && !self.jobs.iter().any(|job| job.has_just_moved(now)) {
                return Ok(());
            }
            said.into_iter().for_each(|event| self.tell(now, event));
        }
    }

    /// Lets the next job that has a kernel run it, if the device is free.
    fn compute(&mut self) -> Result<()> {
        if self.computes_until > self.gpu.now() {
            return Ok(());
        }
        let jobs = self.jobs.len();
        let in_turn = (0..jobs).map(|place| (self.next_to_compute + place) % jobs);
        if let Some(ready) = in_turn.into_iter().find(|&job| self.jobs[job].is_ready()) {
            self.computes_until = self.jobs[ready].launch(&self.gpu)?;
            self.next_to_compute = (ready + 1) % jobs;
        }
        Ok(())
    }

    fn tell(&mut self, now: Moment, event: Event) {
        if let Event::Left(client) = event {
            let DeviceStatus { clients, effective_quantum_ms, .. } = self.policy.status(now);
            let number = client.0 as usize - 1;
            // One that is left alone has no turns.
            if clients.len() > 1 {
                self.effective_quantum_ms = self.effective_quantum_ms.max(effective_quantum_ms);
            }
            self.left[number] =
                clients.into_iter().find(|status| u64::from(status.pid) == client.0);
        }
        for action in self.policy.handle(now, event) {
            if let Action::Tell(client, message) = action {
                self.jobs[client.0 as usize - 1].hear(&self.gpu, now, &message);
            }
        }
    }
}

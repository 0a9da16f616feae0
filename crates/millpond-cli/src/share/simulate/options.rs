//! What `millpond share simulate` can be told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use millpond::device::DeviceName;
use millpond_share::policy::Settings;
use millpond_share::protocol::Prefetch;
use millpond_sim::{FaultModel, Profile};

use super::spec::{self, JobOption, JobSpec};
use super::world::Play;
use crate::cli::JsonOption;
use crate::device::{DEVICE_VARIABLE, whole_name};
use crate::duration;

/// The seed document's case.
const USUAL_DEVICE: &str = "sim:v100-16g";
const USUAL_LINK: f64 = 16e9;

/// No more jobs than this.
const MOST_JOBS: usize = 1000;

#[derive(Debug, Args)]
pub(crate) struct SimulateOptions {
    /// How many jobs there are
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// The memory of each
    #[arg(long, value_name = "SIZE", default_value = "12GB", value_parser = spec::size)]
    bytes: u64,
    /// How long each works, alone
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = spec::some_time)]
    work: Duration,
    /// A job that is different, such as bytes=8GB,work=2m,cpu=50%,phase=20s,touch=60%,sweep=1s,weight=2,priority=1,user=1000,start=10s
    ///
    /// Each part may be left out. cpu is the part of its time that it computes on the host, phase the time from one such stretch to the next,
    /// touch the part of its memory that its kernels touch, sweep how long they take to go through that once. Repeat it for more jobs.
    #[arg(long, value_name = "KEY=VALUE,…")]
    job: Vec<JobOption>,
    /// How long a turn is
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = spec::some_time)]
    quantum: Duration,
    /// After how long with nothing to do a job gives up the device, if another waits
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = duration::parse)]
    idle: Duration,
    /// What is brought in before a job goes on
    #[arg(long, value_enum, value_name = "WHAT", default_value = "working-set")]
    prefetch: PrefetchOption,
    /// How pages come in that were not brought in: as a driver does it, or one by one at the seed document's price
    #[arg(long, value_enum, value_name = "MODEL", default_value = "driver")]
    faults: FaultsOption,
    /// The part of the time for faults that is hidden behind computing
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = spec::share)]
    overlap: f64,
    /// Whether jobs take turns
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "on")]
    turns: Switch,
    /// The simulated device; without it, sim:v100-16g
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// How fast the link is in each direction; without it, what the device has, or 16GB/s if none is named
    #[arg(long, value_name = "RATE", value_parser = spec::rate)]
    link: Option<f64>,
    /// Set the measurements of nvshare's thesis beside what the simulation predicts, instead
    #[arg(long, conflicts_with_all = ["jobs", "job", "quantum", "prefetch", "faults", "overlap", "turns", "device", "link", "html"])]
    pub(super) thesis: bool,
    /// What every random choice follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write a page with the timeline to a file, for any browser
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) json: JsonOption,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PrefetchOption {
    /// Nothing: pages come in as they are touched
    Off,
    /// Everything
    All,
    /// What the last turns used
    WorkingSet,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FaultsOption {
    /// Each page by itself, 15 microseconds each
    Naive,
    /// In batches, and what has become dense comes along
    Driver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl SimulateOptions {
    /// What is to be played, if it can be.
    pub(super) fn play(&self) -> Result<Play> {
        let profile = self.profile()?;
        let settings = Settings {
            quantum: self.quantum,
            idle: self.idle,
            prefetch: match self.prefetch {
                PrefetchOption::Off => Prefetch::Off,
                PrefetchOption::All => Prefetch::All,
                PrefetchOption::WorkingSet => Prefetch::WorkingSet,
            },
            turns: self.turns == Switch::On,
            ..Settings::default()
        };
        let faults = match self.faults {
            FaultsOption::Naive => FaultModel::Naive,
            FaultsOption::Driver => FaultModel::Driver,
        };
        let jobs = self.specs(&profile)?;
        Ok(Play { profile, faults, settings, jobs, overlap: self.overlap, seed: self.seed })
    }

    fn profile(&self) -> Result<Profile> {
        let variable = std::env::var(DEVICE_VARIABLE).ok().filter(|name| !name.is_empty());
        let named = self.device.clone().or(variable);
        let is_usual = named.is_none();
        let name = named.map_or_else(|| USUAL_DEVICE.to_owned(), |name| whole_name(&name));
        let DeviceName::Simulated(profile) = name.parse()? else {
            bail!("'{name}' is a real device: name a simulated one, such as {USUAL_DEVICE}");
        };
        let mut profile = Profile::named(&profile)?;
        if let Some(rate) = self.link.or(is_usual.then_some(USUAL_LINK)) {
            set_link(&mut profile, rate);
        }
        Ok(profile)
    }

    fn specs(&self, profile: &Profile) -> Result<Vec<JobSpec>> {
        let usual = JobSpec {
            bytes: self.bytes,
            work: self.work,
            cpu_share: 0.0,
            phase: Duration::from_secs(20),
            touch_share: 1.0,
            sweep: Duration::from_secs(1),
            weight: 1,
            priority: 0,
            user: 0,
            start: Duration::ZERO,
        };
        let alike = self.jobs.unwrap_or(if self.job.is_empty() { 2 } else { 0 });
        let jobs: Vec<_> = std::iter::repeat_n(usual.clone(), alike.min(MOST_JOBS + 1))
            .chain(self.job.iter().map(|job| job.of(&usual)))
            .collect();
        if jobs.is_empty() || jobs.len() > MOST_JOBS {
            bail!("there are {} jobs: let there be 1 to {MOST_JOBS}", alike + self.job.len());
        }
        let capacity = profile.capacity_bytes as u64;
        if let Some(job) = jobs.iter().find(|job| job.bytes == 0 || job.bytes > capacity) {
            let bytes = job.bytes;
            bail!("a job of {bytes} bytes: the device has {capacity}, and each must fit on it");
        }
        Ok(jobs)
    }
}

/// The link is as fast as this each way, and carries as much both ways at once as before in proportion.
fn set_link(profile: &mut Profile, rate: f64) {
    let both = profile.link_both / profile.link_to_device.max(profile.link_to_host);
    (profile.link_to_device, profile.link_to_host) = (rate, rate);
    profile.link_both = both * rate;
}

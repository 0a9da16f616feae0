//! What a simulated job is like.

use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use millpond::nearest::suggestion;
use serde::Serialize;

use crate::duration;

/// What a simulated job is like. Times are those of the job alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct JobSpec {
    /// Its memory.
    pub(crate) bytes: u64,
    /// How long it works, alone and without sharing.
    pub(crate) work: Duration,
    /// The part of that in which it computes on the host and has nothing for the device.
    pub(crate) cpu_share: f64,
    /// How long it takes from one such stretch to the next.
    pub(crate) phase: Duration,
    /// The part of its memory that its kernels touch.
    pub(crate) touch_share: f64,
    /// How long its kernels take to go through that memory once.
    pub(crate) sweep: Duration,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    /// Whose it is: turns are fair between users first.
    pub(crate) user: u32,
    /// When it comes.
    pub(crate) start: Duration,
}

/// Of a `--job`: what it says. The rest is as for all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobOption {
    bytes: Option<u64>,
    work: Option<Duration>,
    cpu_share: Option<f64>,
    phase: Option<Duration>,
    touch_share: Option<f64>,
    sweep: Option<Duration>,
    weight: Option<u32>,
    priority: Option<i32>,
    user: Option<u32>,
    start: Option<Duration>,
}

const KEYS: [&str; 10] =
    ["bytes", "work", "cpu", "phase", "touch", "sweep", "weight", "priority", "user", "start"];

impl JobOption {
    pub(crate) fn of(&self, usual: &JobSpec) -> JobSpec {
        JobSpec {
            bytes: self.bytes.unwrap_or(usual.bytes),
            work: self.work.unwrap_or(usual.work),
            cpu_share: self.cpu_share.unwrap_or(usual.cpu_share),
            phase: self.phase.unwrap_or(usual.phase),
            touch_share: self.touch_share.unwrap_or(usual.touch_share),
            sweep: self.sweep.unwrap_or(usual.sweep),
            weight: self.weight.unwrap_or(usual.weight),
            priority: self.priority.unwrap_or(usual.priority),
            user: self.user.unwrap_or(usual.user),
            start: self.start.unwrap_or(usual.start),
        }
    }
}

impl FromStr for JobOption {
    type Err = String;

    fn from_str(text: &str) -> Result<JobOption, String> {
        let mut job = JobOption::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not of the form key=value"))?;
            match key {
                "bytes" => job.bytes = Some(size(value)?),
                "work" => job.work = Some(some_time(value)?),
                "cpu" => job.cpu_share = Some(share(value)?),
                "phase" => job.phase = Some(some_time(value)?),
                "touch" => job.touch_share = Some(share(value)?),
                "sweep" => job.sweep = Some(some_time(value)?),
                "weight" => job.weight = Some(number(value)?),
                "priority" => job.priority = Some(number(value)?),
                "user" => job.user = Some(number(value)?),
                "start" => job.start = Some(duration::parse(value)?),
                _ => {
                    let meant = suggestion(key, KEYS.iter().copied());
                    return Err(format!("a job has no '{key}'{meant} ({})", KEYS.join(", ")));
                }
            }
        }
        Ok(job)
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("'{text}' is no whole number that fits"))
}

/// A size, such as `12GB` or `11GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>().map_err(|_| {
        format!("'{text}' is no size: use a number and a unit, such as 12GB or 11GiB")
    })?;
    Ok(size.as_u64())
}

/// A duration of some length.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        time if time < Duration::from_millis(1) => Err(format!("'{text}' is too short")),
        time => Ok(time),
    }
}

/// `60%` or `0.6`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    parsed
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is no share: use a percentage, such as 60%"))
}

/// Bytes per second, such as `16GB/s`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no rate: use a size and /s, such as 16GB/s");
    let bytes = size(text.strip_suffix("/s").ok_or_else(wrong)?).map_err(|_| wrong())?;
    if bytes == 0 { Err(wrong()) } else { Ok(bytes as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_only_what_is_special() {
        let usual = JobSpec {
            bytes: 1,
            work: Duration::from_secs(1),
            cpu_share: 0.0,
            phase: Duration::from_secs(10),
            touch_share: 1.0,
            sweep: Duration::from_secs(1),
            weight: 1,
            priority: 0,
            user: 0,
            start: Duration::ZERO,
        };
        let job: JobOption =
            "bytes=12GB,cpu=50%,weight=2,priority=-1,user=7,start=10s".parse().unwrap();
        let expected = JobSpec {
            bytes: 12_000_000_000,
            cpu_share: 0.5,
            weight: 2,
            priority: -1,
            user: 7,
            start: Duration::from_secs(10),
            ..usual.clone()
        };
        assert_eq!(job.of(&usual), expected);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in ["bytes", "byte=1GB", "cpu=120%", "work=0s", "weight=-1", "", "bytes=1GB,,"] {
            assert!(wrong.parse::<JobOption>().is_err(), "{wrong}");
        }
        let meant = "byts=1GB".parse::<JobOption>().unwrap_err();
        assert!(meant.contains("did you mean 'bytes'?"), "{meant}");
        assert_eq!(rate("16GB/s"), Ok(16e9));
        assert!(rate("16GB").is_err() && rate("0B/s").is_err() && rate("fast/s").is_err());
    }
}

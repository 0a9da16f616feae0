//! What can be typed after `millpond share`.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum};
use millpond_share::daemon::MetricsAt;
use millpond_share::policy::{Allowance, MOST_PRIORITY, MOST_WEIGHT};
use millpond_share::protocol::Prefetch;
use millpond_share::rendezvous::{self, RelativeRuntime};

use super::simulate::SimulateOptions;
use crate::cli::JsonOption;
use crate::duration;

#[derive(Debug, Args)]
pub(crate) struct ShareOptions {
    #[command(subcommand)]
    pub(crate) command: ShareCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Run the daemon that gives programs their turns
    Serve(ServeOptions),
    /// Run a program, unmodified, as one of those that share
    Run(RunOptions),
    /// Show who shares which device, and what is where
    Status(StatusOptions),
    /// Watch it
    Top(TopOptions),
    /// Change how devices are shared
    Set(SetOptions),
    /// Play sharing with jobs of any number and size, on a simulated GPU in simulated time
    Simulate(Box<SimulateOptions>),
}

fn weights() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=i64::from(MOST_WEIGHT))
}

fn priorities() -> impl TypedValueParser<Value = i32> {
    let most = i64::from(MOST_PRIORITY);
    clap::value_parser!(i32).range(-most..=most)
}

/// Where the daemon is.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The directory of the daemon's sockets
    #[arg(long, value_name = "DIR", env = rendezvous::DIRECTORY_VARIABLE, hide_env_values = true)]
    dir: Option<PathBuf>,
}

impl Place {
    /// Where a daemon is looked for.
    pub(crate) fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(rendezvous::directory)
    }

    /// Where a daemon is started.
    pub(crate) fn own_directory(&self) -> Result<PathBuf, RelativeRuntime> {
        self.dir.clone().map_or_else(rendezvous::own_directory, Ok)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// How long a turn is; without it, as it was last set, or 30s
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) quantum: Option<Duration>,
    /// What is brought to the device before a program's work goes on; without it, as it was last set, or working-set
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) prefetch: Option<PrefetchOption>,
    /// How long a program may take to give up the device before it is warned, and again before it is dealt with
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    /// What becomes of a program that does not give up the device
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = WhenStuckOption::Revoke)]
    pub(crate) when_stuck: WhenStuckOption,
    /// A program that has had nothing to do for so long gives up the device, if another waits
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "300ms")]
    pub(crate) idle: Duration,
    /// Device memory that no program gets, beside what contexts and programs that do not share have already; at most half with that
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) reserve: ByteSize,
    /// Let every user of the machine share, not only your own programs; turns are fair between users
    #[arg(long)]
    pub(crate) everyone: bool,
    /// The most weight that programs of other users may ask for; your own and root's may ask for any
    #[arg(long, value_name = "N", value_parser = weights(), default_value_t = Allowance::default().most_weight)]
    pub(crate) most_weight: u32,
    /// The highest priority that programs of other users may ask for, from -10 to 10
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = priorities(), default_value_t = Allowance::default().most_priority)]
    pub(crate) most_priority: i32,
    /// Metrics for Prometheus: `socket`, for you alone, in the daemon's directory; a port of the loopback, 0 takes a free one; or an
    /// address and port, such as 10.0.0.7:9427
    #[arg(long, value_name = "WHERE", value_parser = metrics_place)]
    pub(crate) metrics: Option<MetricsAt>,
    /// A name or address of this host that requests for metrics may use beside localhost; may be given several times
    #[arg(long, value_name = "HOST", requires = "metrics")]
    pub(crate) metrics_host: Vec<String>,
    /// Put programs' names among the metrics also over TCP, where every user of the machine can read them
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_names: bool,
}

/// `socket`, a port of the loopback, or an address and port.
fn metrics_place(text: &str) -> Result<MetricsAt, String> {
    if text == "socket" {
        return Ok(MetricsAt::Socket);
    }
    let port = text.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    let address = port.or_else(|_| text.parse());
    address.map(MetricsAt::Tcp).map_err(|_| {
        "use `socket`, a port, or an address and port such as 10.0.0.7:9427".to_owned()
    })
}

/// What is brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrefetchOption {
    /// What the program's last turns used
    WorkingSet,
    /// Everything it has
    All,
    /// Nothing: the driver brings in what is touched, page by page
    Off,
}

impl From<PrefetchOption> for Prefetch {
    fn from(option: PrefetchOption) -> Prefetch {
        match option {
            PrefetchOption::WorkingSet => Prefetch::WorkingSet,
            PrefetchOption::All => Prefetch::All,
            PrefetchOption::Off => Prefetch::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhenStuckOption {
    /// The next one gets the device all the same
    Revoke,
    /// Its process is killed
    End,
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// How long its turns are, in quanta; another user's daemon allows 1 unless it says otherwise
    #[arg(long, value_name = "N", value_parser = weights())]
    pub(crate) weight: Option<u32>,
    /// A higher one goes first, from -10 to 10; those that wait gain on the others; another user's daemon allows up to 0
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = priorities())]
    pub(crate) priority: Option<i32>,
    /// The most device memory it may allocate, such as 8GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<ByteSize>,
    /// What to call it in `status`, instead of the program's name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The program and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1s")]
    pub(crate) every: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct SetOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) json: JsonOption,
    #[command(subcommand)]
    pub(crate) what: What,
}

/// What can be changed.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// How long a turn is, such as 10s
    Quantum {
        /// The length
        #[arg(value_parser = duration::parse)]
        quantum: Duration,
        /// On this device only, by its number in `status`
        #[arg(long, value_name = "N")]
        device: Option<u32>,
    },
    /// How long a program's turns are, in quanta
    Weight {
        /// Quanta
        #[arg(value_parser = weights())]
        weight: u32,
        /// The program; without it, all
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
    },
    /// Who goes first
    Priority {
        /// From -10 to 10
        #[arg(allow_negative_numbers = true, value_parser = priorities())]
        priority: i32,
        /// The program; without it, all
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
    },
    /// The most a program may allocate
    MemoryLimit {
        /// Such as 8GiB, or none
        limit: Limit,
        /// The program; without it, all
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
    },
    /// What is brought to the device before a program's work goes on
    Prefetch {
        /// What
        what: PrefetchOption,
    },
    /// No turns: everyone uses the device at any time, as if there were no daemon
    Off,
    /// Turns again
    On,
}

/// `none`, or a size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(pub(crate) Option<u64>);

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        match text {
            "none" => Ok(Limit(None)),
            size => size.parse().map(|size: ByteSize| Limit(Some(size.0))),
        }
    }
}

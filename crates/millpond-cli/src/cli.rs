//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::explain::At;
use crate::share::ShareOptions;

/// GPU memory without a GPU: see what devices are made of, and run allocators on them.
#[derive(Debug, Parser)]
#[command(
    name = "millpond",
    // Not by what the program was called as.
    bin_name = "millpond",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Devices are named sim:PROFILE, or PROFILE alone (a100-80g, h100-80g, v100-16g, rtx4090-24g, p100-16g, or the path \
                  of a profile file), and cuda:N. MILLPOND_DEVICE names the one that is used when none is given.\n\n\
                  Exit codes: 0 done, 1 ran with a negative result, 2 bad input or usage.\n\n\
                  Examples:\n  \
                  millpond devices                            every device, and which is the default\n  \
                  millpond devices --device sim:h100-80g      all figures of one, with their sources\n  \
                  millpond devices --json                     the same for programs\n  \
                  millpond allocators                         what allocators are made of: pool, limit:4GiB/pool, …\n  \
                  millpond bench                              what an allocate and free costs, beside other allocators\n  \
                  millpond bench --workload W1,W2 --quick     a first impression\n  \
                  millpond compare                            every allocator in thirteen scenarios, and what follows\n  \
                  millpond compare --scenario churn --allocator pool,async\n  \
                  millpond replay snapshot.pickle             what every allocator would have reserved for a recorded job\n  \
                  millpond replay snapshot.pickle --allocator pool,torch --capacity 16GiB\n  \
                  millpond replay snapshot.pickle --html F    the same as a page: charts, memory maps, tables\n  \
                  millpond recommend snapshot.pickle --capacity 16GiB\n  \
                  millpond explain snapshot.pickle --at peak   what held memory, by size and age\n  \
                  millpond replay snapshot.pickle --allocator pool --snapshot pool.pickle   for PyTorch's memory viewer\n  \
                  millpond convert snapshot.pickle trace.mptrace   to RMM's log (.csv), Millpond's own file or a snapshot\n  \
                  millpond share serve                        let programs take turns on a GPU …\n  \
                  millpond share run -- python train.py       … such as this one\n  \
                  millpond share simulate --jobs 3 --bytes 12GB   what sharing a GPU would cost, without one\n  \
                  millpond completions bash > /etc/bash_completion.d/millpond"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the devices there are, or everything known of one
    Devices(DevicesOptions),
    /// List the resources and adaptors that allocators are made of, with their options and defaults
    Allocators(AllocatorsOptions),
    /// Measure what an allocate and free costs the host, beside other allocators in the same run
    Bench(BenchOptions),
    /// Play the experiments of the seed documents with every allocator, and say what follows
    Compare(CompareOptions),
    /// Let other allocators do what a program's recorded one did, and see what they would have reserved
    Replay(ReplayOptions),
    /// Find the allocator and settings for a recorded job, and print the lines to paste
    Recommend(RecommendOptions),
    /// Say what held memory at a moment of a recorded job, and what recovery would have yielded
    Explain(ExplainOptions),
    /// Write a trace in another format
    Convert(ConvertOptions),
    /// Share a GPU between programs that together do not fit on it
    Share(ShareOptions),
    /// Print a shell's completions, to be put where the shell looks for them
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands to a directory
    Man {
        /// Where to write millpond.1, millpond-devices.1, …
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DevicesOptions {
    /// Show all figures of this device, with their sources
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct AllocatorsOptions {
    /// Show only these
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Run only these: W1, W2, W3, W4, W5, W5x
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) workload: Vec<String>,
    /// Measure only these: names of the table, and stacks such as limit:4GiB/pool; ratios need mimalloc among them
    ///
    /// `millpond allocators` lists what stacks are made of. Several are separated by commas, or the option is repeated.
    #[arg(long, value_name = "STACK")]
    pub(crate) allocator: Vec<String>,
    /// The device that Millpond's own allocators run on
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Fewer repetitions
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run so many pairs once and report nothing: for programs that count instructions
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) count_pairs: Option<usize>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// Play only these, such as churn or near-exhaustion
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) scenario: Vec<String>,
    /// Compare only these, such as pool:slack=0 or limit:4GiB/pool; without it, all that take device memory
    ///
    /// `millpond allocators` lists what stacks are made of. Several are separated by commas, or the option is repeated.
    #[arg(long, value_name = "STACK")]
    pub(crate) allocator: Vec<String>,
    /// The device to play on
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// What every random choice follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write a page with the figures, the winners and the advice to a file, for any browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayOptions {
    /// PyTorch memory snapshots (.pickle), RMM logs (.csv), Millpond's own (.mptrace), each also compressed (.gz); - is standard input
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,
    /// Replay with only these, such as pool:slack=0 or limit:4GiB/pool; without it, with all that take device memory
    ///
    /// `millpond allocators` lists what stacks are made of. Several are separated by commas, or the option is repeated.
    #[arg(long, value_name = "STACK")]
    pub(crate) allocator: Vec<String>,
    #[command(flatten)]
    pub(crate) bench: BenchDevice,
    /// What the driver answers when an allocator takes a segment
    ///
    /// With recorded addresses an allocator that decides as the recorded one did hands out the recorded addresses, and MATCHED says how many of
    /// them. It needs a trace that has the segments of its allocator: a PyTorch memory snapshot, or what was converted from one.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Addresses::Simulated)]
    pub(crate) addresses: Addresses,
    /// Do not look for the smallest device that each allocator could do it on
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write a page with charts, memory maps and tables to a file, for any browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write what the allocator does as a snapshot for PyTorch's memory viewer
    ///
    /// For one trace and one allocator: the memory it takes from the driver and the blocks it hands out, at their addresses.
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct RecommendOptions {
    /// A PyTorch memory snapshot, an RMM log, or a trace of Millpond's own
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) bench: BenchDevice,
    /// Which of the recorded devices, where there are several
    #[arg(long, value_name = "N")]
    pub(crate) trace_device: Option<u32>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// A PyTorch memory snapshot, an RMM log, or a trace of Millpond's own
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// The moment: the number of an event, peak (the most is live), or oom (memory ran out when it was recorded, or else runs out here)
    #[arg(long, value_name = "EVENT", default_value = "peak")]
    pub(crate) at: At,
    /// The allocator that holds the memory; without it, PyTorch's as it was recorded: with expandable segments or not
    #[arg(long, value_name = "STACK")]
    pub(crate) allocator: Option<String>,
    #[command(flatten)]
    pub(crate) bench: BenchDevice,
    /// Which of the recorded devices, where there are several
    #[arg(long, value_name = "N")]
    pub(crate) trace_device: Option<u32>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertOptions {
    /// A PyTorch memory snapshot, an RMM log, or Millpond's own file, also compressed (.gz)
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// What to write; its ending tells the format: .csv, .mptrace, .pickle, each also with .gz
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The format, where the ending does not tell it
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<TraceFormat>,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

/// Where segments lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Addresses {
    /// Where the simulated device puts them
    Simulated,
    /// Where those of the recorded allocator lay
    Recorded,
}

/// How a trace is written down.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TraceFormat {
    /// RMM's log
    Csv,
    /// Millpond's own compact file
    Millpond,
    /// PyTorch's memory snapshot
    Snapshot,
}

/// The device that a trace is replayed on.
#[derive(Debug, Args)]
pub(crate) struct BenchDevice {
    /// The device's memory, such as 16GiB, instead of what its profile says; rounded down to pages of 2 MiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<bytesize::ByteSize>,
    /// The device to replay on
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How many events the device runs behind the host
    #[arg(long, value_name = "EVENTS", default_value_t = 2000)]
    pub(crate) lag: u32,
}

/// `--json[=FILE]`, on every command that reports something.
#[derive(Debug, Args)]
pub(crate) struct JsonOption {
    /// Print JSON, or write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<String>,
}

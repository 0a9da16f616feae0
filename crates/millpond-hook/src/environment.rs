//! What the environment says about this client.

use std::path::PathBuf;

use millpond_share::protocol::MOST_NAME_BYTES;
use millpond_share::rendezvous;

/// A line on standard error for everything that the hook does.
pub(crate) const LOG_VARIABLE: &str = "MILLPOND_SHARE_LOG";
/// For tests only: parts of the hook that are left out (`gate`, `prefetch`, `sync`), so that it shows what they are for.
pub(crate) const WITHOUT_VARIABLE: &str = "MILLPOND_SHARE_WITHOUT";

/// What the client is to be.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) socket: PathBuf,
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) without: Without,
}

/// What is left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Without {
    pub(crate) gate: bool,
    pub(crate) prefetch: bool,
    pub(crate) sync: bool,
}

impl Wishes {
    pub(crate) fn from_environment() -> Wishes {
        let without = text(WITHOUT_VARIABLE).unwrap_or_default();
        let lacks = |part| without.split([',', '|']).any(|named| named == part);
        Wishes {
            socket: rendezvous::clients_socket(&rendezvous::directory()),
            name: shortened(text(rendezvous::NAME_VARIABLE).unwrap_or_else(program)),
            weight: number(rendezvous::WEIGHT_VARIABLE).unwrap_or(1),
            priority: number(rendezvous::PRIORITY_VARIABLE).unwrap_or(0),
            memory_limit: number(rendezvous::MEMORY_LIMIT_VARIABLE),
            without: Without {
                gate: lacks("gate"),
                prefetch: lacks("prefetch"),
                sync: lacks("sync"),
            },
        }
    }
}

fn text(variable: &str) -> Option<String> {
    let value = std::env::var_os(variable)?;
    (!value.is_empty()).then(|| value.to_string_lossy().into_owned())
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    text(variable)?.trim().parse().ok()
}

/// What the process is called.
fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned()
}

fn shortened(mut name: String) -> String {
    let mut end = name.len().min(MOST_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

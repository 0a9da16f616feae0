//! Where the daemon's sockets are, and what the environment says about a client.

use std::path::{Path, PathBuf};

/// The directory of the sockets, if it is not the usual one.
pub const DIRECTORY_VARIABLE: &str = "MILLPOND_SHARE_DIR";
/// What a client is called, if not as its program.
pub const NAME_VARIABLE: &str = "MILLPOND_SHARE_NAME";
/// How long a client's turns are, in quanta.
pub const WEIGHT_VARIABLE: &str = "MILLPOND_SHARE_WEIGHT";
/// Who has more goes first.
pub const PRIORITY_VARIABLE: &str = "MILLPOND_SHARE_PRIORITY";
/// The most a client may allocate, in bytes.
pub const MEMORY_LIMIT_VARIABLE: &str = "MILLPOND_SHARE_MEMORY_LIMIT";

const CLIENTS: &str = "share.sock";
const CONTROL: &str = "control.sock";

/// Where the daemon of the whole machine is.
pub const SYSTEM_DIRECTORY: &str = "/run/millpond";

/// The directory in which a daemon of one's own listens: the one that the environment names, else in the user's runtime directory,
/// else the system's.
pub fn own_directory() -> PathBuf {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    match (named(DIRECTORY_VARIABLE), named("XDG_RUNTIME_DIR")) {
        (Some(directory), _) => directory.into(),
        (None, Some(runtime)) => Path::new(&runtime).join("millpond"),
        (None, None) => SYSTEM_DIRECTORY.into(),
    }
}

/// The directory in which a daemon is looked for: one's own, and where there is no socket and none was named, the system's.
pub fn directory() -> PathBuf {
    let is_named = std::env::var_os(DIRECTORY_VARIABLE).is_some_and(|value| !value.is_empty());
    let system = Path::new(SYSTEM_DIRECTORY);
    if is_named { own_directory() } else { own_or(own_directory(), system) }
}

fn own_or(own: PathBuf, system: &Path) -> PathBuf {
    let listens = |directory: &Path| clients_socket(directory).exists();
    if !listens(&own) && listens(system) { system.to_owned() } else { own }
}

/// The socket that programs connect to.
pub fn clients_socket(directory: &Path) -> PathBuf {
    directory.join(CLIENTS)
}

/// The socket for status and settings.
pub fn control_socket(directory: &Path) -> PathBuf {
    directory.join(CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_daemon_is_found_where_there_is_none_of_ones_own() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [own, system] = directories.each_ref().map(|directory| directory.path());
        assert_eq!(
            own_or(own.to_owned(), system),
            own,
            "where there is none at all, one's own is started"
        );
        std::fs::write(clients_socket(system), "").unwrap();
        assert_eq!(own_or(own.to_owned(), system), system);
        std::fs::write(clients_socket(own), "").unwrap();
        assert_eq!(own_or(own.to_owned(), system), own);
    }
}

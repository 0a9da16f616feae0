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

pub(crate) const CLIENTS: &str = "share.sock";
pub(crate) const CONTROL: &str = "control.sock";
pub(crate) const METRICS: &str = "metrics.sock";

/// Where the daemon of the whole machine is.
pub const SYSTEM_DIRECTORY: &str = "/run/millpond";

/// Where a user's own sockets are.
const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// A relative runtime directory would mean another one wherever a program starts, and perhaps one of another user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "XDG_RUNTIME_DIR is '{}' and not an absolute path: correct it, or name a directory with --dir",
    .0.display()
)]
pub struct RelativeRuntime(pub PathBuf);

/// The directory in which a daemon of one's own listens: the one that the environment names, else in the user's runtime directory,
/// else the system's.
///
/// # Errors
/// The runtime directory is a relative path.
pub fn own_directory() -> Result<PathBuf, RelativeRuntime> {
    own_directory_of(named(DIRECTORY_VARIABLE), named(RUNTIME_VARIABLE))
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn own_directory_of(
    given: Option<PathBuf>,
    runtime: Option<PathBuf>,
) -> Result<PathBuf, RelativeRuntime> {
    match (given, runtime) {
        (Some(directory), _) => Ok(directory),
        (None, Some(runtime)) if runtime.is_relative() => Err(RelativeRuntime(runtime)),
        (None, Some(runtime)) => Ok(runtime.join("millpond")),
        (None, None) => Ok(SYSTEM_DIRECTORY.into()),
    }
}

/// The directory in which a daemon is looked for: one's own, and where there is no socket and none was named, the system's. A relative
/// runtime directory is none.
pub fn directory() -> PathBuf {
    directory_of(named(DIRECTORY_VARIABLE), named(RUNTIME_VARIABLE), Path::new(SYSTEM_DIRECTORY))
}

fn directory_of(given: Option<PathBuf>, runtime: Option<PathBuf>, system: &Path) -> PathBuf {
    let is_named = given.is_some();
    match own_directory_of(given, runtime) {
        Ok(own) if is_named => own,
        Ok(own) => own_or(own, system),
        Err(RelativeRuntime(_)) => system.to_owned(),
    }
}

fn own_or(own: PathBuf, system: &Path) -> PathBuf {
    let listens = |directory: &Path| clients_socket(directory).exists();
    if !listens(&own) && listens(system) { system.to_owned() } else { own }
}

/// The socket that programs connect to.
pub fn clients_socket(directory: &Path) -> PathBuf {
    directory.join(CLIENTS)
}

/// The socket for readers of the metrics.
pub fn metrics_socket(directory: &Path) -> PathBuf {
    directory.join(METRICS)
}

/// The socket for status and settings.
pub fn control_socket(directory: &Path) -> PathBuf {
    directory.join(CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_runtime_directory_is_refused_and_not_looked_in() {
        let relative = Some(PathBuf::from("somewhere"));
        let refused = own_directory_of(None, relative.clone());
        assert_eq!(refused, Err(RelativeRuntime("somewhere".into())));
        let system = Path::new("/system");
        assert_eq!(directory_of(None, relative.clone(), system), system);
        let given = Some(PathBuf::from("/given"));
        assert_eq!(own_directory_of(given.clone(), relative.clone()), Ok("/given".into()));
        assert_eq!(directory_of(given, relative, system), Path::new("/given"));
        let absolute = own_directory_of(None, Some("/run/user/7".into()));
        assert_eq!(absolute, Ok("/run/user/7/millpond".into()));
    }

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

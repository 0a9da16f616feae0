//! A directory that only its owner can change, and files in it.
//!
//! A daemon that runs as root may be told to use a directory that another user made, with links in place of the daemon's files, or on the
//! way there. So links on the way are resolved once, and what is checked is where they lead; the directory is opened once, its owner and
//! mode are checked, and each file is reached through that descriptor, never through a link.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// What a socket's address can hold.
const MOST_SOCKET_PATH_BYTES: usize = 107;
/// Connections that wait to be accepted; the system may allow fewer.
const QUEUE: i32 = 4096;
const OTHERS_WRITE: u32 = 0o022;
const WORLD_WRITES: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// See the module.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Directory {
    /// Opens a directory, or makes it with a mode.
    pub(super) fn open_or_make(path: &Path, mode: RawMode) -> io::Result<Directory> {
        let path = std::path::absolute(path)?;
        let resolved = resolve(&path)?;
        let is_new = match std::fs::DirBuilder::new().mode(mode).create(&resolved) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let descriptor = rustix::fs::open(&resolved, flags, Mode::empty())?;
        let about = rustix::fs::fstat(&descriptor)?;
        if about.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refusal("another user owns it"));
        }
        if is_new {
            // Whatever the process's mask says.
            rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(mode))?;
        } else if about.st_mode & OTHERS_WRITE != 0 {
            return Err(refusal("other users can write to it (`chmod go-w` would end that)"));
        }
        Ok(Directory { path, descriptor })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of ours for writing, or makes it; what it has stays.
    pub(super) fn open_or_make_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        self.open_file(name, flags)
    }

    /// The bytes of a file of ours, if there is one; it is an error if there are more than so many.
    pub(super) fn read(&self, name: &str, most_bytes: usize) -> io::Result<Option<Vec<u8>>> {
        // Without waiting: a pipe in its place has no writer.
        let file = match self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(most_bytes as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > most_bytes {
            return Err(refusal("it is too long to be the daemon's"));
        }
        Ok(Some(bytes))
    }

    /// Replaces a file as a whole.
    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}.new");
        self.remove(&new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_file(&new, flags)?;
        file.write_all(bytes)?;
        Ok(rustix::fs::renameat(&self.descriptor, &new, &self.descriptor, name)?)
    }

    /// Removes a file, if there is one. What a link leads to stays.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Listens on a socket in the directory, in place of whatever has that name. At no moment can more users connect than its mode
    /// says.
    pub(super) fn listen(&self, name: &str, mode: RawMode) -> io::Result<UnixListener> {
        if self.path.join(name).as_os_str().len() > MOST_SOCKET_PATH_BYTES {
            let reason =
                "the path is too long for a socket: a directory with a shorter one is needed";
            return Err(refusal(reason));
        }
        self.remove(name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file gets the mode that the socket has when it is bound, less the process's mask.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
        let through_descriptor = format!("/proc/self/fd/{}/{name}", self.descriptor.as_raw_fd());
        rustix::net::bind(&socket, &SocketAddrUnix::new(through_descriptor)?)?;
        rustix::fs::chmodat(&self.descriptor, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        rustix::net::listen(&socket, QUEUE)?;
        Ok(socket.into())
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match rustix::fs::openat(&self.descriptor, name, flags, mode) {
            Err(rustix::io::Errno::LOOP) => return Err(refusal("it is a link")),
            file => File::from(file?),
        };
        let about = file.metadata()?;
        let is_ours = about.uid() == rustix::process::geteuid().as_raw();
        if !about.is_file() || !is_ours || about.nlink() != 1 {
            return Err(refusal("it is not a file of the daemon's"));
        }
        Ok(file)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The directory's path without links above it, where no other user can put another one. What is above it is made if need be.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refusal("it has no name of its own"));
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    let parent = parent.canonicalize()?;
    check_way_to(&parent)?;
    Ok(parent.join(name))
}

/// A user that owns a directory on the way, or may write to one, can put another directory in this one's place.
fn check_way_to(parent: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for above in parent.ancestors() {
        let about = above.metadata()?;
        let is_trusted = about.uid() == own || about.uid() == 0;
        let is_open = about.mode() & WORLD_WRITES != 0 && about.mode() & STICKY == 0;
        if !is_trusted || is_open {
            let whose = if is_trusted { "every user can write to" } else { "another user owns" };
            return Err(refusal(&format!("{whose} {}", above.display())));
        }
    }
    Ok(())
}

fn refusal(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else another user's link could lead to another place after the check.
    #[test]
    fn links_on_the_way_are_resolved_before_the_way_is_checked() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().canonicalize().unwrap().join("place");
        std::fs::create_dir(&place).unwrap();
        let link = above.path().join("link");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        assert_eq!(resolve(&link.join("share")).unwrap(), place.join("share"));
        Directory::open_or_make(&link.join("share"), 0o700).unwrap();
        assert!(place.join("share").is_dir());
        // What has no name of its own could be a link itself.
        assert!(resolve(Path::new("/")).is_err());
        assert!(resolve(&link.join("..")).is_err());
    }
}

//! Errors of the state directory.

use std::io;
use std::path::{Path, PathBuf};

/// Text before the format version in the file FORMAT.
pub(super) const FORMAT_TEXT: &str = "informer-hub state ";
/// Format version that this program reads and writes.
pub(super) const VERSION: u32 = 1;

/// Error of opening or changing a state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process, or another hub in this process, holds the lock.
    #[error("the state directory {root} is in use by {holder}: stop it, or set another directory", root = root.display(), holder = holder(*pid))]
    Locked {
        /// Path of the state directory.
        root: PathBuf,
        /// ID of the process that holds the lock; `None` if it could not be read.
        pid: Option<u32>,
    },
    /// A newer version of the hub wrote the directory.
    #[error("the state directory {root} has format {found}, but this version supports at most format {VERSION}: run the version that wrote it or a newer one, or move the directory away (it contains undelivered events)", root = root.display())]
    Newer {
        /// Path of the state directory.
        root: PathBuf,
        /// Format version of the directory.
        found: u32,
    },
    /// The file FORMAT has unexpected contents.
    #[error("{root}/FORMAT contains {found:?}, expected \"{FORMAT_TEXT}{VERSION}\": not a state directory, or damaged; restore the file or set another directory", root = root.display())]
    UnknownFormat {
        /// Path of the state directory.
        root: PathBuf,
        /// The first characters of the file FORMAT; if it is too large, the error of reading it.
        found: String,
    },
    /// The directory has files but no file FORMAT, so it is not a state directory.
    #[error("{root} is not a state directory: it contains {found:?} but no file FORMAT; a hub needs an empty directory, or one that does not exist", root = root.display())]
    Foreign {
        /// Path of the directory.
        root: PathBuf,
        /// A file that was found in the directory.
        found: String,
    },
    /// The directory to inspect does not exist, or is empty.
    #[error("the state directory {root} does not exist, or is empty", root = root.display())]
    Missing {
        /// Path of the directory.
        root: PathBuf,
    },
    /// There is no reader (sink or durable subscriber) of this name in the directory.
    #[error("the state directory {root} has no data of a sink or durable subscriber {name:?}", root = root.display())]
    NoSuchReader {
        /// Path of the state directory.
        root: PathBuf,
        /// The unknown name.
        name: String,
    },
    /// Access to the disk failed.
    #[error("cannot {verb} {file} of the state directory", file = file.display())]
    Disk {
        /// File or directory to which the access failed.
        file: PathBuf,
        /// The operation that failed.
        verb: &'static str,
        /// The disk's error.
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        // Processes of two containers often both have the id 1.
        Some(pid) if pid == std::process::id() => "another hub, in this process or another container".to_owned(),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

pub(super) fn failed(file: &Path, verb: &'static str) -> impl FnOnce(io::Error) -> StateError {
    let file = file.to_owned();
    move |source| StateError::Disk { file, verb, source }
}

/// Replaces the error of creating a directory by a clearer one, if a file or a dangling link with the directory's name
/// exists.
pub(super) fn in_the_way(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ (io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {
            io::Error::new(kind, "a file or a dangling link has this name")
        }
        _ => error,
    }
}

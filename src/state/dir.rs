//! The state directory itself: whose it is, which format it has, and where in it things are.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::held::{Held, HeldLock};
use informer_hub_disk::{self as disk, Disk, DiskLock};

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
const CACHES: &str = "caches";
const SINKS: &str = "sinks";
const FLEET: &str = "fleet.json";
const NAMES: &str = "names.json";
const JOURNAL: &str = "journal";
const DEAD: &str = "dead";
/// What FORMAT says, before the number.
const FORMAT_TEXT: &str = "informer-hub state ";
/// The format that this version reads and writes.
const VERSION: u32 = 1;
/// Bytes of FORMAT and LOCK at most.
const SHORT: u64 = 256;
/// What may be in a directory that is taken for an empty one.
const NOT_OURS: [&str; 1] = ["lost+found"];

/// A state directory, held by this process until it is dropped.
#[derive(Debug)]
pub struct StateDir {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// What holds the lock, where this process has it rather than only looks.
    held: Option<Arc<HeldLock>>,
    /// What holds the lock, where one only looks and nobody else has it.
    _lock: Option<Box<dyn DiskLock>>,
}

/// How a directory that is only looked at may be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// Nobody uses it: what is seen is what is there.
    Idle,
    /// A process uses it, with this id where it could be read: what is seen may be half of something.
    InUse(Option<u32>),
}

/// A state directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it.
    #[error("the state directory {root} is in use by {holder}; one process at a time: stop it, or give this one a directory of its own", root = root.display(), holder = holder(*pid))]
    Locked {
        /// The directory.
        root: PathBuf,
        /// The process that has it.
        pid: Option<u32>,
    },
    /// A newer version of the hub wrote it.
    #[error("the state directory {root} has format {found}, this version knows up to {VERSION}: run the version that wrote it or a newer one, or move the directory away to begin anew (undelivered events are in it)", root = root.display())]
    Newer {
        /// The directory.
        root: PathBuf,
        /// Its format.
        found: u32,
    },
    /// FORMAT says something else than it should.
    #[error("{root}/FORMAT says {found:?}, \"{FORMAT_TEXT}{VERSION}\" expected: this is no state directory, or a damaged one; restore the file or give another directory", root = root.display())]
    UnknownFormat {
        /// The directory.
        root: PathBuf,
        /// What FORMAT says, its beginning.
        found: String,
    },
    /// It has files and no FORMAT.
    #[error("{root} is no state directory: it has {found:?} and no FORMAT; give an empty directory, or one that does not exist", root = root.display())]
    Foreign {
        /// The directory.
        root: PathBuf,
        /// One of its files.
        found: String,
    },
    /// It does not exist, where one only looks.
    #[error("there is no state directory {root}", root = root.display())]
    Missing {
        /// The directory.
        root: PathBuf,
    },
    /// A name that is no reader's.
    #[error("{name:?} is not the name of a reader in {root}", root = root.display())]
    NoSuchReader {
        /// The directory.
        root: PathBuf,
        /// The name.
        name: String,
    },
    /// The disk failed.
    #[error("{file} of the state directory cannot be {verb}", file = file.display())]
    Disk {
        /// Which file or directory.
        file: PathBuf,
        /// What was to be done to it.
        verb: &'static str,
        /// The disk's error.
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn failed(file: &Path, verb: &'static str) -> impl FnOnce(io::Error) -> StateError {
    let file = file.to_owned();
    move |source| StateError::Disk { file, verb, source }
}

/// What stands where a directory should be.
fn in_the_way(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ (io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {
            io::Error::new(kind, "a file is in the way, or a link that leads nowhere")
        }
        _ => error,
    }
}

/// What FORMAT has to say about a directory.
enum Format {
    Current,
    /// None, and nothing else either.
    Empty,
}

impl StateDir {
    /// Takes a state directory, and makes it where there is none.
    ///
    /// # Errors
    /// Where another process has it, a newer version wrote it, it is something else, or the disk fails. Nothing has been
    /// changed then, but for the lock's file.
    pub fn open(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, StateError> {
        disk::make_dir(&*disk, root, 1).map_err(in_the_way).map_err(failed(root, "made"))?;
        let lock = Arc::new(HeldLock::new(take(&*disk, root)?));
        let held: Arc<dyn Disk> = Arc::new(Held::new(disk, root, &lock));
        let dir = Self { disk: held, root: root.to_owned(), held: Some(lock), _lock: None };
        for part in [CACHES, SINKS] {
            let part = root.join(part);
            disk::make_dir(&*dir.disk, &part, 1).map_err(failed(&part, "made"))?;
        }
        Ok(dir)
    }

    /// Looks at a state directory. Writes nothing, but for the lock's file where nobody has it: it is held meanwhile.
    ///
    /// # Errors
    /// As [`StateDir::open`], but not for another process that has it, and for one that does not exist.
    pub fn look(disk: Arc<dyn Disk>, root: &Path) -> Result<(Self, Access), StateError> {
        if let Format::Empty = format(&*disk, root)? {
            return Err(StateError::Missing { root: root.to_owned() });
        }
        // Nobody may take it meanwhile, if nobody has; where there is no lock's file none is made.
        let lock_file = root.join(LOCK);
        let names = disk.list(root).map_err(failed(root, "listed"))?;
        let (lock, access) = if names.iter().any(|name| name == LOCK) {
            match disk.lock(&lock_file).map_err(failed(&lock_file, "locked"))? {
                Some(lock) => (Some(lock), Access::Idle),
                None => (None, Access::InUse(pid(&*disk, root))),
            }
        } else {
            (None, Access::Idle)
        };
        Ok((Self { disk, root: root.to_owned(), held: None, _lock: lock }, access))
    }

    /// Whether this process holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The disk that it is on. Where this process holds the directory, nothing is made there that another one has taken.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where all caches are.
    #[must_use]
    pub fn caches(&self) -> PathBuf {
        self.root.join(CACHES)
    }

    /// Where the cache of a resource is; `kind` tells apart what is kept of it, if there is more than one.
    #[must_use]
    pub fn cache(&self, group: &str, version: &str, resource: &str, kind: Option<&str>) -> PathBuf {
        let group = if group.is_empty() { "core" } else { group };
        let kind = kind.map_or_else(String::new, |kind| format!("+{}", escaped(kind)));
        self.caches().join(escaped(group)).join(escaped(version)).join(escaped(resource) + &kind)
    }

    /// Where it is kept which clusters sources have brought.
    #[must_use]
    pub fn fleet(&self) -> PathBuf {
        self.root.join(FLEET)
    }

    /// Where it is kept what names have meant that only a cluster understands.
    #[must_use]
    pub fn names(&self) -> PathBuf {
        self.root.join(NAMES)
    }

    /// Where all readers are.
    #[must_use]
    pub fn readers_dir(&self) -> PathBuf {
        self.root.join(SINKS)
    }

    /// Where all is that is kept for a reader.
    #[must_use]
    pub fn reader_dir(&self, reader: &str) -> PathBuf {
        self.readers_dir().join(escaped(reader))
    }

    /// Where a reader's journal is.
    #[must_use]
    pub fn journal(&self, reader: &str) -> PathBuf {
        self.reader_dir(reader).join(JOURNAL)
    }

    /// Where a reader's dead letters are.
    #[must_use]
    pub fn dead_letters(&self, reader: &str) -> PathBuf {
        self.reader_dir(reader).join(DEAD)
    }

    /// The names of the readers that there is something of, sorted: sinks and durable subscribers, wanted or not.
    pub fn readers(&self) -> Result<Vec<String>, StateError> {
        let dir = self.readers_dir();
        let names = self.disk.list(&dir).map_err(failed(&dir, "listed"))?;
        let mut names: Vec<_> = names.iter().filter_map(|name| unescaped(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Those of [`StateDir::readers`] that nobody wants any more. What is in their journals nobody will deliver.
    pub fn unwanted<'n>(&self, wanted: impl IntoIterator<Item = &'n str>) -> Result<Vec<String>, StateError> {
        let wanted: std::collections::BTreeSet<&str> = wanted.into_iter().collect();
        Ok(self.readers()?.into_iter().filter(|name| !wanted.contains(name.as_str())).collect())
    }

    /// Removes all that is kept for a reader.
    ///
    /// # Errors
    /// Where there is no such reader, this process does not hold the directory, or the disk fails.
    pub fn remove_reader(&self, name: &str) -> Result<(), StateError> {
        if !self.is_held() {
            return Err(StateError::Locked { root: self.root.clone(), pid: pid(&*self.disk, &self.root) });
        }
        if !self.readers()?.iter().any(|reader| reader == name) {
            return Err(StateError::NoSuchReader { root: self.root.clone(), name: name.to_owned() });
        }
        let (all, dir) = (self.readers_dir(), self.readers_dir().join(escaped(name)));
        self.disk.remove_dir_all(&dir).map_err(failed(&dir, "removed"))?;
        self.disk.sync_dir(&all).map_err(failed(&all, "synced"))
    }
}

/// Takes the lock of a directory that is there, and says whose it is where nothing does.
pub(super) fn take(disk: &dyn Disk, root: &Path) -> Result<Box<dyn DiskLock>, StateError> {
    // Before the lock's file is made: it is not to be in somebody else's directory.
    format(disk, root)?;
    let lock_file = lock_of(root);
    let Some(lock) = disk.lock(&lock_file).map_err(failed(&lock_file, "locked"))? else {
        return Err(StateError::Locked { root: root.to_owned(), pid: pid(disk, root) });
    };
    if let Format::Empty = format(disk, root)? {
        let text = format!("{FORMAT_TEXT}{VERSION}\n");
        let file = root.join(FORMAT);
        disk::replace(disk, &file, text.as_bytes()).map_err(failed(&file, "written"))?;
    }
    Ok(lock)
}

/// The file that the lock of a directory is.
pub(super) fn lock_of(root: &Path) -> PathBuf {
    root.join(LOCK)
}

fn pid(disk: &dyn Disk, root: &Path) -> Option<u32> {
    let bytes = disk::read_all(disk, &root.join(LOCK), SHORT).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

fn format(disk: &dyn Disk, root: &Path) -> Result<Format, StateError> {
    let file = root.join(FORMAT);
    let bytes = match disk::read_all(disk, &file, SHORT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return no_format(disk, root),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(StateError::UnknownFormat { root: root.to_owned(), found: error.to_string() });
        }
        Err(error) => return Err(failed(&file, "read")(error)),
    };
    let text = String::from_utf8_lossy(&bytes);
    match text.trim_end().strip_prefix(FORMAT_TEXT).and_then(|version| version.parse().ok()) {
        Some(VERSION) => Ok(Format::Current),
        Some(found) if found > VERSION => Err(StateError::Newer { root: root.to_owned(), found }),
        _ => {
            Err(StateError::UnknownFormat { root: root.to_owned(), found: text.trim_end().chars().take(60).collect() })
        }
    }
}

/// A directory without FORMAT is one that was never finished, or somebody else's.
fn no_format(disk: &dyn Disk, root: &Path) -> Result<Format, StateError> {
    let names = disk.list(root).map_err(failed(root, "listed"))?;
    let unfinished = format!("{FORMAT}{}", disk::UNFINISHED);
    let ours = |name: &&String| **name == LOCK || **name == unfinished || NOT_OURS.contains(&name.as_str());
    match names.iter().find(|name| !ours(name)) {
        Some(found) => Err(StateError::Foreign { root: root.to_owned(), found: found.clone() }),
        None => Ok(Format::Empty),
    }
}

/// A name as one of a file: letters, digits, `-`, `_` and dots that do not lead as they are, all else as `%` and two
/// digits.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

/// The name that was [`escaped`]; `None` for what is not written that way.
fn unescaped(file: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(file.len()), file);
    while let Some(first) = rest.bytes().next() {
        let taken = if first == b'%' {
            bytes.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
            3
        } else {
            bytes.push(first);
            1
        };
        rest = rest.get(taken..)?;
    }
    String::from_utf8(bytes).ok().filter(|name| escaped(name) == file)
}

#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;

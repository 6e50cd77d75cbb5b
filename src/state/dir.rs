//! The state directory: its lock, its format version and its layout.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{StateError, failed, in_the_way};
use super::lock::{Format, LOCK, acquire, format, lock_path, pid};
use super::locked_dir::{DirLock, LockedDir};
use informer_hub_disk::{self as disk, Disk, DiskLock};

const CACHES: &str = "caches";
const SINKS: &str = "sinks";
const FLEET: &str = "fleet.json";
const NAMES: &str = "names.json";
const JOURNAL: &str = "journal";
const DEAD: &str = "dead";

/// A state directory. If opened for writing, this process holds its lock until the value is dropped.
#[derive(Debug)]
pub struct StateDir {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// The lock, if this process opened the directory for writing.
    lock: Option<Arc<DirLock>>,
    /// Lock that an inspection holds, to keep other processes out. `None` if the inspection could not lock the
    /// directory, or the directory was opened for writing.
    _inspection_lock: Option<Box<dyn DiskLock>>,
}

/// Whether an inspected directory is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// No process uses the directory: the files are consistent.
    Idle,
    /// A process uses the directory, so files may be half-written. Holds the process ID; `None` if it cannot be read.
    InUse(Option<u32>),
    /// The directory is read-only, so it cannot be locked. Files may be incomplete if a process uses it.
    ReadOnly,
}

impl StateDir {
    /// Locks a state directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// - Another process holds the lock.
    /// - A newer version of the hub wrote the directory, or it is not a state directory.
    /// - The disk fails.
    ///
    /// In the first two cases, no file but the lock file has been changed.
    pub fn open(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, StateError> {
        disk::make_dir(&*disk, root, 1).map_err(in_the_way).map_err(failed(root, "create"))?;
        let lock = Arc::new(DirLock::new(acquire(&*disk, root)?));
        let locked: Arc<dyn Disk> = Arc::new(LockedDir::new(disk, root, &lock));
        let dir = Self { disk: locked, root: root.to_owned(), lock: Some(lock), _inspection_lock: None };
        for part in [CACHES, SINKS] {
            let part = root.join(part);
            disk::make_dir(&*dir.disk, &part, 1).map_err(failed(&part, "create"))?;
        }
        Ok(dir)
    }

    /// Opens a state directory for inspection. Locks it if a lock file exists that no other process has locked. Writes
    /// nothing but the lock file.
    ///
    /// # Errors
    /// - The directory is missing or empty, or it is not a state directory.
    /// - A newer version of the hub wrote the directory.
    /// - The disk fails.
    ///
    /// If another process uses the directory, this is no error.
    pub fn look(disk: Arc<dyn Disk>, root: &Path) -> Result<(Self, Access), StateError> {
        if let Format::Empty = format(&*disk, root)? {
            return Err(StateError::Missing { root: root.to_owned() });
        }
        // Holding the lock keeps other processes out meanwhile. A missing lock file is not created.
        let lock_file = lock_path(root);
        let names = disk.list(root).map_err(failed(root, "list"))?;
        let (lock, access) = if names.iter().any(|name| name == LOCK) {
            match disk.lock(&lock_file) {
                Ok(Some(lock)) => (Some(lock), Access::Idle),
                Ok(None) => (None, Access::InUse(pid(&*disk, root))),
                Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
                    (None, Access::ReadOnly)
                }
                Err(error) => return Err(failed(&lock_file, "lock")(error)),
            }
        } else {
            (None, Access::Idle)
        };
        Ok((Self { disk, root: root.to_owned(), lock: None, _inspection_lock: lock }, access))
    }

    /// Returns whether this process holds the lock for writing. False for an inspected directory.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Returns access to the disk of the directory. If this process holds the lock, each call that creates a directory
    /// first verifies that the lock is still held.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of all caches.
    #[must_use]
    pub fn caches(&self) -> PathBuf {
        self.root.join(CACHES)
    }

    /// Returns the path of the file with the clusters found by cluster sources.
    #[must_use]
    pub fn fleet(&self) -> PathBuf {
        self.root.join(FLEET)
    }

    /// Returns the path of the file with the resolved short names of resources.
    #[must_use]
    pub fn names(&self) -> PathBuf {
        self.root.join(NAMES)
    }

    /// Returns the directory with the journals and dead letters of all sinks and durable subscribers.
    #[must_use]
    pub fn readers_dir(&self) -> PathBuf {
        self.root.join(SINKS)
    }

    /// Returns the directory of one sink or durable subscriber.
    #[must_use]
    pub fn reader_dir(&self, reader: &str) -> PathBuf {
        self.readers_dir().join(escaped(reader))
    }

    /// Returns the directory of the journal of a reader (sink or durable subscriber).
    #[must_use]
    pub fn journal(&self, reader: &str) -> PathBuf {
        self.reader_dir(reader).join(JOURNAL)
    }

    /// Returns the directory of the dead letters of a reader (sink or durable subscriber).
    #[must_use]
    pub fn dead_letters(&self, reader: &str) -> PathBuf {
        self.reader_dir(reader).join(DEAD)
    }

    /// Returns the sorted names of all readers with files: sinks and durable subscribers, configured or not.
    pub fn readers(&self) -> Result<Vec<String>, StateError> {
        let dir = self.readers_dir();
        let names = self.disk.list(&dir).map_err(failed(&dir, "list"))?;
        let mut names: Vec<_> = names.iter().filter_map(|name| unescaped(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the sinks and durable subscribers that have files in the directory but are not in `wanted`. The
    /// undelivered events in their journals will not be delivered.
    pub fn unwanted<'n>(&self, wanted: impl IntoIterator<Item = &'n str>) -> Result<Vec<String>, StateError> {
        let wanted: std::collections::BTreeSet<&str> = wanted.into_iter().collect();
        Ok(self.readers()?.into_iter().filter(|name| !wanted.contains(name.as_str())).collect())
    }

    /// Removes all files of a reader (sink or durable subscriber).
    ///
    /// # Errors
    /// There is no such reader, or this process does not hold the lock, or the disk fails.
    pub fn remove_reader(&self, name: &str) -> Result<(), StateError> {
        if !self.is_locked() {
            return Err(StateError::Locked { root: self.root.clone(), pid: pid(&*self.disk, &self.root) });
        }
        if !self.readers()?.iter().any(|reader| reader == name) {
            return Err(StateError::NoSuchReader { root: self.root.clone(), name: name.to_owned() });
        }
        let (all, dir) = (self.readers_dir(), self.readers_dir().join(escaped(name)));
        self.disk.remove_dir_all(&dir).map_err(failed(&dir, "remove"))?;
        self.disk.sync_dir(&all).map_err(failed(&all, "sync"))
    }
}

/// Encodes a name as a file name. Letters, digits, `-`, `_` and non-leading dots stay; other bytes become `%` and two
/// hex digits.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

/// Decodes the output of [`escaped`]; `None` for any other text.
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

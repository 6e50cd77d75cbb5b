//! Disk access that requires the state-directory lock.
//!
//! The lock belongs to the open lock file, not to its path. If the directory is moved or removed while the hub runs,
//! its path may lead to another directory. The lock is therefore checked before a directory is created there, and taken
//! again if needed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::error::StateError;
use super::lock::{acquire, lock_path};
use informer_hub_disk::{self as disk, Disk, DiskFile, DiskLock, Open};

/// A disk that checks the state-directory lock before it creates directories.
#[derive(Debug)]
pub(super) struct LockedDir {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    lock: Weak<DirLock>,
}

/// The lock, owned by the [`StateDir`](super::StateDir); a [`LockedDir`] only has a weak reference.
pub(super) type DirLock = Mutex<Box<dyn DiskLock>>;

impl LockedDir {
    pub(super) fn new(disk: Arc<dyn Disk>, root: &Path, lock: &Arc<DirLock>) -> Self {
        Self { disk, root: root.to_owned(), lock: Arc::downgrade(lock) }
    }

    /// Verifies that this process holds the lock of the directory at `root`, and takes it again if the directory was
    /// replaced.
    fn verify_lock(&self) -> io::Result<()> {
        let stopped = || io::Error::other("the state directory is no longer locked: the hub has stopped");
        let lock = self.lock.upgrade().ok_or_else(stopped)?;
        let mut lock = lock.lock();
        if lock.holds(&lock_path(&self.root)) {
            return Ok(());
        }
        disk::make_dir(&*self.disk, &self.root, 1)?;
        *lock = acquire(&*self.disk, &self.root).map_err(|error| match error {
            StateError::Disk { source, .. } => source,
            error => io::Error::other(error.to_string()),
        })?;
        tracing::error!(
            dir = %self.root.display(),
            "the state directory was removed or replaced while the hub runs: creating it again"
        );
        Ok(())
    }
}

impl Disk for LockedDir {
    /// Checks the lock first. Writers call this before they create files, so they write only while the lock is held.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.verify_lock()?;
        self.disk.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(file, how)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        self.disk.remove(file)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, file: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(file)
    }
}

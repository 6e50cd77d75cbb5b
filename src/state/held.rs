//! A disk with a state directory on it that this process has: as long as it has it.
//!
//! The lock is one of a directory, not of its name. Where somebody has moved or removed the directory under a running hub,
//! the name may be anybody's; so before anything is made there the lock is taken anew.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::dir::{StateError, lock_of, take};
use informer_hub_disk::{self as disk, Disk, DiskFile, DiskLock, Open};

/// See the module.
#[derive(Debug)]
pub(super) struct Held {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    lock: Weak<HeldLock>,
}

/// The lock, which goes with the [`StateDir`](super::StateDir) whoever else still has the disk.
pub(super) type HeldLock = Mutex<Box<dyn DiskLock>>;

impl Held {
    pub(super) fn new(disk: Arc<dyn Disk>, root: &Path, lock: &Arc<HeldLock>) -> Self {
        Self { disk, root: root.to_owned(), lock: Arc::downgrade(lock) }
    }

    /// Sees that the directory is this process's.
    fn hold(&self) -> io::Result<()> {
        let ended = || io::Error::other("the state directory is not held any more: the hub has ended");
        let lock = self.lock.upgrade().ok_or_else(ended)?;
        let mut lock = lock.lock();
        if lock.holds(&lock_of(&self.root)) {
            return Ok(());
        }
        disk::make_dir(&*self.disk, &self.root, 1)?;
        *lock = take(&*self.disk, &self.root).map_err(|error| match error {
            StateError::Disk { source, .. } => source,
            error => io::Error::other(error.to_string()),
        })?;
        tracing::error!(dir = %self.root.display(), "the state directory was removed or replaced under the running hub: it is made anew");
        Ok(())
    }
}

impl Disk for Held {
    /// What begins anew begins with this.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.hold()?;
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

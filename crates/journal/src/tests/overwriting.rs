//! Simulated disk that supports [`DiskFile::overwrite`].

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use informer_hub_disk::{Disk, DiskFile, DiskLock, Open, read_exact_at};
use informer_hub_sim::SimDisk;

/// Simulated disk that supports overwriting, unless a fault other than a full disk is set.
#[derive(Debug)]
pub(super) struct OverwritingDisk {
    disk: SimDisk,
    /// Whether the next rename is done and reported as failed.
    pub(super) fails_after_rename: AtomicBool,
}

#[derive(Debug)]
struct OverwritingFile(Box<dyn DiskFile>);

impl OverwritingDisk {
    pub(super) fn new(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), fails_after_rename: AtomicBool::new(false) }
    }
}

impl Disk for OverwritingDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OverwritingFile(self.disk.open(file, how)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)?;
        if self.fails_after_rename.swap(false, Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
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

impl DiskFile for OverwritingFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn is_at(&self, path: &Path) -> bool {
        self.0.is_at(path)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buf)
    }

    fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut rest = vec![0; usize::try_from(self.len()? - offset).expect("a small file")];
        read_exact_at(&*self.0, offset, &mut rest)?;
        assert_eq!(rest[..bytes.len()], *bytes, "other bytes would not survive a crash in between");
        self.0.truncate(offset).and_then(|()| self.0.append(&rest)).expect("no fault is set, and the space was in use");
        self.0.sync()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

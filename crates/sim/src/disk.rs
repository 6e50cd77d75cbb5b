//! Simulated in-memory disk with seeded crashes and faults.
//!
//! A crash keeps all synced data. Each file keeps a random prefix of its unsynced data, sometimes with a sector of
//! garbage. If a directory was not synced, each new, renamed or removed name in it is kept or lost at random.
//!
//! A failed sync loses the data that it should have written, although reads still return it, as with a real page cache.
//! If the disk is full, an append writes the bytes that fit. The disk can also fail any call, report a sync that it did
//! not perform, and flip bits at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use informer_hub_disk::{Disk, DiskFile, DiskLock, Open};

mod inode;

use inode::Inode;

/// Kind of disk call, for counters and for faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskCall {
    /// A call of `create_dir_all`.
    CreateDir,
    /// A call of `list`.
    List,
    /// A call of `open`.
    Open,
    /// A call of `rename`.
    Rename,
    /// A call of `remove` or `remove_dir_all`.
    Remove,
    /// A call of `sync_dir`.
    SyncDir,
    /// A call of `lock`.
    Lock,
    /// A call of `append`.
    Append,
    /// A call of `read_at`.
    Read,
    /// A call of `truncate`.
    Truncate,
    /// A call of `sync`.
    Sync,
}

/// Simulated disk. Clones share one state.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: StdRng,
    /// Files and directories that the running process sees.
    live: BTreeMap<PathBuf, Node>,
    /// Files and directories whose names survive a crash.
    durable: BTreeMap<PathBuf, Node>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    locks: BTreeSet<u64>,
    /// Number of crashes and kills so far. Calls on files that were opened in an earlier epoch fail.
    epoch: u64,
    calls: BTreeMap<DiskCall, u64>,
    total: u64,
    stop_after: Option<u64>,
    capacity: Option<u64>,
    failing: BTreeMap<DiskCall, u32>,
    fail_rate: f64,
    lost_sync_rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(u64),
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
    epoch: u64,
    writable: bool,
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    inode: u64,
    epoch: u64,
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("simulated: {} does not exist", path.display()))
}

impl SimDisk {
    /// Creates an empty disk without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: StdRng::seed_from_u64(seed),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_inode: 0,
            locks: BTreeSet::new(),
            epoch: 0,
            calls: BTreeMap::new(),
            total: 0,
            stop_after: None,
            capacity: None,
            failing: BTreeMap::new(),
            fail_rate: 0.0,
            lost_sync_rate: 0.0,
        })))
    }

    /// Simulates a power loss: open files and locks are invalid, and unsynced data may be lost. Clears all faults
    /// except the capacity.
    pub fn crash(&self) {
        self.0.lock().crash();
    }

    /// Simulates the end of the process: open files and locks are invalid, and no data is lost. Clears all faults
    /// except the capacity.
    pub fn kill(&self) {
        self.0.lock().invalidate_handles();
    }

    /// Sets the capacity for the bytes of all files; `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Makes the next `times` calls of a kind fail.
    pub fn fail(&self, call: DiskCall, times: u32) {
        self.0.lock().failing.insert(call, times);
    }

    /// Sets the probability that a call fails. `list` and reads never fail at random.
    pub fn set_fail_rate(&self, rate: f64) {
        self.0.lock().fail_rate = rate;
    }

    /// Sets the probability that a sync returns `Ok` without syncing.
    pub fn set_lost_sync_rate(&self, rate: f64) {
        self.0.lock().lost_sync_rate = rate;
    }

    /// Makes every call after the next `calls` fail, until [`SimDisk::crash`] or [`SimDisk::kill`], as if the process
    /// had ended in the middle of an operation.
    pub fn stop_after(&self, calls: u64) {
        let mut state = self.0.lock();
        state.stop_after = Some(state.total + calls);
    }

    /// Returns the number of calls of all kinds.
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        self.0.lock().total
    }

    /// Returns the number of calls of one kind.
    #[must_use]
    pub fn calls(&self, call: DiskCall) -> u64 {
        self.0.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// Returns the size of all files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.lock().used()
    }

    /// Returns the memory in use, in bytes. Synced data counts twice, since the disk has a second copy that survives
    /// crashes. Removed files count until the next crash.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let inodes = &self.0.lock().inodes;
        inodes.values().map(|inode| (inode.data.capacity() + inode.durable.capacity()) as u64).sum()
    }

    /// Returns all files with their lengths.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.0.lock();
        let files = state.live.iter().filter_map(|(path, node)| match node {
            Node::File(inode) => Some((path.clone(), state.inodes[inode].data.len() as u64)),
            Node::Dir => None,
        });
        files.collect()
    }

    /// Flips a bit of a file at rest. Does nothing if the file or the bit does not exist.
    pub fn flip(&self, file: &Path, bit: u64) {
        let mut state = self.0.lock();
        let Some(Node::File(inode)) = state.live.get(file).copied() else { return };
        let (Ok(at), mask) = (usize::try_from(bit / 8), 1 << (bit % 8)) else { return };
        if let Some(inode) = state.inodes.get_mut(&inode) {
            for bytes in [&mut inode.data, &mut inode.durable] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= mask;
                }
            }
        }
    }

    fn call(&self, call: DiskCall) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.0.lock();
        state.called(call)?;
        Ok(state)
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::CreateDir)?;
        for dir in dir.ancestors() {
            match state.live.entry(dir.to_owned()).or_insert(Node::Dir) {
                Node::Dir => {}
                Node::File(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            }
            // The root directory always exists.
            if dir.parent().is_none() {
                state.durable.insert(dir.to_owned(), Node::Dir);
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.call(DiskCall::List)?;
        let inside = state.live.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.call(DiskCall::Open)?;
        let inode = match (state.live.get(file), how) {
            (Some(Node::File(_)), Open::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(inode)), _) => *inode,
            (Some(Node::Dir), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (None, Open::Read) => return Err(not_found(file)),
            (None, _) => state.create(file)?,
        };
        let (disk, epoch) = (self.clone(), state.epoch);
        Ok(Box::new(SimFile { disk, inode, epoch, writable: how != Open::Read }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::Rename)?;
        let node = state.live.remove(from).ok_or_else(|| not_found(from))?;
        state.live.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::Remove)?;
        state.live.remove(file).map(drop).ok_or_else(|| not_found(file))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::Remove)?;
        state.live.retain(|path, _| !path.starts_with(dir));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::SyncDir)?;
        if !state.loses_sync() {
            state.sync_dir(dir);
        }
        Ok(())
    }

    fn lock(&self, file: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.call(DiskCall::Lock)?;
        let existing = match state.live.get(file) {
            Some(Node::File(inode)) => Some(*inode),
            _ => None,
        };
        if existing.is_some_and(|inode| state.locks.contains(&inode)) {
            return Ok(None);
        }
        let inode = existing.map_or_else(|| state.create(file), Ok)?;
        state.locks.insert(inode);
        if let Some(inode) = state.inodes.get_mut(&inode) {
            inode.truncate(0);
            inode.data.extend_from_slice(format!("{}\n", std::process::id()).as_bytes());
        }
        Ok(Some(Box::new(SimLock { disk: self.clone(), inode, epoch: state.epoch })))
    }
}

impl DiskLock for SimLock {
    fn holds(&self, file: &Path) -> bool {
        self.disk.0.lock().live.get(file) == Some(&Node::File(self.inode))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        if state.epoch == self.epoch {
            state.locks.remove(&self.inode);
        }
    }
}

impl State {
    fn called(&mut self, call: DiskCall) -> io::Result<()> {
        self.total += 1;
        *self.calls.entry(call).or_default() += 1;
        if self.stop_after.is_some_and(|last| self.total > last) {
            return Err(io::Error::other("simulated: the process has ended"));
        }
        if let Some(left) = self.failing.get_mut(&call).filter(|left| **left > 0) {
            *left -= 1;
            return Err(io::Error::other(format!("simulated: {call:?} fails")));
        }
        // Reads never fail at random. `append` and `sync` decide on random failures themselves.
        let decided_elsewhere = matches!(call, DiskCall::List | DiskCall::Read | DiskCall::Append | DiskCall::Sync);
        if !decided_elsewhere && self.fails() {
            return Err(io::Error::other(format!("simulated: random failure of {call:?}")));
        }
        Ok(())
    }

    fn fails(&mut self) -> bool {
        self.fail_rate > 0.0 && self.rng.random_bool(self.fail_rate)
    }

    fn loses_sync(&mut self) -> bool {
        self.lost_sync_rate > 0.0 && self.rng.random_bool(self.lost_sync_rate)
    }

    fn used(&self) -> u64 {
        let files = self.live.values().filter_map(|node| match node {
            Node::File(inode) => self.inodes.get(inode),
            Node::Dir => None,
        });
        files.map(|inode| inode.data.len() as u64).sum()
    }

    fn create(&mut self, file: &Path) -> io::Result<u64> {
        let parent = file.parent().unwrap_or(Path::new(""));
        if self.live.get(parent) != Some(&Node::Dir) {
            return Err(not_found(parent));
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        self.live.insert(file.to_owned(), Node::File(inode));
        Ok(inode)
    }

    fn sync_dir(&mut self, dir: &Path) {
        self.durable.retain(|path, _| path.parent() != Some(dir) || self.live.contains_key(path));
        for (path, node) in self.live.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            self.durable.insert(path.clone(), *node);
        }
    }

    fn invalidate_handles(&mut self) {
        self.epoch += 1;
        self.locks.clear();
        self.failing.clear();
        (self.stop_after, self.fail_rate, self.lost_sync_rate) = (None, 0.0, 0.0);
    }

    fn crash(&mut self) {
        self.invalidate_handles();
        let paths: BTreeSet<_> = self.live.keys().chain(self.durable.keys()).cloned().collect();
        let mut left = BTreeMap::new();
        for path in paths {
            let (live, durable) = (self.live.get(&path).copied(), self.durable.get(&path).copied());
            let kept = if live == durable || self.rng.random_bool(0.5) { durable } else { live };
            // A name is lost with its directory. The iteration visits parents first.
            let parent = path.parent().is_none_or(|parent| left.contains_key(parent));
            if let Some(node) = kept.filter(|_| parent) {
                left.insert(path, node);
            }
        }
        self.durable.clone_from(&left);
        self.live = left;
        let named: BTreeSet<u64> = self.live.values().filter_map(Node::inode).collect();
        self.inodes.retain(|inode, _| named.contains(inode));
        for inode in self.inodes.values_mut() {
            inode.crash(&mut self.rng);
        }
    }
}

impl Node {
    fn inode(&self) -> Option<u64> {
        match self {
            Node::Dir => None,
            Node::File(inode) => Some(*inode),
        }
    }
}

impl SimFile {
    fn with<T>(&self, call: DiskCall, act: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.call(call)?;
        if state.epoch != self.epoch {
            return Err(io::Error::other("simulated: this file was opened before a crash"));
        }
        if !self.writable && matches!(call, DiskCall::Append | DiskCall::Truncate) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        act(&mut state, self.inode)
    }
}

impl State {
    fn inode(&mut self, inode: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.with(DiskCall::Read, |state, inode| Ok(state.inode(inode)?.data.len() as u64))
    }

    fn is_at(&self, path: &Path) -> bool {
        self.disk.0.lock().live.get(path) == Some(&Node::File(self.inode))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(DiskCall::Append, |state, inode| {
            let room = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used()));
            let fits = usize::try_from(room).unwrap_or(usize::MAX);
            let fails = state.fails();
            let part = if fails { state.rng.random_range(0..=bytes.len()) } else { bytes.len() };
            state.inode(inode)?.data.extend_from_slice(&bytes[..part.min(fits)]);
            match (part > fits, fails) {
                (true, _) => Err(io::ErrorKind::StorageFull.into()),
                (_, true) => Err(io::Error::other("simulated: random failure of Append")),
                _ => Ok(()),
            }
        })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.with(DiskCall::Read, |state, inode| {
            let data = &state.inode(inode)?.data;
            let rest = usize::try_from(offset).ok().and_then(|at| data.get(at..)).unwrap_or_default();
            let read = rest.len().min(buf.len());
            buf[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.with(DiskCall::Truncate, |state, inode| {
            state.inode(inode)?.truncate(usize::try_from(len).unwrap_or(usize::MAX));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let failing = self.disk.0.lock().failing.get(&DiskCall::Sync).is_some_and(|left| *left > 0);
        let synced = self.with(DiskCall::Sync, |state, inode| {
            if state.fails() {
                state.inode(inode)?.lose_unsynced();
                return Err(io::Error::other("simulated: random failure of Sync"));
            }
            if !state.loses_sync() {
                state.inode(inode)?.sync();
            }
            Ok(())
        });
        if failing && synced.is_err() {
            self.disk.0.lock().inode(self.inode)?.lose_unsynced();
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_testing::{replayed, seeds};

    fn disk(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        disk
    }

    fn contents(disk: &SimDisk) -> Option<Vec<u8>> {
        informer_hub_disk::read_all(disk, Path::new("d/f"), 10_000).ok()
    }

    #[test]
    fn crash_keeps_synced_bytes_and_a_random_prefix_of_the_rest() {
        let mut lengths = BTreeSet::new();
        for seed in seeds(0..200) {
            let disk = disk(seed);
            let mut file = disk.open(Path::new("d/f"), Open::CreateNew).unwrap();
            file.append(&[1; 50]).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new("d")).unwrap();
            file.append(&[2; 50]).unwrap();
            disk.crash();
            assert!(file.append(b"x").is_err(), "a handle works after the crash");
            let left = contents(&disk).expect("its name was synced");
            assert_eq!(left[..50], [1; 50]);
            lengths.insert(left.len());
        }
        assert!(lengths.len() > 40 || replayed().is_some(), "{lengths:?}");
    }

    #[test]
    fn crash_keeps_or_loses_an_unsynced_name() {
        let stays: BTreeSet<_> = (0..50)
            .map(|seed| {
                let disk = disk(seed);
                disk.open(Path::new("d/f"), Open::CreateNew).unwrap().sync().unwrap();
                disk.crash();
                contents(&disk).is_some()
            })
            .collect();
        assert_eq!(stays.len(), 2);
    }

    #[test]
    fn failed_sync_loses_its_bytes_even_if_the_next_sync_succeeds() {
        let disk = disk(1);
        let mut file = disk.open(Path::new("d/f"), Open::CreateNew).unwrap();
        disk.sync_dir(Path::new("d")).unwrap();
        file.append(b"abc").unwrap();
        disk.fail(DiskCall::Sync, 1);
        assert!(file.sync().is_err());
        file.append(b"def").unwrap();
        file.sync().unwrap();
        assert_eq!(contents(&disk).unwrap(), b"abcdef");
        disk.crash();
        assert_eq!(contents(&disk).unwrap(), b"\0\0\0def");
    }

    #[test]
    fn full_disk_appends_what_fits_and_a_lost_sync_keeps_nothing() {
        let disk = disk(3);
        let mut file = disk.open(Path::new("d/f"), Open::CreateNew).unwrap();
        disk.sync_dir(Path::new("d")).unwrap();
        disk.set_capacity(Some(4));
        assert_eq!(file.append(b"abcdef").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(contents(&disk).unwrap(), b"abcd");
        file.sync().unwrap();
        disk.set_capacity(None);
        file.truncate(0).unwrap();
        disk.set_lost_sync_rate(1.0);
        file.append(b"1234567").unwrap();
        file.sync().unwrap();
        assert_eq!(disk.calls(DiskCall::Sync), 2);
        disk.stop_after(0);
        assert!(disk.list(Path::new("d")).is_err());
        disk.kill();
        assert_eq!(contents(&disk).unwrap(), b"1234567");
        assert_eq!(disk.0.lock().inodes[&0].durable, b"abcd");
    }
}

//! Disk of this machine, through `std::fs`.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{Disk, DiskFile, DiskLock, Open};

/// Mode of new files: owner only.
const FILE_MODE: u32 = 0o600;
/// Mode of new directories: owner only.
const DIR_MODE: u32 = 0o700;

/// Disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(File);

/// The locked file, and its directory, which is locked too if the file system can lock directories. The second is
/// `None` if the directory cannot be opened.
#[derive(Debug)]
struct RealLock(File, Option<File>);

/// Returns whether `path` refers to the open file; `true` if that cannot be determined.
fn refers_to(path: &Path, file: &File) -> bool {
    let same = || -> io::Result<bool> {
        let (open, there) = (file.metadata()?, std::fs::metadata(path)?);
        Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
    };
    let does_not_exist = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    same().unwrap_or_else(|error| !does_not_exist.contains(&error.kind()))
}

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = entries
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match how {
            Open::Read => {}
            Open::Append => _ = options.append(true).create(true),
            Open::CreateNew => _ = options.append(true).create_new(true),
        }
        Ok(Box::new(RealFile(options.open(file)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        std::fs::remove_file(file)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The directory is locked too, in case the file is removed. NFS cannot lock directories.
        let directory = path.parent().and_then(|directory| File::open(directory).ok());
        if let Some(Err(TryLockError::WouldBlock)) = directory.as_ref().map(File::try_lock) {
            return Ok(None);
        }
        // The process ID is informative only. Without disk space for it, the lock still works.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Some(Box::new(RealLock(file, directory))))
    }
}

impl DiskLock for RealLock {
    fn holds(&self, file: &Path) -> bool {
        let Self(own, directory) = self;
        refers_to(file, own)
            || directory.as_ref().zip(file.parent()).is_some_and(|(open, directory)| refers_to(directory, open))
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn is_at(&self, path: &Path) -> bool {
        refers_to(path, &self.0)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // On Linux, a positioned write to a file in append mode appends.
        let flags = fcntl_getfl(&self.0)?;
        fcntl_setfl(&self.0, flags - OFlags::APPEND)?;
        let written = self.0.write_all_at(bytes, offset);
        fcntl_setfl(&self.0, flags)?;
        written?;
        self.0.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{read_all, replace};

    #[test]
    fn new_files_and_directories_are_for_the_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        RealDisk.create_dir_all(&dir).unwrap();
        RealDisk.create_dir_all(&dir).unwrap();
        RealDisk.open(&dir.join("f"), Open::CreateNew).unwrap().append(b"x").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join("f"))), (0o700, 0o600));
        assert_eq!(RealDisk.list(&root.path().join("a")).unwrap(), ["b"]);
        assert_eq!(RealDisk.list(&root.path().join("none")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn file_appends_reads_and_truncates() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        let mut file = RealDisk.open(&path, Open::Append).unwrap();
        file.append(b"hello").unwrap();
        file.truncate(4).unwrap();
        file.append(b"p!").unwrap();
        file.sync().unwrap();
        let mut buf = [0; 8];
        assert!(file.is_at(&path) && !file.is_at(root.path()));
        assert_eq!((file.read_at(3, &mut buf).unwrap(), &buf[..3]), (3, &b"lp!"[..]));
        assert_eq!(RealDisk.open(&path, Open::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(RealDisk.open(&path, Open::Read).unwrap().append(b"x").is_err());
        assert_eq!(read_all(&RealDisk, &path, 6).unwrap(), b"hellp!");
        std::fs::rename(&path, root.path().join("g")).unwrap();
        assert!(!file.is_at(&path));
        std::fs::copy(root.path().join("g"), &path).unwrap();
        assert!(!file.is_at(&path), "a copy is a different file");
        assert_eq!(read_all(&RealDisk, &path, 5).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn overwrite_writes_at_its_offset_and_appends_still_go_to_the_end() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        let mut file = RealDisk.open(&path, Open::Append).unwrap();
        file.append(b"hello").unwrap();
        file.overwrite(1, b"EL").unwrap();
        file.append(b"!").unwrap();
        assert_eq!(read_all(&RealDisk, &path, 6).unwrap(), b"hELlo!");
        assert!(RealDisk.open(&path, Open::Read).unwrap().overwrite(0, b"x").is_err());
    }

    #[test]
    fn replace_leaves_the_new_file_and_no_temporary_one() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        replace(&RealDisk, &path, b"one").unwrap();
        replace(&RealDisk, &path, b"two").unwrap();
        assert_eq!(read_all(&RealDisk, &path, 3).unwrap(), b"two");
        assert_eq!(RealDisk.list(root.path()).unwrap(), ["f"]);
        RealDisk.sync_dir(root.path()).unwrap();
    }

    #[test]
    fn lock_has_one_holder_and_contains_its_process_id() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("LOCK");
        let held = RealDisk.lock(&path).unwrap().expect("the lock is free");
        assert!(RealDisk.lock(&path).unwrap().is_none());
        let pid = String::from_utf8(read_all(&RealDisk, &path, 32).unwrap()).unwrap();
        assert_eq!(pid.trim().parse::<u32>().unwrap(), std::process::id());
        std::fs::remove_file(&path).unwrap();
        assert!(RealDisk.lock(&path).unwrap().is_none(), "removing the file does not release the lock");
        assert!(held.holds(&path));
        let (dir, moved) = (root.path().join("hub"), root.path().join("moved"));
        std::fs::create_dir(&dir).unwrap();
        let other = RealDisk.lock(&dir.join("LOCK")).unwrap().unwrap();
        assert!(other.holds(&dir.join("LOCK")));
        std::fs::rename(&dir, &moved).unwrap();
        assert!(!other.holds(&dir.join("LOCK")) && other.holds(&moved.join("LOCK")));
        std::fs::create_dir(&dir).unwrap();
        assert!(!other.holds(&dir.join("LOCK")), "a different directory");
        assert!(RealDisk.lock(&dir.join("LOCK")).unwrap().is_some());
        drop(held);
        assert!(RealDisk.lock(&path).unwrap().is_some());
    }
}

//! Disk access behind traits, so that tests can simulate torn writes, full disks and lost syncs.
//!
//! All calls are synchronous and independent of any runtime; async code must call them on a blocking thread. Appended
//! bytes are *durable* only after [`DiskFile::sync`]. A created, renamed or removed name is durable only after
//! [`Disk::sync_dir`] of its directory. [`frame`] separates records and detects damage. [`RotatedFile`] is a log of
//! lines on the real disk.

use std::fmt::Debug;
use std::io;
use std::path::Path;

mod file_state;
pub mod frame;
mod real;
mod rotated;

pub use file_state::{FileState, FileStates};
pub use real::RealDisk;
pub use rotated::{RotatedFile, RotatedFileParams};

/// Mode of opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Reads an existing file.
    Read,
    /// Reads and appends; creates the file if it does not exist.
    Append,
    /// Reads and appends; fails if the file exists.
    CreateNew,
}

/// Directory tree on a disk. Any call may fail.
///
/// New files and directories must be accessible to the owner only (0600 and 0700), since they contain object bodies.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a directory and its parents. Existing ones are no error.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Returns the sorted names in a directory; empty if it does not exist. Names that are not UTF-8 are converted
    /// lossily.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file.
    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, replacing an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, file: &Path) -> io::Result<()>;
    /// Removes a directory with its content.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks a file, after creating it if needed, and writes this process's ID into it. Returns `None` if it is locked
    /// already.
    ///
    /// The lock is held until the result is dropped or the process ends for any reason.
    fn lock(&self, file: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// A held lock on a file ([`Disk::lock`]).
pub trait DiskLock: Debug + Send + Sync {
    /// Returns whether the lock still covers `file`. It does not if the file's directory was replaced.
    fn holds(&self, file: &Path) -> bool;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Appends bytes. After an error, some of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns whether `path` still refers to this file, rather than to nothing or to another file. If not, the open
    /// file still works but is lost when it is closed.
    fn is_at(&self, path: &Path) -> bool;
    /// Reads at most as many bytes as fit into `buf`; returns zero at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Rewrites a range of the file with the bytes that it already has, and makes them durable, even if an earlier sync
    /// has failed.
    ///
    /// `bytes` must equal the file's content at `offset`. After a crash, each sector has its former content or these
    /// bytes. Needs no free space, except on a copy-on-write file system.
    ///
    /// # Errors
    /// I/O errors. `Unsupported` if the disk cannot do this, which is the default.
    fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _ = (offset, bytes);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Truncates the file.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes the content durable. After an error, nothing written since the last successful call is guaranteed to be on
    /// disk. A later success does not change this, as the system may have dropped the data.
    fn sync(&self) -> io::Result<()>;
}

/// Fills `buf` with the bytes at an offset of a file.
///
/// # Errors
/// `UnexpectedEof` if the file ends before `buf` is full.
pub fn read_exact_at(file: &dyn DiskFile, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match file.read_at(offset, buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                let read = read.min(buf.len());
                buf = &mut buf[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// `FileTooLarge` if it is longer.
pub fn read_all(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let len = file.len()?;
    if len > most {
        let problem = format!("the file has {len} bytes, more than the limit of {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?];
    read_exact_at(&*file, 0, &mut bytes)?;
    Ok(bytes)
}

/// Creates a directory and its missing parents. Makes the names of `levels` directories durable: of the directory
/// itself and of those above it.
///
/// # Errors
/// I/O errors of the disk. A parent directory that this process has no permission to open is not synced.
pub fn make_dir(disk: &dyn Disk, dir: &Path, levels: usize) -> io::Result<()> {
    disk.create_dir_all(dir)?;
    for above in dir.ancestors().skip(1).take(levels) {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match disk.sync_dir(above) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Suffix of temporary files. Those left after a crash may be removed.
pub const TEMP_SUFFIX: &str = ".tmp";

/// Replaces a file atomically and durably: writes a temporary file, syncs it, renames it, and syncs the directory.
///
/// After an error, the file has either its old or its new content. Until a later call succeeds, neither is durable: a
/// crash may leave the file with the other content.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "cannot replace a file without a name and a directory",
        ));
    };
    let mut unfinished = name.to_owned();
    unfinished.push(TEMP_SUFFIX);
    let unfinished = dir.join(unfinished);
    let mut file = disk.open(&unfinished, Open::Append)?;
    let written = file.truncate(0).and_then(|()| file.append(bytes)).and_then(|()| file.sync());
    drop(file);
    let done = written.and_then(|()| disk.rename(&unfinished, path)).and_then(|()| disk.sync_dir(dir));
    if done.is_err() {
        // Best effort: the next attempt overwrites a leftover temporary file.
        let _ = disk.remove(&unfinished);
    }
    done
}

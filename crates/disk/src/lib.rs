//! What the hub asks of a disk, as a port: so that a simulated one can be torn, full, or a liar.
//!
//! Synchronous and free of any runtime; whoever lives on an async thread calls it from a blocking one. What has been
//! appended is *durable* only after [`DiskFile::sync`], and a name that is new, renamed or gone only after
//! [`Disk::sync_dir`] of the directory it is in. [`frame`] is how records are told apart from damage.

use std::fmt::Debug;
use std::io;
use std::path::Path;

mod file_state;
pub mod frame;
mod real;

pub use file_state::{FileState, FileStates};
pub use real::RealDisk;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// For reading; it has to exist.
    Read,
    /// For reading and appending; made where there is none.
    Append,
    /// For reading and appending; it must not exist yet.
    CreateNew,
}

/// A directory tree that may fail at any call.
///
/// Files that it makes are the owner's alone (0600), directories too (0700): they hold bodies of objects.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Makes a directory and those above it; done already is no error.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, sorted; none where there is no directory. A name that is not UTF-8 is given as near
    /// to it as can be.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file.
    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, in place of what has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, file: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the lock that a file stands for, makes the file where there is none, and writes this process' id into it.
    /// What comes back holds the lock until it is dropped or the process ends, however that happens. `None`: another
    /// one holds it.
    fn lock(&self, file: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// A lock that is held.
pub trait DiskLock: Debug + Send + Sync {
    /// Whether it still keeps others from taking the lock that `file` stands for: not where somebody has put another
    /// directory in its place.
    fn holds(&self, file: &Path) -> bool;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Its bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Adds bytes at the end. After an error a part of them may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Whether `path` still leads to it: not where somebody has removed it, or put something else in its place. A file that
    /// does not can be read and appended to as before, and is gone once it is closed.
    fn is_at(&self, path: &Path) -> bool;
    /// Reads up to as many bytes as fit; zero at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Cuts it off.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes its bytes durable. After an error nothing since the last success can be relied on, and asking again proves
    /// nothing: what the system could not write it may have thrown away.
    fn sync(&self) -> io::Result<()>;
}

/// Reads exactly as many bytes as fit.
///
/// # Errors
/// `UnexpectedEof` when the file ends before.
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

/// All of a file that must not be longer than `most` bytes.
///
/// # Errors
/// `FileTooLarge` when it is longer.
pub fn read_all(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let len = file.len()?;
    if len > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{len} bytes, at most {most} expected")));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?];
    read_exact_at(&*file, 0, &mut bytes)?;
    Ok(bytes)
}

/// Makes a directory and those above it, durably: the name of it and of the `levels - 1` above it.
///
/// # Errors
/// The disk's. That a directory above may not be read is none: its names are not ours to make durable then.
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

/// What the name of a file ends with while it is being written; whoever finds one may remove it.
pub const UNFINISHED: &str = ".tmp";

/// Puts a file in place, durably and whole or not at all: written beside, synced, renamed, the directory synced.
///
/// After an error the old file is there, or the new one: which of them a crash leaves is not known until this succeeds.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file to replace needs a name and a directory"));
    };
    let mut unfinished = name.to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = dir.join(unfinished);
    let mut file = disk.open(&unfinished, Open::Append)?;
    let written = file.truncate(0).and_then(|()| file.append(bytes)).and_then(|()| file.sync());
    drop(file);
    let done = written.and_then(|()| disk.rename(&unfinished, path)).and_then(|()| disk.sync_dir(dir));
    if done.is_err() {
        // Best effort: an unfinished file that stays is written over by the next attempt.
        let _ = disk.remove(&unfinished);
    }
    done
}

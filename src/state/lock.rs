//! Lock and format check of a state directory.

use std::io;
use std::path::{Path, PathBuf};

use super::error::{FORMAT_TEXT, StateError, VERSION, failed};
use informer_hub_disk::{self as disk, Disk, DiskLock};

pub(super) const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
/// Maximum size of FORMAT and LOCK in bytes.
const MAX_BYTES: u64 = 256;
/// Names that are ignored when a directory is checked for being empty.
const IGNORED_NAMES: [&str; 1] = ["lost+found"];

pub(super) enum Format {
    /// The file FORMAT has the format version of this program.
    Current,
    /// The directory has no file FORMAT, and no other files.
    Empty,
}

/// Locks an existing directory. If the directory is empty, writes the file FORMAT.
pub(super) fn acquire(disk: &dyn Disk, root: &Path) -> Result<Box<dyn DiskLock>, StateError> {
    // Checked before the lock file is created, so that a foreign directory stays unchanged.
    format(disk, root)?;
    let lock_file = lock_path(root);
    let Some(lock) = disk.lock(&lock_file).map_err(failed(&lock_file, "lock"))? else {
        return Err(StateError::Locked { root: root.to_owned(), pid: pid(disk, root) });
    };
    if let Format::Empty = format(disk, root)? {
        let text = format!("{FORMAT_TEXT}{VERSION}\n");
        let file = root.join(FORMAT);
        disk::replace(disk, &file, text.as_bytes()).map_err(failed(&file, "write"))?;
    }
    Ok(lock)
}

/// Returns the lock file of a directory.
pub(super) fn lock_path(root: &Path) -> PathBuf {
    root.join(LOCK)
}

/// Reads the ID of the process that holds the lock; `None` if it cannot be read.
pub(super) fn pid(disk: &dyn Disk, root: &Path) -> Option<u32> {
    let bytes = disk::read_all(disk, &root.join(LOCK), MAX_BYTES).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// Reads the file FORMAT. Fails for an unsupported format, and for a directory that is not a state directory.
pub(super) fn format(disk: &dyn Disk, root: &Path) -> Result<Format, StateError> {
    let file = root.join(FORMAT);
    let bytes = match disk::read_all(disk, &file, MAX_BYTES) {
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

/// Checks a directory without the file FORMAT. Succeeds if the directory is empty, and fails if it has files of another
/// program.
fn no_format(disk: &dyn Disk, root: &Path) -> Result<Format, StateError> {
    let names = disk.list(root).map_err(failed(root, "list"))?;
    let unfinished = format!("{FORMAT}{}", disk::TEMP_SUFFIX);
    let ours = |name: &&String| **name == LOCK || **name == unfinished || IGNORED_NAMES.contains(&name.as_str());
    match names.iter().find(|name| !ours(name)) {
        Some(found) => Err(StateError::Foreign { root: root.to_owned(), found: found.clone() }),
        None => Ok(Format::Empty),
    }
}

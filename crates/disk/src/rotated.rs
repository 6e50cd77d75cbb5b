//! Log file of lines, rotated when it reaches its maximum size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Parameters of a [`RotatedFile`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedFileParams {
    /// Path of the file. Its directory must exist.
    pub path: PathBuf,
    /// Size in bytes at which the file is rotated. The lines of one append are never split over two files, so a file
    /// exceeds this size if a single append does.
    pub max_size: u64,
    /// Number of rotated files to keep, as `<path>.1` (the newest) and so on.
    pub keep: usize,
    /// Whether appended lines are synced to disk before [`RotatedFile::append`] returns.
    pub fsync: bool,
    /// Whether new files are readable by their owner only (mode 0600). An existing file keeps its mode.
    pub private: bool,
}

/// Log file of lines. It is opened by the first append, and again after an error.
#[derive(Debug)]
pub struct RotatedFile {
    params: RotatedFileParams,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Length of the file in bytes, up to the last complete line.
    length: u64,
    /// Whether the file can be truncated and renamed, unlike a device or a pipe.
    regular: bool,
}

impl RotatedFile {
    /// Creates the value without touching the disk. The first append opens the file.
    #[must_use]
    pub fn new(params: RotatedFileParams) -> Self {
        Self { params, open: None }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.params.path
    }

    /// Returns the file. Opens it if it is not open, or if another process has moved it or changed its length.
    fn open(&mut self) -> io::Result<Open> {
        match self.open.take() {
            Some(open) if open.is_current(&self.params.path) => Ok(open),
            _ => open(&self.params),
        }
    }

    /// Opens the file before the first append, to report a wrong path at the start.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub fn prepare(&mut self) -> io::Result<()> {
        self.open = Some(self.open()?);
        Ok(())
    }

    /// Renames the full file to `<path>.1`, and each older one to the next number; the oldest is replaced.
    fn rotate(&self) -> io::Result<()> {
        let rotated = |number: usize| {
            let mut name = self.params.path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.params.keep).rev() {
            rename(&rotated(number), &rotated(number + 1))?;
        }
        rename(&self.params.path, &rotated(1))
    }

    /// Appends all lines or none. Each of `lines` ends with its line break.
    ///
    /// If an append fails, the part that it wrote is removed. If the removal fails too, the next call terminates the
    /// incomplete line. Devices and pipes are neither synced nor truncated.
    ///
    /// # Errors
    /// I/O errors of the disk, or a pipe that has no reader. The next call opens the file again.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut open = self.open()?;
        if open.regular && open.length > 0 && open.length + lines.len() as u64 > self.params.max_size {
            self.rotate()?;
            open = self.open()?;
        }
        let syncs = self.params.fsync && open.regular;
        let written = open.file.write_all(lines).and_then(|()| if syncs { open.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            open.remove_incomplete();
            return Err(error);
        }
        open.length += lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    /// Returns whether a path still refers to this file, and no other process has changed its length.
    fn is_current(&self, path: &Path) -> bool {
        match (self.file.metadata(), fs::metadata(path)) {
            (Ok(open), Ok(there)) => {
                (open.dev(), open.ino()) == (there.dev(), there.ino()) && (!self.regular || open.len() == self.length)
            }
            _ => false,
        }
    }

    /// Truncates the file to its last complete line, after a failed append has written an incomplete one.
    ///
    /// If truncation fails too, the incomplete line is terminated when the file is opened again.
    fn remove_incomplete(&self) {
        // Setting the length of a file that another process has truncated would fill it with NUL bytes.
        if self.regular && self.file.metadata().is_ok_and(|metadata| metadata.len() > self.length) {
            let _ = self.file.set_len(self.length);
        }
    }
}

fn open(params: &RotatedFileParams) -> io::Result<Open> {
    let RotatedFileParams { path, fsync, .. } = params;
    let mut file = open_for_writing(params)?;
    let metadata = file.metadata()?;
    let (mut length, regular) = (metadata.len(), metadata.is_file());
    if regular && length == 0 && *fsync {
        // The directory entry of the new file must be durable too.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
    }
    if regular && length > 0 {
        let mut last = [0];
        let mut reader = File::open(path)?;
        reader.seek(SeekFrom::End(-1))?;
        reader.read_exact(&mut last)?;
        if last != *b"\n" {
            // A crash has left an incomplete line. Terminate it, so that only that line is unreadable.
            file.write_all(b"\n")?;
            length += 1;
        }
    }
    Ok(Open { file, length, regular })
}

/// Opens the file for writing only, so that the hub is not a reader of its own pipe. Does not wait for a pipe's reader.
fn open_for_writing(params: &RotatedFileParams) -> io::Result<File> {
    let mode = if params.private { 0o600 } else { 0o666 };
    let at_once = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let opened = OpenOptions::new().create(true).append(true).mode(mode).custom_flags(at_once).open(&params.path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NXIO.raw_os_error() => io::Error::new(error.kind(), "the pipe has no reader"),
        _ => error,
    })?;
    // The flag is only for opening: writes must wait for a slow reader.
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
#[path = "rotated_tests.rs"]
mod tests;

//! File of lines, rotated when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{FileParams, Lines};

/// File of lines. `open` is `None` before the first batch and after an error.
#[derive(Debug)]
pub(super) struct LogFile {
    params: FileParams,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Bytes of complete lines.
    length: u64,
    /// Whether it can be truncated and renamed, unlike a device or a pipe.
    regular: bool,
}

impl LogFile {
    pub(super) fn new(params: FileParams) -> Self {
        Self { params, open: None }
    }

    /// Returns the file. Opens it if it is not open, or if another process has moved it.
    fn open(&mut self) -> io::Result<Open> {
        let path = &self.params.path;
        match self.open.take() {
            Some(open) if is_at(&open.file, path) => Ok(open),
            _ => open(path, self.params.fsync),
        }
    }

    /// Renames the full file, and shifts the numbers of older ones.
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
}

impl Lines for LogFile {
    fn place(&self) -> String {
        self.params.path.display().to_string()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut open = self.open()?;
        if open.regular && open.length > 0 && open.length + lines.len() as u64 > self.params.max_size {
            self.rotate()?;
            open = self.open()?;
        }
        let written =
            open.file.write_all(lines).and_then(|()| if self.params.fsync { open.file.sync_data() } else { Ok(()) });
        match written {
            Ok(()) => open.length += lines.len() as u64,
            Err(error) => {
                if open.regular {
                    // If this fails too, the incomplete line is terminated when the file is opened again.
                    let _ = open.file.set_len(open.length);
                }
                return Err(error);
            }
        }
        self.open = Some(open);
        Ok(())
    }
}

fn open(path: &Path, fsync: bool) -> io::Result<Open> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let metadata = file.metadata()?;
    let (mut length, regular) = (metadata.len(), metadata.is_file());
    if regular && length == 0 && fsync {
        // The directory entry of the new file must be durable too.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
    }
    if regular && length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            // A crash has left an incomplete line. Terminate it, so that only that line is unreadable.
            file.write_all(b"\n")?;
            length += 1;
        }
    }
    Ok(Open { file, length, regular })
}

/// Whether a path still refers to this file.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

//! Outputs of the log: a rotated file, or the standard output.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use informer_hub_disk::{RotatedFile, RotatedFileParams};

/// Output to which whole lines are appended. It may block.
pub trait Output: fmt::Debug + Send + 'static {
    /// Returns the output's name, such as its path, for log messages.
    fn place(&self) -> String;

    /// Appends lines, each with its line break.
    ///
    /// # Errors
    /// I/O errors of the output. The caller appends the same lines again later.
    fn append(&mut self, lines: &[u8]) -> io::Result<()>;
}

/// File that is rotated when it is full, and readable by its owner only.
#[derive(Debug)]
pub struct FileOutput(RotatedFile);

impl FileOutput {
    /// Opens the file. It is rotated at `max_size` bytes; `keep` rotated files are kept.
    ///
    /// # Errors
    /// I/O errors, so that a wrong path fails when the hub starts.
    pub fn open(path: PathBuf, max_size: u64, keep: usize) -> io::Result<Self> {
        // Not synced: a power failure may lose the last events.
        let params = RotatedFileParams { path, max_size, keep, fsync: false, private: true };
        let mut file = RotatedFile::new(params);
        file.prepare()?;
        Ok(Self(file))
    }
}

impl Output for FileOutput {
    fn place(&self) -> String {
        self.0.path().display().to_string()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.append(lines)
    }
}

/// Standard output of the process.
#[derive(Debug, Default)]
pub struct StandardOutput;

impl Output for StandardOutput {
    fn place(&self) -> String {
        "stdout".to_owned()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(lines)?;
        out.flush()
    }
}

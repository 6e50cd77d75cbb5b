//! Buffered writer of records.

use std::io;

use informer_hub_disk::DiskFile;
use informer_hub_disk::frame;

const BUFFER_BYTES: usize = 1 << 20;

/// A file to which records are appended, each with a checksum.
pub(super) struct FrameFile<'f> {
    file: &'f mut dyn DiskFile,
    salt: u32,
    buffer: Vec<u8>,
    written: u64,
}

impl<'f> FrameFile<'f> {
    pub(super) fn new(file: &'f mut dyn DiskFile, salt: u32) -> Self {
        Self { file, salt, buffer: Vec::new(), written: 0 }
    }

    /// Appends a record that `fill` encodes.
    pub(super) fn record(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        frame::write_with(self.salt, &mut self.buffer, fill).map_err(io::Error::other)?;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Returns the bytes appended so far, including those still in the buffer.
    pub(super) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.append(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the buffered rest and returns the total bytes. The caller syncs the file.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.written)
    }
}

//! Records into a file, a megabyte at a time.

use std::io;

use informer_hub_disk::DiskFile;
use informer_hub_disk::frame;

/// Bytes that gather before they are written.
const GATHERED: usize = 1 << 20;

/// A file that records are added to.
pub(super) struct FrameFile<'f> {
    file: &'f mut dyn DiskFile,
    salt: u32,
    gathered: Vec<u8>,
    written: u64,
}

impl<'f> FrameFile<'f> {
    pub(super) fn new(file: &'f mut dyn DiskFile, salt: u32) -> Self {
        Self { file, salt, gathered: Vec::new(), written: 0 }
    }

    /// Adds a record that `fill` writes.
    pub(super) fn record(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        frame::write_with(self.salt, &mut self.gathered, fill).map_err(io::Error::other)?;
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.append(&self.gathered)?;
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }

    /// Writes the rest; how many bytes there were in all. What makes them durable is the file's sync.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.written)
    }
}

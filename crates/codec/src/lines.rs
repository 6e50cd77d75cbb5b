//! Finds the lines of a watch as their bytes arrive in pieces of any size.

use super::error::{SourceError, malformed};
use super::{KEPT_CAPACITY, MAX_OBJECT_BYTES};

/// A line that grows beyond this many limits ends the watch: its end is not to be expected.
const ENDLESS: usize = 4;

/// A line of a watch.
#[derive(Debug)]
pub enum Line<'l> {
    /// The line, without its newline.
    Whole(&'l [u8]),
    /// The line is longer than the limit: its first bytes.
    TooLong(&'l [u8]),
}

/// Cuts arriving bytes into lines. Lines that arrive whole are not copied.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    limit: usize,
    /// Length so far of the too long line that is being skipped.
    skipping: Option<usize>,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(MAX_OBJECT_BYTES)
    }
}

impl LineSplitter {
    /// A splitter that skips lines longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), limit, skipping: None }
    }

    /// Takes in what has arrived and hands each line that it completes to `each`. Empty lines are left out.
    ///
    /// # Errors
    /// What `each` returned first, or [`super::ErrorClass::Malformed`] when a line is endless.
    pub fn feed<F>(&mut self, mut chunk: &[u8], mut each: F) -> Result<(), SourceError>
    where
        F: FnMut(Line<'_>) -> Result<(), SourceError>,
    {
        while !chunk.is_empty() {
            let newline = memchr::memchr(b'\n', chunk);
            let (piece, rest) = newline.map_or((chunk, &[][..]), |at| (&chunk[..at], &chunk[at + 1..]));
            chunk = rest;
            self.piece(piece, newline.is_some(), &mut each)?;
        }
        Ok(())
    }

    /// A part of a line, and whether the line ends with it.
    fn piece<F>(&mut self, piece: &[u8], ends: bool, each: &mut F) -> Result<(), SourceError>
    where
        F: FnMut(Line<'_>) -> Result<(), SourceError>,
    {
        let length = self.skipping.unwrap_or(self.buffer.len()) + piece.len();
        if self.skipping.is_none() && length > self.limit {
            if self.buffer.len() < self.limit {
                self.buffer.extend_from_slice(&piece[..self.limit - self.buffer.len()]);
            }
            each(Line::TooLong(&std::mem::take(&mut self.buffer)))?;
            self.skipping = Some(length);
        }
        if self.skipping.is_some() {
            if length > self.limit.saturating_mul(ENDLESS) {
                return Err(malformed(format!("watch: a line without end, {length} bytes and no newline")));
            }
            self.skipping = (!ends).then_some(length);
            return Ok(());
        }
        if !ends {
            self.buffer.extend_from_slice(piece);
            return Ok(());
        }
        if self.buffer.is_empty() {
            return if piece.trim_ascii().is_empty() { Ok(()) } else { each(Line::Whole(piece)) };
        }
        self.buffer.extend_from_slice(piece);
        let result = if self.buffer.trim_ascii().is_empty() { Ok(()) } else { each(Line::Whole(&self.buffer)) };
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_CAPACITY {
            self.buffer = Vec::new();
        }
        result
    }

    /// What has arrived of a line that is not complete; empty when the last line was.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.buffer.trim_ascii()
    }

    /// Whether the bytes so far end inside a line.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.skipping.is_some() || !self.rest().is_empty()
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;

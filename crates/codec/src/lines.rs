//! Splitter of a watch body into lines.

use super::error::{SourceError, malformed};
use super::{KEPT_CAPACITY, MAX_OBJECT_BYTES};

/// Lines longer than the splitter's size limit are skipped. A line longer than this many times the limit ends the watch
/// with an error.
const MAX_SKIPPED_LIMITS: usize = 4;

/// A line of a watch.
#[derive(Debug)]
pub enum Line<'l> {
    /// The line, without its newline.
    Whole(&'l [u8]),
    /// The first bytes of a line longer than the limit.
    TooLong(&'l [u8]),
}

/// Splits arriving bytes into lines. A line that arrives in one piece is not copied.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    limit: usize,
    /// Length so far of an oversized line that is being skipped.
    skipping: Option<usize>,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(MAX_OBJECT_BYTES)
    }
}

impl LineSplitter {
    /// Creates a splitter that skips lines longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), limit, skipping: None }
    }

    /// Accepts bytes and calls `each` with every line that they complete. Blank lines are skipped.
    ///
    /// # Errors
    /// The first error of `each`, or [`super::ErrorClass::Malformed`] if a line is longer than four times the limit.
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

    /// Adds `piece` to the current line. If `ends` is true, the line is complete and is passed to `each`.
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
            let longest = self.limit.saturating_mul(MAX_SKIPPED_LIMITS);
            if length > longest {
                return Err(malformed(format!("watch: no newline in {length} bytes; a line has at most {longest}")));
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

    /// Frees the buffer, unless a line is incomplete.
    pub fn free(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }

    /// Returns the buffered part of an incomplete line.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.buffer.trim_ascii()
    }

    /// Returns whether the bytes so far end inside a line.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.skipping.is_some() || !self.rest().is_empty()
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;

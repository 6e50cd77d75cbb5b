//! Framing of records in a file, which detects damage and confines it to the affected records.
//!
//! ```text
//! magic 4 | length u32 | checksum of payload u32 | checksum of these 12 bytes u32 | payload
//! ```
//!
//! Numbers are little-endian. Checksums are CRC-32 starting from the file's *salt*, so a frame copied from another file
//! is invalid. The magic consists of bytes that never occur in UTF-8, so no text in a payload is mistaken for a frame
//! when searching behind damage. Reading takes time linear in the file size for any content, and memory for the longest
//! frame.

use std::io;

use memchr::memmem::Finder;

use super::DiskFile;

/// Length of the header before each payload, in bytes.
pub const HEADER: usize = 16;
/// Maximum length of a payload, in bytes.
pub const MAX_PAYLOAD: usize = 64 << 20;

const MAGIC: [u8; 4] = [0xf5, 0xff, 0xc0, 0xc1];
/// Bytes read at a time.
const CHUNK: usize = 256 << 10;

/// Error for a payload that is too long for a frame, with its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record of {0} bytes exceeds the limit of {MAX_PAYLOAD} bytes per frame")]
pub struct TooLong(pub usize);

/// Part of a file: a frame, or bytes that are not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'r> {
    /// A valid frame.
    Frame {
        /// Offset of the frame's header.
        offset: u64,
        /// Payload.
        payload: &'r [u8],
    },
    /// Invalid bytes that are followed by a valid frame.
    Damage {
        /// Start of the invalid bytes.
        from: u64,
        /// End of the invalid bytes.
        to: u64,
    },
    /// Invalid bytes up to the end, most likely a write interrupted by a crash.
    Torn {
        /// Start of the invalid bytes.
        from: u64,
        /// End of the file.
        to: u64,
    },
}

/// Reader of a file, frame by frame.
#[derive(Debug)]
pub struct Reader<'f> {
    source: Source<'f>,
    salt: u32,
    /// File length when the reader was created.
    len: u64,
    /// Offset of the next [`Item`].
    at: u64,
    /// Part of the file that is in memory.
    window: Vec<u8>,
    /// Offset in the file at which `window` starts.
    window_at: u64,
}

#[derive(Debug, Clone, Copy)]
enum Source<'f> {
    File(&'f dyn DiskFile),
    Bytes(&'f [u8]),
}

/// A header with a valid checksum.
#[derive(Debug, Clone, Copy)]
struct Header {
    len: usize,
    checksum: u32,
}

/// Appends a frame to `out`.
///
/// # Errors
/// [`TooLong`] if the payload is too long. Nothing is appended then.
pub fn write(salt: u32, payload: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    write_with(salt, out, |out| out.extend_from_slice(payload))
}

/// Appends a frame to `out`. `fill` appends the payload to the same buffer, which avoids a copy.
///
/// # Errors
/// [`TooLong`] if the payload is too long. Nothing is appended then.
pub fn write_with(salt: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    fill(out);
    let (head, payload) = out[start..].split_at_mut(HEADER);
    if payload.len() > MAX_PAYLOAD {
        let len = payload.len();
        out.truncate(start);
        return Err(TooLong(len));
    }
    let Ok(len) = u32::try_from(payload.len()) else { return Err(TooLong(payload.len())) };
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&len.to_le_bytes());
    head[8..12].copy_from_slice(&crc(salt, payload).to_le_bytes());
    let check = crc(salt, &head[..12]);
    head[12..].copy_from_slice(&check.to_le_bytes());
    Ok(())
}

/// Returns the payload of the frame at the start of `bytes`; `None` if there is no valid frame.
#[must_use]
pub fn read(salt: u32, bytes: &[u8]) -> Option<&[u8]> {
    let header = Header::read(salt, bytes)?;
    let payload = bytes.get(HEADER..HEADER + header.len)?;
    (crc(salt, payload) == header.checksum).then_some(payload)
}

fn crc(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Header {
    fn read(salt: u32, bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..HEADER)?;
        if head[..4] != MAGIC || u32_at(head, 12)? != crc(salt, &head[..12]) {
            return None;
        }
        let len = usize::try_from(u32_at(head, 4)?).ok().filter(|len| *len <= MAX_PAYLOAD)?;
        Some(Self { len, checksum: u32_at(head, 8)? })
    }
}

impl<'f> Reader<'f> {
    /// Creates a reader from the start of a file up to its current end.
    pub fn of_file(file: &'f dyn DiskFile, salt: u32) -> io::Result<Self> {
        Ok(Self::new(Source::File(file), file.len()?, salt))
    }

    /// Creates a reader of bytes in memory.
    #[must_use]
    pub fn of_slice(bytes: &'f [u8], salt: u32) -> Self {
        Self::new(Source::Bytes(bytes), bytes.len() as u64, salt)
    }

    fn new(source: Source<'f>, len: u64, salt: u32) -> Self {
        Self { source, salt, len, at: 0, window: Vec::new(), window_at: 0 }
    }

    /// Continues reading at an offset of the file.
    pub fn seek(&mut self, offset: u64) {
        self.at = offset.min(self.len);
    }

    /// Returns the offset of the item that [`Self::next`] will return.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Returns the next frame or range of invalid bytes; `None` at the end.
    ///
    /// # Errors
    /// I/O errors. Calling it again retries.
    #[expect(clippy::should_implement_trait, reason = "the result borrows from the reader")]
    pub fn next(&mut self) -> io::Result<Option<Item<'_>>> {
        if self.at >= self.len {
            return Ok(None);
        }
        let from = self.at;
        if let Some(end) = self.frame_at(from)? {
            self.at = end;
            return Ok(Some(Item::Frame { offset: from, payload: self.payload(from, end) }));
        }
        let to = self.next_frame(from)?;
        self.at = to;
        Ok(Some(if to == self.len { Item::Torn { from, to } } else { Item::Damage { from, to } }))
    }

    fn payload(&self, from: u64, end: u64) -> &[u8] {
        let start = self.in_window(from) + HEADER;
        &self.window[start..self.in_window(end)]
    }

    /// Returns the end of the frame at an offset, and loads the frame into the window (read buffer); `None` if there is
    /// no valid frame.
    fn frame_at(&mut self, at: u64) -> io::Result<Option<u64>> {
        let Some((header, end)) = self.header_at(at)? else { return Ok(None) };
        if end > self.len {
            return Ok(None);
        }
        self.fill(at, HEADER + header.len)?;
        let right = crc(self.salt, self.payload(at, end)) == header.checksum;
        Ok(right.then_some(end))
    }

    fn header_at(&mut self, at: u64) -> io::Result<Option<(Header, u64)>> {
        if self.len - at < HEADER as u64 {
            return Ok(None);
        }
        self.fill(at, HEADER)?;
        let header = Header::read(self.salt, &self.window[self.in_window(at)..]);
        Ok(header.map(|header| (header, at + (HEADER + header.len) as u64)))
    }

    /// Returns the start of the next valid frame behind invalid bytes; the end of the file if there is none.
    ///
    /// A valid header whose payload is damaged is trusted: as many bytes as its length says are skipped.
    fn next_frame(&mut self, from: u64) -> io::Result<u64> {
        let mut at = from;
        while at < self.len {
            match self.header_at(at)? {
                Some((_, end)) if end > self.len => return Ok(self.len),
                Some((_, end)) if self.frame_at(at)?.is_none() => at = end,
                Some(_) => return Ok(at),
                None => at = self.next_magic(at + 1)?,
            }
        }
        Ok(self.len)
    }

    /// Returns the next offset with a frame's magic bytes; the end of the file if there is none.
    fn next_magic(&mut self, mut at: u64) -> io::Result<u64> {
        let finder = Finder::new(&MAGIC);
        while at + (HEADER as u64) <= self.len {
            let size = usize::try_from(self.len - at).unwrap_or(CHUNK).min(CHUNK);
            self.fill(at, size)?;
            let start = self.in_window(at);
            if let Some(found) = finder.find(&self.window[start..]) {
                return Ok(at + found as u64);
            }
            at += (self.window.len() - start - (MAGIC.len() - 1)) as u64;
        }
        Ok(self.len)
    }

    fn in_window(&self, at: u64) -> usize {
        usize::try_from(at - self.window_at).expect("the offset is in the window")
    }

    /// Loads the `size` bytes at file offset `at` into the window (read buffer). They must exist in the file.
    fn fill(&mut self, at: u64, size: usize) -> io::Result<()> {
        let window_end = self.window_at + self.window.len() as u64;
        if self.window_at <= at && at + size as u64 <= window_end {
            return Ok(());
        }
        let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
        let mut window = std::mem::take(&mut self.window);
        let read = self.source.read(at, size.max(CHUNK).min(left), &mut window);
        // After a failed read, the window is empty.
        (self.window, self.window_at) = if read.is_ok() { (window, at) } else { (Vec::new(), 0) };
        read
    }
}

impl Source<'_> {
    fn read(self, at: u64, size: usize, window: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Source::File(file) => {
                window.resize(size, 0);
                window.shrink_to(size.max(CHUNK));
                super::read_exact_at(file, at, window)
            }
            Source::Bytes(bytes) => {
                let start = usize::try_from(at).map_err(|_| io::ErrorKind::UnexpectedEof)?;
                let part = bytes.get(start..start + size).ok_or(io::ErrorKind::UnexpectedEof)?;
                window.clear();
                window.extend_from_slice(part);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;

//! Records in a file, so framed that damage is found and confined to the records it hits.
//!
//! ```text
//! magic 4 | length u32 | checksum of payload u32 | checksum of these 12 bytes u32 | payload
//! ```
//!
//! Numbers are little-endian, checksums CRC-32 begun with the file's *salt*, so that a frame that strayed from another
//! file is none here. The magic has only bytes that UTF-8 never has, so no text in a payload can be taken for a frame
//! when one is looked for behind damage. Reading costs time linear in the file, whatever is in it, and memory for the
//! longest frame.

use std::io;

use memchr::memmem::Finder;

use super::DiskFile;

/// Bytes before each payload.
pub const HEADER: usize = 16;
/// The longest payload.
pub const MAX_PAYLOAD: usize = 64 << 20;

const MAGIC: [u8; 4] = [0xf5, 0xff, 0xc0, 0xc1];
/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// A payload that no frame can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of {0} bytes, at most {MAX_PAYLOAD} fit into a frame")]
pub struct TooLong(pub usize);

/// What a file has at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'r> {
    /// A frame that is whole; `offset` is where it begins.
    Frame {
        /// Where its header begins.
        offset: u64,
        /// What it holds.
        payload: &'r [u8],
    },
    /// Bytes that are no frame, with one behind them.
    Damage {
        /// Where they begin.
        from: u64,
        /// Where they end.
        to: u64,
    },
    /// Bytes that are no frame and that no frame follows: most likely the write that a crash cut off.
    Torn {
        /// Where they begin.
        from: u64,
        /// The end of the file.
        to: u64,
    },
}

/// Reads a file frame by frame.
#[derive(Debug)]
pub struct Reader<'f> {
    source: Source<'f>,
    salt: u32,
    /// The file's length when the reading began.
    len: u64,
    /// Where the next item begins.
    at: u64,
    /// A part of the file, and where it begins.
    window: Vec<u8>,
    window_at: u64,
}

#[derive(Debug, Clone, Copy)]
enum Source<'f> {
    File(&'f dyn DiskFile),
    Bytes(&'f [u8]),
}

/// A header whose own checksum is right.
#[derive(Debug, Clone, Copy)]
struct Header {
    len: usize,
    checksum: u32,
}

/// Adds a frame to `out`.
///
/// # Errors
/// When the payload is too long; nothing is added then.
pub fn write(salt: u32, payload: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    write_with(salt, out, |out| out.extend_from_slice(payload))
}

/// Adds a frame to `out` whose payload `fill` appends, so that nothing is copied.
///
/// # Errors
/// When the payload is too long; nothing is added then.
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

/// The payload of a frame that `bytes` begin with; `None` where they are no whole frame.
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

// === impl Header ===

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

// === impl Reader ===

impl<'f> Reader<'f> {
    /// Reads a file, as long as it is now, from its beginning.
    pub fn of_file(file: &'f dyn DiskFile, salt: u32) -> io::Result<Self> {
        Ok(Self::new(Source::File(file), file.len()?, salt))
    }

    /// Reads what is in memory.
    #[must_use]
    pub fn of_slice(bytes: &'f [u8], salt: u32) -> Self {
        Self::new(Source::Bytes(bytes), bytes.len() as u64, salt)
    }

    fn new(source: Source<'f>, len: u64, salt: u32) -> Self {
        Self { source, salt, len, at: 0, window: Vec::new(), window_at: 0 }
    }

    /// Goes on from an offset.
    pub fn seek(&mut self, offset: u64) {
        self.at = offset.min(self.len);
    }

    /// Where the next item begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The next frame, or what is there instead; `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read; asking again tries again.
    #[expect(clippy::should_implement_trait, reason = "what it gives borrows from the reader")]
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

    /// Where the frame ends that begins at an offset, if a whole one does. It is in the window then.
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

    /// Where the next whole frame begins behind what is none; the end where none does.
    ///
    /// A header that is right is believed even if its payload is damaged: what it spans is passed over.
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

    /// Where the next four bytes are that a frame may begin with.
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
        usize::try_from(at - self.window_at).expect("the window holds it")
    }

    /// Gets `size` bytes from `at` on into the window; the file has them.
    fn fill(&mut self, at: u64, size: usize) -> io::Result<()> {
        let window_end = self.window_at + self.window.len() as u64;
        if self.window_at <= at && at + size as u64 <= window_end {
            return Ok(());
        }
        let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
        let mut window = std::mem::take(&mut self.window);
        let read = self.source.read(at, size.max(CHUNK).min(left), &mut window);
        // What could not be read is not there.
        (self.window, self.window_at) = if read.is_ok() { (window, at) } else { (Vec::new(), 0) };
        read
    }
}

// === impl Source ===

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

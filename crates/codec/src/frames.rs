//! Splitter of a watch body in protobuf into frames: a length of four bytes, big-endian, then the event.

use super::error::{SourceError, malformed};
use super::{KEPT_CAPACITY, MAX_OBJECT_BYTES};

/// Frames longer than the splitter's size limit are skipped. A frame longer than this many times the limit ends the
/// watch with an error.
const MAX_SKIPPED_LIMITS: usize = 4;

/// Number of bytes at the start of an oversized frame that are kept: enough for the metadata of its object.
const HEAD: usize = 64 * 1024;

/// A frame of a watch.
#[derive(Debug)]
pub enum Frame<'f> {
    /// The bytes of an event, without the length before them.
    Whole(&'f [u8]),
    /// The first bytes of an event that is longer than the limit.
    TooLong(&'f [u8]),
}

/// Splits arriving bytes into frames. A frame that arrives in one piece is not copied.
#[derive(Debug)]
pub struct FrameSplitter {
    /// An incomplete frame, including its length.
    buffer: Vec<u8>,
    limit: usize,
    /// Bytes of an oversized frame that are still to be skipped.
    skipping: usize,
}

impl Default for FrameSplitter {
    fn default() -> Self {
        Self::new(MAX_OBJECT_BYTES)
    }
}

impl FrameSplitter {
    /// Creates a splitter that skips frames longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), limit, skipping: 0 }
    }

    /// Accepts bytes and calls `each` with every frame that they complete. Empty frames are skipped.
    ///
    /// # Errors
    /// The first error of `each`, or [`super::ErrorClass::Malformed`] if a frame is longer than four times the limit.
    pub fn feed<F>(&mut self, mut chunk: &[u8], mut each: F) -> Result<(), SourceError>
    where
        F: FnMut(Frame<'_>) -> Result<(), SourceError>,
    {
        loop {
            let skipped = self.skipping.min(chunk.len());
            self.skipping -= skipped;
            chunk = &chunk[skipped..];
            if chunk.is_empty() {
                return Ok(());
            }
            if self.buffer.is_empty()
                && let Some(length) = self.length(chunk)?
                && length <= self.limit
                && let Some(frame) = chunk[4..].get(..length)
            {
                chunk = &chunk[4 + length..];
                if length > 0 {
                    each(Frame::Whole(frame))?;
                }
                continue;
            }
            chunk = self.buffered(chunk, &mut each)?;
        }
    }

    /// Buffers bytes of `chunk` until a frame, or the start of an oversized one, is complete, and passes it to `each`.
    /// Returns the remaining bytes of `chunk`.
    fn buffered<'c, F>(&mut self, chunk: &'c [u8], each: &mut F) -> Result<&'c [u8], SourceError>
    where
        F: FnMut(Frame<'_>) -> Result<(), SourceError>,
    {
        let mut rest = chunk;
        let length = loop {
            let length = self.length(&self.buffer)?;
            let needed = length.map_or(4, |length| 4 + if length > self.limit { length.min(HEAD) } else { length });
            let (taken, after) = rest.split_at(rest.len().min(needed.saturating_sub(self.buffer.len())));
            self.buffer.extend_from_slice(taken);
            rest = after;
            match length {
                _ if self.buffer.len() < needed => return Ok(rest),
                Some(length) => break length,
                None => {}
            }
        };
        let frame = &self.buffer[4..];
        let result = if length > self.limit {
            self.skipping = length - frame.len();
            each(Frame::TooLong(frame))
        } else if frame.is_empty() {
            Ok(())
        } else {
            each(Frame::Whole(frame))
        };
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_CAPACITY {
            self.buffer = Vec::new();
        }
        result.map(|()| rest)
    }

    /// Returns the frame's length from its first four bytes; `None` if they are not complete.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, SourceError> {
        let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let longest = self.limit.saturating_mul(MAX_SKIPPED_LIMITS);
        if length > longest {
            return Err(malformed(format!(
                "watch: a frame has {length} bytes, more than the limit of {longest} bytes"
            )));
        }
        Ok(Some(length))
    }

    /// Frees the buffer, unless a frame is incomplete.
    pub fn free(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }

    /// Returns whether the bytes so far end inside a frame.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.skipping > 0 || !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(limit: usize, bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), SourceError>, FrameSplitter) {
        let (mut splitter, mut frames) = (FrameSplitter::new(limit), Vec::new());
        for chunk in bytes.chunks(piece) {
            let fed = splitter.feed(chunk, |frame| {
                frames.push(match frame {
                    Frame::Whole(frame) => String::from_utf8_lossy(frame).into_owned(),
                    Frame::TooLong(head) => format!("too long: {}", head.len()),
                });
                Ok(())
            });
            if fed.is_err() {
                return (frames, fed, splitter);
            }
        }
        (frames, Ok(()), splitter)
    }

    #[test]
    fn buffer_is_freed_between_frames_only() {
        let (bytes, mut got) = (framed(&["one", "two"]), Vec::new());
        let mut splitter = FrameSplitter::default();
        let mut feed = |splitter: &mut FrameSplitter, bytes: &[u8]| {
            let each = |frame: Frame<'_>| {
                got.push(format!("{frame:?}"));
                Ok(())
            };
            splitter.feed(bytes, each).unwrap();
            splitter.free();
            splitter.buffer.capacity()
        };
        assert!(feed(&mut splitter, &bytes[..5]) > 0, "inside a frame");
        assert_eq!(feed(&mut splitter, &bytes[5..7]), 0);
        assert_eq!(feed(&mut splitter, &bytes[7..]), 0);
        assert_eq!(got.len(), 2);
    }

    fn framed(texts: &[&str]) -> Vec<u8> {
        let frame = |text: &&str| [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
        texts.iter().flat_map(frame).collect()
    }

    #[test]
    fn frames_are_found_for_any_split() {
        let bytes = framed(&["one", "", "two", "a longer frame", "three"]);
        for piece in 1..=bytes.len() {
            let (found, result, splitter) = frames(10, &bytes, piece);
            assert_eq!(
                (found, result),
                (vec!["one".into(), "two".into(), "too long: 14".into(), "three".into()], Ok(()))
            );
            assert!(!splitter.is_inside());
        }
        let (found, _, splitter) = frames(10, &bytes[..9], 4);
        assert!(found == ["one"] && splitter.is_inside());
        assert!(frames(10, &bytes[..20], 20).2.is_inside(), "inside a skipped frame");
    }

    #[test]
    fn oversized_frame_keeps_its_head_only() {
        let long = "x".repeat(300_000);
        let bytes = framed(&[&long, "next"]);
        let (found, _, splitter) = frames(100_000, &bytes, 7_000);
        assert_eq!(found, [format!("too long: {HEAD}"), "next".to_owned()]);
        assert!(splitter.buffer.capacity() <= 2 * HEAD);
    }

    #[test]
    fn lying_lengths_end_the_watch() {
        for length in [u32::MAX, 0x8000_0000, 41] {
            let (_, result, _) = frames(10, &length.to_be_bytes(), 4);
            assert!(result.unwrap_err().message.contains("more than the limit of"), "{length}");
            let (_, result, _) = frames(10, &length.to_be_bytes(), 1);
            assert!(result.is_err(), "{length} byte by byte");
        }
    }
}

//! Splitter of a response stream into lines.

/// Splits a stream of bytes into lines of bounded length.
#[derive(Debug)]
pub struct Lines {
    partial: Vec<u8>,
    limit: usize,
}

/// Error for a line that is longer than the limit. Holds the limit in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a line of the answer has more than {0} bytes")]
pub struct LineTooLong(usize);

impl Lines {
    /// Creates a splitter for lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { partial: Vec::new(), limit }
    }

    /// Adds bytes and returns the lines that they complete, without their line breaks (`\n` or `\r\n`).
    ///
    /// # Errors
    /// [`LineTooLong`] if a line exceeds the limit; a `\r` at the end of the line counts. Lines that the same call has
    /// completed are lost.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut complete = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.append(&rest[..end])?;
            let mut line = std::mem::take(&mut self.partial);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            complete.push(line);
            rest = &rest[end + 1..];
        }
        self.append(rest)?;
        Ok(complete)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LineTooLong> {
        if self.partial.len() + bytes.len() > self.limit {
            return Err(LineTooLong(self.limit));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_for_any_split_of_the_stream() {
        let stream = b"one\ntwo\r\n\nthree\nrest";
        for size in 1..stream.len() {
            let mut lines = Lines::new(100);
            let mut found = Vec::new();
            for part in stream.chunks(size) {
                found.extend(lines.push(part).unwrap());
            }
            assert_eq!(found, [&b"one"[..], b"two", b"", b"three"], "{size}");
        }
    }

    #[test]
    fn line_beyond_the_limit_is_refused() {
        let mut lines = Lines::new(4);
        assert_eq!(lines.push(b"abcd\nab").unwrap(), [b"abcd"]);
        assert_eq!(lines.push(b"cde"), Err(LineTooLong(4)));
    }
}

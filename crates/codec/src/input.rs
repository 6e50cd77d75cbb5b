//! Buffer of a response body that arrives in chunks, with the position up to which a splitter has read it.

/// Capacity that the buffer keeps for later items, in bytes.
const KEPT_CAPACITY: usize = 1024 * 1024;

/// Buffered bytes. The bytes before `at` have been read, the bytes from `at` on have not.
#[derive(Debug, Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    at: usize,
}

impl Input {
    /// Appends bytes. Drops the bytes already read once they are more than half of the buffer.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_CAPACITY);
            self.at = 0;
        } else if self.at > self.buffer.len() / 2 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the bytes that have not been read.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// Marks the next `bytes` unread bytes as read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn read_all(&mut self) {
        self.at = self.buffer.len();
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

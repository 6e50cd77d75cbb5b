//! Raw HTTP answer that a test defines byte by byte.

use bytes::Bytes;

/// HTTP answer that a test prescribes: status, headers and body. The body is chunked, so the client does not know its
/// length beforehand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawAnswer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) head: Bytes,
    /// Text that is sent repeatedly after `head`, until at least `length` bytes of it are sent.
    pub(super) filler: Bytes,
    pub(super) length: usize,
    /// Whether the connection stays open after the last byte.
    pub(super) silent: bool,
}

impl RawAnswer {
    /// Creates an answer with this status code and body, as `application/json` unless a header overrides it.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), head: body.into(), filler: Bytes::new(), length: 0, silent: false }
    }

    /// Adds a header. An invalid header is dropped.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Appends copies of `text` to the body, at least `bytes` bytes in total. The copies are generated while they are
    /// sent, so a large body costs little memory.
    #[must_use]
    pub fn filled(mut self, text: &str, bytes: usize) -> Self {
        const PIECE: usize = 64 * 1024;
        self.filler = text.repeat(PIECE.div_ceil(text.len().max(1))).into();
        self.length = if self.filler.is_empty() { 0 } else { bytes };
        self
    }

    /// Keeps the connection open after the last byte until the test ends all faults.
    #[must_use]
    pub fn then_silence(mut self) -> Self {
        self.silent = true;
        self
    }
}

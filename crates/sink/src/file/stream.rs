//! Standard output as a target of lines. If an append fails, the lines already written cannot be removed.

use std::fmt;
use std::io::{self, Write};

use super::Lines;

/// Output stream; `torn` is set if a failed write may have left an incomplete line.
pub(super) struct Stream<W> {
    name: &'static str,
    out: W,
    torn: bool,
}

impl<W> Stream<W> {
    pub(super) fn new(name: &'static str, out: W) -> Self {
        Self { name, out, torn: false }
    }
}

impl<W> fmt::Debug for Stream<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("name", &self.name).field("torn", &self.torn).finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> Lines for Stream<W> {
    fn place(&self) -> String {
        self.name.to_owned()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = (|| {
            if self.torn {
                self.out.write_all(b"\n")?;
            }
            self.out.write_all(lines)?;
            self.out.flush()
        })();
        self.torn = written.is_err();
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), "the reader has closed it (broken pipe)"),
            _ => error,
        })
    }
}

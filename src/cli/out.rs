//! Printing, for programs whose reader may leave (`| head`), and in place on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Whoever read the output does so no more. That is no failure: they have seen what they wanted.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output is gone")]
pub(super) struct ReaderGone;

/// Prints a line, or several.
///
/// # Errors
/// [`ReaderGone`], or whatever else the output fails with.
pub(super) fn say(text: impl Display) -> anyhow::Result<()> {
    told(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints a text as it is.
///
/// # Errors
/// As [`say`].
pub(super) fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    told(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn told(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => Ok(written?),
    }
}

/// Whether standard output may be coloured: it is a terminal that has colours, and nobody has said `NO_COLOR`.
pub(super) fn colours() -> bool {
    let said = |name: &str| std::env::var_os(name).unwrap_or_default();
    io::stdout().is_terminal() && said("NO_COLOR").is_empty() && said("TERM") != "dumb"
}

/// A place on a terminal where something is drawn over and over. Nothing is to be restored at its end, however it comes.
#[derive(Debug, Default)]
pub(super) struct InPlace {
    /// Lines that are there to be overwritten.
    height: usize,
}

impl InPlace {
    /// Draws over what was drawn before. What the terminal has no room for is left out, and said to be.
    ///
    /// # Errors
    /// As [`say`].
    pub(super) fn draw(&mut self, text: &str) -> anyhow::Result<()> {
        // One line is the cursor's, one tells what is left out.
        let room = terminal_size::terminal_size().map_or(usize::MAX, |(_, height)| usize::from(height.0).max(3) - 2);
        let mut drawn = Vec::new();
        self.height = drawing(text, self.height, room, &mut drawn);
        let mut out = io::stdout().lock();
        told(out.write_all(&drawn).and_then(|()| out.flush()))
    }
}

/// What draws `text` over `before` lines; gives back how many lines it is.
fn drawing(text: &str, before: usize, room: usize, out: &mut Vec<u8>) -> usize {
    let hidden = text.lines().count().saturating_sub(room);
    let more = (hidden > 0).then(|| format!("… and {hidden} more lines"));
    if before > 0 {
        out.extend(format!("\x1b[{before}A\r").into_bytes());
    }
    // Lines are cut, not wrapped: a wrapped one would take two of the lines to go up.
    out.extend(b"\x1b[?7l");
    let lines = text.lines().take(room).chain(more.as_deref());
    let height = lines.map(|line| out.extend(format!("{line}\x1b[K\n").into_bytes())).count();
    out.extend(b"\x1b[J\x1b[?7h");
    height
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_again_begins_where_it_was_and_fits() {
        let mut out = Vec::new();
        assert_eq!(drawing("a\nb\nc\nd", 0, 2, &mut out), 3);
        let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert!(text.contains("a\x1b[K\nb\x1b[K\n… and 2 more lines\x1b[K\n") && !text.contains("\x1b[3A"), "{text:?}");
        assert_eq!(drawing("a\nb", 3, 10, &mut out), 2);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("\x1b[3A\r") && text.ends_with("b\x1b[K\n\x1b[J\x1b[?7h"), "{text:?}");
    }

    #[test]
    fn a_reader_who_has_left_is_told_from_a_full_disk() {
        let gone = told(Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
        assert!(gone.is::<ReaderGone>());
        assert!(!told(Err(io::ErrorKind::StorageFull.into())).unwrap_err().is::<ReaderGone>());
    }
}

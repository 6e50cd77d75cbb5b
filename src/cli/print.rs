//! Output of commands: text for people, JSON and YAML for programs, and drawing in place on a terminal.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

use informer_hub_types::{printable_char, printable_json, printable_lines};

/// Error: the program that reads the output through a pipe has ended (`| head`). Not a failure, the exit code is 0.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output is gone")]
pub(super) struct ReaderGone;

/// Runs a command whose output never ends, until it fails or the program that reads its output ends.
///
/// # Errors
/// The error of `work`, or [`ReaderGone`] as soon as the reading program ends, even if `work` prints nothing at that
/// time.
pub(super) async fn until_unread<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        done = work => done,
        () = unread(io::stdout()) => Err(ReaderGone.into()),
    }
}

/// Completes when no process reads from the pipe `output` any more. Never completes for other files.
async fn unread(output: impl AsFd) {
    // Unchecked, because the check makes the pipe non-blocking, also for other processes that have it.
    let pipe = output.as_fd().try_clone_to_owned().and_then(Sender::from_owned_fd_unchecked);
    match pipe {
        Ok(pipe) if pipe.ready(Interest::ERROR).await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Prints a line, or several.
///
/// # Errors
/// [`ReaderGone`], or an I/O error of standard output.
pub(super) fn say(text: impl Display) -> anyhow::Result<()> {
    checked(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints lines that may contain untrusted text, with control characters replaced.
///
/// # Errors
/// [`ReaderGone`], or an I/O error of standard output.
pub(super) fn show(text: &str) -> anyhow::Result<()> {
    say(printable_lines(text, colours()))
}

/// Prints an error to standard error. Its causes may contain untrusted text.
pub(super) fn print_error(error: &anyhow::Error) {
    note(format_args!("{}", complaint(error)));
}

pub(super) fn complaint(error: &anyhow::Error) -> String {
    format!("informer-hub: {}", printable_lines(&format!("{error:#}"), false))
}

/// Prints a line to standard error. Ignores errors: such a line is only a note, since results go to standard output and
/// a failure also sets the exit code.
pub(super) fn note(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a text unchanged.
///
/// # Errors
/// [`ReaderGone`], or an I/O error of standard output.
pub(super) fn out(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    checked(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

fn checked(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => Ok(written?),
    }
}

/// Whether to colour standard output: it is a terminal with colours, and `NO_COLOR` is not set.
pub(super) fn colours() -> bool {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    io::stdout().is_terminal() && variable("NO_COLOR").is_empty() && variable("TERM") != "dumb"
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Tables and lines, for people; `table` and `wide` are the same
    #[default]
    #[value(aliases = ["table", "wide"])]
    Text,
    /// One JSON document, for programs
    Json,
    /// One YAML document, for programs
    Yaml,
}

/// Prints `document` as JSON or YAML, or `text` if the format is text.
pub(super) fn answer(format: Format, document: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    out(&match format {
        Format::Text => printable_lines(&text(), colours()),
        Format::Json => json(document)? + "\n",
        Format::Yaml => yaml(document)?,
    })
}

/// Renders a JSON document that is safe on a terminal.
pub(super) fn json(document: &impl Serialize) -> anyhow::Result<String> {
    Ok(printable_json(&serde_json::to_string_pretty(document)?))
}

/// Renders a YAML document that ends with a line break and is safe on a terminal. A document with control characters is
/// rendered as JSON, which is also YAML and can escape them.
pub(super) fn yaml(document: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(document).context("cannot write the document as YAML")?;
    if text.chars().any(|c| c != '\n' && printable_char(c) != c) {
        return Ok(json(document)? + "\n");
    }
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Creates a table without borders and without wrapping, so that no name is cut.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Renders a table without trailing blanks.
pub(super) fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Colours a text if `colours` is set.
pub(super) fn painted(text: &str, colour: Color, colours: bool) -> String {
    let code = match colour {
        Color::Red => 31,
        Color::Green => 32,
        _ => 33,
    };
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Returns the width of standard output in columns; `None` if it is not a terminal.
pub(super) fn width() -> Option<usize> {
    let is_terminal = io::stdout().is_terminal();
    is_terminal.then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0))
}

/// Wraps lines at words to at most `width` columns, except for longer words. Continuation lines begin with `indent`.
pub(super) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    for (at, line) in text.lines().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let start = line.len() - line.trim_start().len();
        out.push_str(&line[..start]);
        let (mut column, mut is_first) = (start, true);
        for word in line[start..].split(' ') {
            let length = word.chars().count();
            if !is_first && column + 1 + length > width {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.push_str(indent);
                column = indent.chars().count();
            } else if !is_first {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            (column, is_first) = (column + length, false);
        }
    }
    out
}

/// Strips the kind from a name as `-o name` prints it: `prod-eu` of `cluster/prod-eu`.
pub(super) fn without_kind<'n>(kind: &str, name: &'n str) -> &'n str {
    name.strip_prefix(kind).and_then(|name| name.strip_prefix('/')).unwrap_or(name)
}

/// Formats bytes with a unit and few digits: `1.1 GiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut tenths, mut unit) = (bytes.saturating_mul(10), 0);
    while tenths >= 10_240 && unit + 1 < units.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    match (tenths / 10, tenths % 10) {
        (whole, _) if unit == 0 || whole >= 10 => format!("{whole} {}", units[unit]),
        (whole, tenth) => format!("{whole}.{tenth} {}", units[unit]),
    }
}

/// Formats a number with thousands separators.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Creates a right-aligned cell.
pub(super) fn number(figure: impl ToString) -> Cell {
    Cell::new(figure).set_alignment(CellAlignment::Right)
}

/// Switches the colours of a table on or off, whether or not standard output is a terminal.
pub(super) fn styled(mut table: Table, colours: bool) -> Table {
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// Formats seconds in the largest unit of which there are at least two: `8d`, `5h`, `30m`, `12s`.
pub(super) fn span(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds >= 2 * size).unwrap_or((1, "s"));
    format!("{}{unit}", seconds / size)
}

/// Area of a terminal that is redrawn in place. Needs no cleanup, however the program ends.
#[derive(Debug, Default)]
pub(super) struct InPlace {
    /// Number of lines of the last drawing.
    height: usize,
}

impl InPlace {
    /// Draws over the last drawing. Lines that do not fit the terminal are replaced by one line with their number.
    ///
    /// # Errors
    /// [`ReaderGone`], or an I/O error of standard output.
    pub(super) fn draw(&mut self, text: &str) -> anyhow::Result<()> {
        // One line is for the cursor, one for the number of hidden lines.
        let room = terminal_size::terminal_size().map_or(usize::MAX, |(_, height)| usize::from(height.0).max(3) - 2);
        let mut drawn = Vec::new();
        self.height = drawing(&printable_lines(text, colours()), self.height, room, &mut drawn);
        let mut out = io::stdout().lock();
        checked(out.write_all(&drawn).and_then(|()| out.flush()))
    }
}

/// Writes the escape sequences that draw `text` over the `before` lines of the last drawing, in at most `room` lines.
/// Returns the number of drawn lines.
fn drawing(text: &str, before: usize, room: usize, out: &mut Vec<u8>) -> usize {
    let hidden = text.lines().count().saturating_sub(room);
    let more = (hidden > 0).then(|| format!("… and {hidden} more lines"));
    if before > 0 {
        out.extend(format!("\x1b[{before}A\r").into_bytes());
    }
    // Switches wrapping off: a wrapped line would take two lines, and the next drawing would begin too low.
    out.extend(b"\x1b[?7l");
    let lines = text.lines().take(room).chain(more.as_deref());
    // Each line is cleared before it is written: after a line of full width, the cursor stays on the last character,
    // which clearing would erase.
    let height = lines.map(|line| out.extend(format!("\x1b[K{line}\n").into_bytes())).count();
    out.extend(b"\x1b[J\x1b[?7h");
    height
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_spans_are_formatted_with_few_digits() {
        let sizes = [0, 1023, 1024, 1126, 64 << 20, 3 << 29, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.0 KiB", "64 MiB", "1.5 GiB", "1677721 TiB"]);
        let spans = [0, 119, 120, 7_199, 7_200, 86_400, 172_800].map(span);
        assert_eq!(spans, ["0s", "119s", "2m", "119m", "2h", "24h", "2d"]);
    }

    #[test]
    fn lines_break_at_words_and_keep_their_indent() {
        assert_eq!(wrapped("  one two three", 9, "    "), "  one two\n    three");
        assert_eq!(wrapped("one\n\ntwo averylongword x", 8, " "), "one\n\ntwo\n averylongword\n x");
        assert_eq!(wrapped("a    b", 80, ""), "a    b");
    }

    #[test]
    fn yaml_quotes_texts_that_look_like_other_types() {
        let value = serde_json::json!({ "a": "true", "b": "1.0", "c": "", "d": "x: y", "e": ["-"], "f": null });
        let text = yaml(&value).unwrap();
        let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }

    #[test]
    fn a_drawing_starts_at_the_last_one_and_fits_the_terminal() {
        let mut out = Vec::new();
        assert_eq!(drawing("a\nb\nc\nd", 0, 2, &mut out), 3);
        let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert!(text.contains("\x1b[Ka\n\x1b[Kb\n\x1b[K… and 2 more lines\n") && !text.contains("\x1b[3A"), "{text:?}");
        assert_eq!(drawing("a\nb", 3, 10, &mut out), 2);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("\x1b[3A\r") && text.ends_with("\x1b[Kb\n\x1b[J\x1b[?7h"), "{text:?}");
    }

    #[tokio::test]
    async fn a_pipe_without_a_reader_is_noticed_before_the_next_write() {
        let (reader, writer) = io::pipe().unwrap();
        let mut waiting = std::pin::pin!(unread(writer));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(reader);
        tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(futures::poll!(std::pin::pin!(unread(file))).is_pending(), "a file has no reader");
    }

    #[test]
    fn a_closed_pipe_is_distinguished_from_a_full_disk() {
        let gone = checked(Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
        assert!(gone.is::<ReaderGone>());
        assert!(!checked(Err(io::ErrorKind::StorageFull.into())).unwrap_err().is::<ReaderGone>());
    }
}

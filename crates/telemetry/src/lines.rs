//! Formats of log lines: one printable line per event, whatever its fields contain. JSON lines include the current
//! trace and span.

use std::{fmt, io};

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::spans;
use informer_hub_types::{TraceParent, printable_json, printable_lines};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Writer that makes text from outside the hub printable in log lines. Each write must be a whole line. If `colours` is
/// set, colour codes stay in the line: they come from the log format, which escapes colour codes in fields itself.
#[derive(Debug)]
pub(super) struct Printable<W> {
    pub(super) out: W,
    pub(super) format: LogFormat,
    pub(super) colours: bool,
}

impl<W: io::Write> io::Write for Printable<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut safe = match self.format {
            LogFormat::Text => printable_lines(&text.replace('\n', " "), self.colours),
            LogFormat::Json => printable_json(text),
        };
        safe.push('\n');
        self.out.write_all(safe.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// JSON format that adds `trace_id` and `span_id` if the current span is exported.
#[derive(Debug)]
pub(super) struct WithTrace<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some(TraceParent { trace, span }) = spans::current() else {
            return self.0.format_event(ctx, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        match line.trim_end().strip_suffix('}') {
            Some(object) => writeln!(writer, "{object},\"trace_id\":\"{trace:032x}\",\"span_id\":\"{span:016x}\"}}"),
            None => writer.write_str(&line),
        }
    }
}

//! Log lines as JSON that name the trace in which they were written, so that one leads to the other.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::spans;
use crate::types::TraceParent;

/// Adds `trace_id` and `span_id` to the objects that another format writes, where a span is current that is exported.
/// Elsewhere a line costs what it did.
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

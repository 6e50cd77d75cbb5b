//! The spans that are exported as traces: one per list, per watch connection, per delivery attempt; never per event.
//!
//! While nobody exports, making one costs a load and a branch.

use std::fmt::Display;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of these spans: what is exported, and nothing else is.
pub(super) const TARGET: &str = "informer_hub::spans";

/// A list, paged or streaming, from its first request to its last object.
#[must_use]
pub fn list(cluster: &impl Display, resource: &impl Display, scope: &impl Display) -> Span {
    tracing::info_span!(
        target: TARGET, parent: None, "list",
        otel.kind = "client", %cluster, %resource, %scope,
        objects = Empty, pages = Empty, otel.status_code = Empty, otel.status_description = Empty,
    )
}

/// Notes what came of a list. A streaming list has no pages.
pub fn end_list(span: &Span, objects: u64, pages: u64, error: Option<&dyn Display>) {
    span.record("objects", objects).record("pages", pages);
    fail(span, error);
}

/// A watch connection, from its request to its end.
#[must_use]
pub fn watch(cluster: &impl Display, resource: &impl Display, scope: &impl Display) -> Span {
    tracing::info_span!(
        target: TARGET, parent: None, "watch",
        otel.kind = "client", %cluster, %resource, %scope,
        events = Empty, otel.status_code = Empty, otel.status_description = Empty,
    )
}

/// Notes what came of a watch.
pub fn end_watch(span: &Span, events: u64, error: Option<&dyn Display>) {
    span.record("events", events);
    fail(span, error);
}

/// One attempt to deliver a batch. The transport notes in it what came of it.
#[must_use]
pub fn delivery(sink: &str, events: u64) -> Span {
    tracing::info_span!(
        target: TARGET, parent: None, "deliver",
        otel.kind = "client", sink, events,
        http.response.status_code = Empty, otel.status_code = Empty, otel.status_description = Empty,
    )
}

/// The ids of a span's trace and of the span itself; `None` where it is not exported.
#[must_use]
pub fn ids(span: &Span) -> Option<(u128, u64)> {
    if span.is_disabled() {
        return None;
    }
    sampled(span.context().span().span_context())
}

/// The same of the span that is current.
pub(super) fn current_ids() -> Option<(u128, u64)> {
    Context::map_current(|context| sampled(context.span().span_context()))
}

fn sampled(ids: &SpanContext) -> Option<(u128, u64)> {
    let pair = || (u128::from_be_bytes(ids.trace_id().to_bytes()), u64::from_be_bytes(ids.span_id().to_bytes()));
    (ids.is_valid() && ids.is_sampled()).then(pair)
}

fn fail(span: &Span, error: Option<&dyn Display>) {
    if let Some(error) = error {
        span.record("otel.status_code", "ERROR").record("otel.status_description", tracing::field::display(error));
    }
}

//! Spans that are exported as traces: one per list and per watch connection. There are also spans per change,
//! Kubernetes read and delivery attempt, up to a limit per second. Without an exporter, creating a span costs one
//! atomic load and a branch.

use std::fmt::Display;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing::field::{Empty, display};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use informer_hub_types::{SPAN_TARGET, TraceLimiter, TraceParent, Traced};

/// Starts the span of a list, paged or streaming, from its first request to its last object.
#[must_use]
pub fn list(cluster: &impl Display, resource: &impl Display, scope: &impl Display) -> Span {
    tracing::info_span!(
        target: SPAN_TARGET, parent: None, "list",
        otel.kind = "client", %cluster, %resource, %scope,
        objects = Empty, pages = Empty, otel.status_code = Empty, otel.status_description = Empty,
    )
}

/// Records the result of a list in its span. `pages` is 0 for a streaming list.
pub fn end_list(span: &Span, objects: u64, pages: u64, error: Option<&dyn Display>) {
    span.record("objects", objects).record("pages", pages);
    fail(span, error);
}

/// Starts the span of a watch connection, from its request to its end.
#[must_use]
pub fn watch(cluster: &impl Display, resource: &impl Display, scope: &impl Display) -> Span {
    tracing::info_span!(
        target: SPAN_TARGET, parent: None, "watch",
        otel.kind = "client", %cluster, %resource, %scope,
        events = Empty, otel.status_code = Empty, otel.status_description = Empty,
    )
}

/// Records the result of a watch in its span.
pub fn end_watch(span: &Span, events: u64, error: Option<&dyn Display>) {
    span.record("events", events);
    fail(span, error);
}

/// Starts the span of a request to the Kubernetes read API, which lasts until the head of the response. It continues
/// the reader's trace `parent`, if there is one. Beyond [`TraceLimiter::MOST`] spans per second, returns a disabled
/// span.
#[must_use]
pub fn read(verb: &str, resource: &str, root: &str, client: &str, parent: Option<TraceParent>) -> Span {
    static LIMIT: TraceLimiter = TraceLimiter::new();
    if !tracing::span_enabled!(target: SPAN_TARGET, tracing::Level::INFO) || !LIMIT.take() {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: SPAN_TARGET, parent: None, "read",
        otel.kind = "server", verb, resource, root, client,
        http.response.status_code = Empty, otel.status_code = Empty, otel.status_description = Empty,
    );
    if let Some(parent) = parent {
        // Ignore the error: there is no exporter.
        let _ = span.set_parent(Context::new().with_remote_span_context(context(parent)));
    }
    span
}

/// Records the response to a read request. Only status codes from 500 count as failures.
pub fn end_read(span: &Span, code: u16, error: Option<&dyn Display>) {
    span.record("http.response.status_code", code);
    fail(span, error.filter(|_| code >= 500));
}

/// Starts a span for the time that a traced change spends in one actor. Without a trace, returns a disabled span.
#[must_use]
pub fn stage(name: &'static str, traced: Option<&Traced>) -> Span {
    traced.map_or_else(Span::none, |traced| {
        tracing::info_span!(target: SPAN_TARGET, parent: &traced.span, "stage", otel.name = name, otel.kind = "internal")
    })
}

/// Records cluster, resource and scope of a change in its span. They are not known yet when the span starts.
pub fn name_change(span: &Span, cluster: &impl Display, resource: &impl Display, scope: &impl Display) {
    span.record("cluster", display(cluster)).record("resource", display(resource)).record("scope", display(scope));
}

/// Starts the span of one attempt to deliver a batch. The transport records the result in the span.
///
/// If changes in the batch are traced, the span continues the first trace of `parents` and is linked to the others.
/// Otherwise the span starts a new trace, at most [`TraceLimiter::MOST`] times per second.
#[must_use]
pub fn delivery<I: Iterator<Item = TraceParent>>(sink: &str, events: u64, parents: impl FnOnce() -> I) -> Span {
    static ROOT_LIMIT: TraceLimiter = TraceLimiter::new();
    if !tracing::span_enabled!(target: SPAN_TARGET, tracing::Level::INFO) {
        return Span::none();
    }
    let mut parents = parents();
    let first = parents.next();
    if first.is_none() && !ROOT_LIMIT.take() {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: SPAN_TARGET, parent: None, "deliver",
        otel.kind = "client", sink, events,
        http.response.status_code = Empty, otel.status_code = Empty, otel.status_description = Empty,
    );
    if let Some(first) = first {
        // Ignore the error: there is no exporter.
        let _ = span.set_parent(Context::new().with_remote_span_context(context(first)));
        parents.for_each(|other| span.add_link(context(other)));
    }
    span
}

fn context(TraceParent { trace, span }: TraceParent) -> SpanContext {
    let (trace, span) = (TraceId::from(trace), SpanId::from(span));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default())
}

/// Returns trace and span ID of the current span; `None` if it is not exported.
#[cfg(feature = "log")]
pub(super) fn current() -> Option<TraceParent> {
    Context::map_current(|context| TraceParent::of_context(context.span().span_context()))
}

fn fail(span: &Span, error: Option<&dyn Display>) {
    if let Some(error) = error {
        span.record("otel.status_code", "ERROR").record("otel.status_description", tracing::field::display(error));
    }
}

//! The spans that are exported as traces: one per list and per watch connection; of changes and delivery attempts, so many
//! a second at most.
//!
//! While nobody exports, making one costs a load and a branch.

use std::fmt::Display;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing::field::{Empty, display};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use informer_hub_types::{SPANS, TraceLimiter, TraceParent, Traced};

/// A list, paged or streaming, from its first request to its last object.
#[must_use]
pub fn list(cluster: &impl Display, resource: &impl Display, scope: &impl Display) -> Span {
    tracing::info_span!(
        target: SPANS, parent: None, "list",
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
        target: SPANS, parent: None, "watch",
        otel.kind = "client", %cluster, %resource, %scope,
        events = Empty, otel.status_code = Empty, otel.status_description = Empty,
    )
}

/// Notes what came of a watch.
pub fn end_watch(span: &Span, events: u64, error: Option<&dyn Display>) {
    span.record("events", events);
    fail(span, error);
}

/// A change's way through one actor, from when it gets there until it has gone on. A [`Traced`] has been begun at the watch
/// line; of a change without one there is no span.
#[must_use]
pub fn stage(name: &'static str, traced: Option<&Traced>) -> Span {
    traced.map_or_else(Span::none, |traced| {
        tracing::info_span!(target: SPANS, parent: &traced.span, "stage", otel.name = name, otel.kind = "internal")
    })
}

/// Says what a change is of, which is not known where its trace begins.
pub fn name_change(span: &Span, cluster: &impl Display, resource: &impl Display, scope: &impl Display) {
    span.record("cluster", display(cluster)).record("resource", display(resource)).record("scope", display(scope));
}

/// One attempt to deliver a batch. The transport notes in it what came of it.
///
/// It goes on from the first of `parents`, where changes in the batch have traces, and is linked to the others. Without any
/// it is a trace of its own; of these there are no more than [`TraceLimiter::MOST`] a second.
#[must_use]
pub fn delivery<I: Iterator<Item = TraceParent>>(sink: &str, events: u64, parents: impl FnOnce() -> I) -> Span {
    static ALONE: TraceLimiter = TraceLimiter::new();
    if !tracing::span_enabled!(target: SPANS, tracing::Level::INFO) {
        return Span::none();
    }
    let mut parents = parents();
    let first = parents.next();
    if first.is_none() && !ALONE.take() {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: SPANS, parent: None, "deliver",
        otel.kind = "client", sink, events,
        http.response.status_code = Empty, otel.status_code = Empty, otel.status_description = Empty,
    );
    if let Some(first) = first {
        // An error says that nobody exports.
        let _ = span.set_parent(Context::new().with_remote_span_context(context(first)));
        parents.for_each(|other| span.add_link(context(other)));
    }
    span
}

fn context(TraceParent { trace, span }: TraceParent) -> SpanContext {
    let (trace, span) = (TraceId::from(trace), SpanId::from(span));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default())
}

/// Where the span is that is current; `None` where it is not exported.
#[cfg(feature = "log")]
pub(super) fn current() -> Option<TraceParent> {
    Context::map_current(|context| TraceParent::of_context(context.span().span_context()))
}

fn fail(span: &Span, error: Option<&dyn Display>) {
    if let Some(error) = error {
        span.record("otel.status_code", "ERROR").record("otel.status_description", tracing::field::display(error));
    }
}

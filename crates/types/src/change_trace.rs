//! Latency metrics and traces of sampled changes. A sampled change is followed from its watch event to its delivery.
//!
//! Each informer samples one change at a time, and some samples are also traced. Changes that are not sampled cost
//! nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use opentelemetry::trace::{SpanContext, TraceContextExt};
use parking_lot::Mutex;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::clock::{self, Instant};
use super::{ObjectKey, ResourceVersion, StoredObject, TokenBucket};

/// Target of the spans that are exported as traces. Spans with other targets are not exported.
pub const SPAN_TARGET: &str = "informer_hub::spans";

/// A sampled change on its way to the receivers.
#[derive(Clone, Debug)]
pub struct SampledChange {
    /// When the hub read the change from the watch.
    pub read: Instant,
    /// Trace of the change; `None` if only its latency is measured.
    pub traced: Option<Traced>,
}

/// Trace of one change: its span, and the object and version that identify the change.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Span from reading the watch event until the last receiver is done with the change.
    pub span: Span,
    /// Object of the change. It is not exported with the trace.
    pub key: ObjectKey,
    /// resourceVersion of the object after the change.
    pub version: ResourceVersion,
}

impl From<Instant> for SampledChange {
    fn from(read: Instant) -> Self {
        Self { read, traced: None }
    }
}

impl SampledChange {
    /// Returns whether this sample replaces `other`. It does if there is no `other`, or if only this sample has a
    /// trace.
    #[must_use]
    pub fn takes_precedence_over(&self, other: Option<&Self>) -> bool {
        other.is_none_or(|other| other.traced.is_none() && self.traced.is_some())
    }
}

impl Traced {
    /// Starts a trace; `None` if traces are not exported or their limit is reached.
    #[must_use]
    pub fn begin(object: &StoredObject) -> Option<Self> {
        static SEEN: TraceLimiter = TraceLimiter::new();
        if !(tracing::span_enabled!(target: SPAN_TARGET, tracing::Level::INFO) && SEEN.take()) {
            return None;
        }
        let span = tracing::info_span!(
            target: SPAN_TARGET, parent: None, "change",
            otel.kind = "consumer", cluster = Empty, resource = Empty, scope = Empty,
        );
        let (key, version) = (object.key().clone(), object.resource_version().clone());
        (!span.is_disabled()).then_some(Self { span, key, version })
    }

    /// Returns whether `object` is the object after this change, by key and resourceVersion.
    #[must_use]
    pub fn is_of(&self, object: &StoredObject) -> bool {
        *object.key() == self.key && *object.resource_version() == self.version
    }
}

/// Rate limiter of traces: at most [`TraceLimiter::MOST`] per second on average, in bursts of at most the same number.
#[derive(Debug)]
pub struct TraceLimiter(Mutex<TokenBucket>);

impl TraceLimiter {
    /// Maximum burst and rate per second.
    pub const MOST: u32 = 100;

    const INTERVAL: Duration = Duration::from_secs(1).checked_div(Self::MOST).expect("MOST is not zero");

    /// Creates a limiter with a full burst.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(TokenBucket::new(Self::INTERVAL, Self::MOST)))
    }

    /// Counts one trace against the limit; `false` if the limit is reached.
    pub fn take(&self) -> bool {
        self.take_at(clock::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut bucket = self.0.lock();
        let is_available = bucket.wait(1, now).is_zero();
        if is_available {
            bucket.take(1, now);
        }
        is_available
    }
}

impl Default for TraceLimiter {
    fn default() -> Self {
        Self::new()
    }
}

/// Parent span that a receiver can continue: W3C's `traceparent` of a sampled trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// Trace ID.
    pub trace: u128,
    /// Span ID.
    pub span: u64,
}

impl TraceParent {
    /// Length of the `traceparent` text in characters.
    pub const LENGTH: usize = 55;

    /// Returns the trace and span ID of a span; `None` if the span is not exported.
    #[must_use]
    pub fn of(span: &Span) -> Option<Self> {
        if span.is_disabled() {
            return None;
        }
        Self::of_context(span.context().span().span_context())
    }

    /// Returns the trace and span ID of an OpenTelemetry span; `None` if the span is not exported.
    #[must_use]
    pub fn of_context(context: &SpanContext) -> Option<Self> {
        let trace = u128::from_be_bytes(context.trace_id().to_bytes());
        let span = u64::from_be_bytes(context.span_id().to_bytes());
        (context.is_valid() && context.is_sampled()).then_some(Self { trace, span })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// Error for text that is not a `traceparent` of version 00 with a sampled trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a sampled traceparent; one is 00-<32 hexadecimal digits>-<16>-01")]
pub struct InvalidTraceParent;

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let rest = text.strip_prefix("00-").and_then(|rest| rest.strip_suffix("-01")).ok_or(InvalidTraceParent)?;
        let (trace, span) = rest.split_once('-').ok_or(InvalidTraceParent)?;
        let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex(trace, 32) || !is_hex(span, 16) {
            return Err(InvalidTraceParent);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| InvalidTraceParent)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| InvalidTraceParent)?;
        if trace == 0 || span == 0 { Err(InvalidTraceParent) } else { Ok(Self { trace, span }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_limiter_allows_a_burst_and_a_rate_per_second() {
        let (limiter, start) = (TraceLimiter::new(), clock::now());
        let taken = |at: Duration| (0..1000).filter(|_| limiter.take_at(start + at)).count();
        assert_eq!(taken(Duration::ZERO), 100);
        assert_eq!(taken(Duration::from_millis(9)), 0);
        assert_eq!(taken(Duration::from_millis(10)), 1);
        assert_eq!(taken(Duration::from_millis(515)), 50);
        assert_eq!(taken(Duration::from_millis(519)), 0);
        assert_eq!(taken(Duration::from_millis(520)), 1, "a fraction of an interval is not lost");
        assert_eq!(taken(Duration::from_secs(60)), 100);
    }

    #[test]
    fn trace_parent_round_trips() {
        let parent = TraceParent { trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, span: 0xb7ad_6b71_6920_3331 };
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!((parent.to_string().as_str(), text.len()), (text, TraceParent::LENGTH));
        assert_eq!(text.parse(), Ok(parent));
        let zeros = format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
            &zeros,
        ] {
            assert_eq!(bad.parse::<TraceParent>(), Err(InvalidTraceParent), "{bad}");
        }
    }

    #[test]
    fn traced_sample_takes_precedence() {
        let plain = SampledChange::from(clock::now());
        let version = ResourceVersion::new("1");
        let traced = Traced { span: Span::none(), key: ObjectKey::new("a", "b"), version };
        let traced = SampledChange { traced: Some(traced), ..plain.clone() };
        assert!(plain.takes_precedence_over(None) && traced.takes_precedence_over(Some(&plain)));
        assert!(!plain.takes_precedence_over(Some(&plain)) && !traced.takes_precedence_over(Some(&traced)));
    }
}

//! A change that is followed on its way from the watch to its readers, to see how long that takes and where.
//!
//! Following is by samples: of an informer one change at a time is followed, and of these some are traced. What is not
//! followed costs nothing for it.

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

/// The target of spans that are exported as traces; nothing else is.
pub const SPANS: &str = "informer_hub::spans";

/// A change under way.
#[derive(Clone, Debug)]
pub struct Followed {
    /// When the hub read of it.
    pub read: Instant,
    /// Its trace, if it has one.
    pub traced: Option<Traced>,
}

/// A change that has a trace: one of those that an exporter sees.
#[derive(Clone, Debug)]
pub struct Traced {
    /// From the watch line on, until nobody has anything to do with the change any more.
    pub span: Span,
    /// The object. It is not in the trace.
    pub key: ObjectKey,
    /// Its state after the change.
    pub version: ResourceVersion,
}

impl From<Instant> for Followed {
    fn from(read: Instant) -> Self {
        Self { read, traced: None }
    }
}

impl Followed {
    /// Whether this is rather to be followed than another one: a trace is to be seen to its end.
    #[must_use]
    pub fn is_before(&self, other: Option<&Self>) -> bool {
        other.is_none_or(|other| other.traced.is_none() && self.traced.is_some())
    }
}

impl Traced {
    /// A trace that begins now, where traces are exported and there have not been too many lately.
    #[must_use]
    pub fn begin(object: &StoredObject) -> Option<Self> {
        static SEEN: TraceLimiter = TraceLimiter::new();
        if !(tracing::span_enabled!(target: SPANS, tracing::Level::INFO) && SEEN.take()) {
            return None;
        }
        let span = tracing::info_span!(
            target: SPANS, parent: None, "change",
            otel.kind = "consumer", cluster = Empty, resource = Empty, scope = Empty,
        );
        let (key, version) = (object.key().clone(), object.resource_version().clone());
        (!span.is_disabled()).then_some(Self { span, key, version })
    }

    /// Whether an object is in the state that is followed.
    #[must_use]
    pub fn is_of(&self, object: &StoredObject) -> bool {
        *object.key() == self.key && *object.resource_version() == self.version
    }
}

/// How many traces may begin: [`TraceLimiter::MOST`] at once, and as many a second in the long run.
#[derive(Debug)]
pub struct TraceLimiter(Mutex<TokenBucket>);

impl TraceLimiter {
    /// At once, and a second.
    pub const MOST: u32 = 100;

    const INTERVAL: Duration = Duration::from_secs(1).checked_div(Self::MOST).expect("it is not zero");

    /// All of it.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(TokenBucket::new(Self::INTERVAL, Self::MOST)))
    }

    /// Whether one more may begin.
    pub fn take(&self) -> bool {
        self.take_at(clock::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut bucket = self.0.lock();
        let is_there = bucket.wait(1, now).is_zero();
        if is_there {
            bucket.take(1, now);
        }
        is_there
    }
}

impl Default for TraceLimiter {
    fn default() -> Self {
        Self::new()
    }
}

/// A span that somebody else may go on from: W3C's `traceparent`, of a trace that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace.
    pub trace: u128,
    /// The span within it.
    pub span: u64,
}

impl TraceParent {
    /// How many characters it is written in.
    pub const LENGTH: usize = 55;

    /// Where a span is; `None` of one that is not exported.
    #[must_use]
    pub fn of(span: &Span) -> Option<Self> {
        if span.is_disabled() {
            return None;
        }
        Self::of_context(span.context().span().span_context())
    }

    /// Where OpenTelemetry's span is; `None` of one that is not exported.
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

/// A text that is no `traceparent` of version 00 of a trace that is sampled.
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
    fn so_many_at_once_and_as_many_a_second() {
        let (allowance, start) = (TraceLimiter::new(), clock::now());
        let taken = |at: Duration| (0..1000).filter(|_| allowance.take_at(start + at)).count();
        assert_eq!(taken(Duration::ZERO), 100);
        assert_eq!(taken(Duration::from_millis(9)), 0);
        assert_eq!(taken(Duration::from_millis(10)), 1);
        assert_eq!(taken(Duration::from_millis(515)), 50);
        assert_eq!(taken(Duration::from_millis(519)), 0);
        assert_eq!(taken(Duration::from_millis(520)), 1, "what is left of a span of time is not lost");
        assert_eq!(taken(Duration::from_secs(60)), 100);
    }

    #[test]
    fn a_trace_parent_reads_as_it_is_written() {
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
    fn a_trace_goes_before_what_is_followed_without_one() {
        let plain = Followed::from(clock::now());
        let version = ResourceVersion::new("1");
        let traced = Traced { span: Span::none(), key: ObjectKey::new("a", "b"), version };
        let traced = Followed { traced: Some(traced), ..plain.clone() };
        assert!(plain.is_before(None) && traced.is_before(Some(&plain)));
        assert!(!plain.is_before(Some(&plain)) && !traced.is_before(Some(&traced)));
    }
}

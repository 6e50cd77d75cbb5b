//! Bandwidth of one reader: a token bucket of bytes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;

use super::ReaderUse;
use informer_hub_types::clock::{self, Instant};

/// Length of a burst: the bytes that the reader's rate allows in this time may be sent at once, without delay.
const BURST: Duration = Duration::from_secs(2);

/// Maximum delay of the next part of an answer. If the delay would be longer, new requests of the reader are refused.
/// Shorter delays only slow down the reader's requests, which share the bandwidth.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Token bucket that limits the bytes per second of one reader. The bucket counts bytes as the time that they take at
/// the reader's rate.
#[derive(Debug, Default)]
pub(super) struct Bucket(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Bytes per second.
    rate: usize,
    /// When the bucket is full again; `None` before the first bytes.
    full_at: Option<Instant>,
}

impl Bucket {
    /// Sets the rate, which a reload may change.
    pub(super) fn set_rate(&self, rate: usize) {
        self.0.lock().rate = rate;
    }

    /// Takes bytes from the bucket, even more than it has. Returns how long the caller has to delay these bytes.
    fn take(&self, bytes: usize) -> Duration {
        let now = clock::now();
        let mut state = self.0.lock();
        let nanos = (bytes as u128 * 1_000_000_000) / state.rate.max(1) as u128;
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = state.full_at.map_or(now, |at| at.max(now));
        let full_at = from.checked_add(cost).unwrap_or(from);
        state.full_at = Some(full_at);
        full_at.duration_since(now).saturating_sub(BURST)
    }

    /// Returns how long the next bytes would have to be delayed.
    pub(super) fn delay(&self) -> Duration {
        let now = clock::now();
        let full_at = self.0.lock().full_at;
        full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)).saturating_sub(BURST)
    }

    /// Returns whether the bucket is full. A whole burst could then be sent without delay.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().full_at.is_none_or(|at| at <= clock::now())
    }
}

/// Bandwidth of the reader of one request.
#[derive(Clone, Debug)]
pub(in crate::api) struct Bandwidth {
    bucket: Arc<Bucket>,
    usage: Arc<ReaderUse>,
    label: SmolStr,
}

impl Bandwidth {
    pub(super) fn new(bucket: Arc<Bucket>, usage: Arc<ReaderUse>, label: SmolStr) -> Self {
        Self { bucket, usage, label }
    }

    /// Admits a request, unless the next part of an answer to the reader would be delayed longer than [`MAX_DELAY`].
    ///
    /// # Errors
    /// The seconds after which to try again.
    pub(in crate::api) fn admit(&self) -> Result<(), u32> {
        let delay = self.bucket.delay();
        if delay <= MAX_DELAY {
            return Ok(());
        }
        Err(u32::try_from(delay.as_secs() + 1).unwrap_or(u32::MAX))
    }

    /// Takes the bytes of a part of an answer. Returns how long the caller has to delay that part.
    pub(in crate::api) fn take(&self, bytes: usize) -> Duration {
        self.bucket.take(bytes)
    }

    /// Adds a part of an answer, and its delay, to the reader's counters.
    pub(super) fn sent(&self, bytes: usize, delayed: Duration) {
        self.usage.sent(&self.label, bytes, delayed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_is_sent_at_once_then_the_rate_applies() {
        let bucket = Bucket::default();
        bucket.set_rate(1000);
        assert_eq!((bucket.take(2000), bucket.is_full()), (Duration::ZERO, false));
        assert_eq!(bucket.take(500), Duration::from_millis(500));
        assert_eq!(bucket.take(500), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((bucket.delay(), bucket.take(1000)), (Duration::ZERO, Duration::from_secs(1)));
        // Idle time adds up to one burst.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(bucket.is_full());
        assert_eq!((bucket.take(2000), bucket.take(1000)), (Duration::ZERO, Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn rate_may_be_larger_than_a_byte_per_nanosecond() {
        let bucket = Bucket::default();
        bucket.set_rate(16 << 30);
        assert_eq!((bucket.take(32 << 30), bucket.take(16 << 30)), (Duration::ZERO, Duration::from_secs(1)));
    }
}

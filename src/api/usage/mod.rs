//! Use of the HTTP port by each reader: bandwidth, and requests that a limit has refused.
//!
//! Requests, watches and scans in progress are counted by the queue of the read API, which admits them.

mod bandwidth;
mod paced;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;

pub(in crate::api) use self::bandwidth::Bandwidth;
use self::bandwidth::Bucket;
pub(in crate::api) use self::paced::{Delayed, paced};
use informer_hub_access::{Reader, ReaderOrigin};

/// Common metric label of all users of certificates, OIDC and service accounts. Their names are unbounded in number.
const USERS: &str = "informer-hub:users";

/// Maximum number of reader labels counted separately. Reloads may add tables `[readers.<name>]` without end.
const MAX_LABELS: usize = 1024;

/// Label of all readers beyond [`MAX_LABELS`].
const OTHER: &str = "informer-hub:other";

/// Number of token buckets above which full buckets are removed. No limit is lost: a bucket that is created later is
/// full too.
const MAX_BUCKETS: usize = 1024;

/// Limit that has refused a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    /// `limits.requests` of the reader or half of the hub's `max_requests`, whichever is lower.
    Requests,
    /// `limits.watches` of the reader.
    Watches,
    /// `limits.scans` of the reader.
    Scans,
    /// `limits.bytes_per_second` of the reader.
    BytesPerSecond,
    /// `max_requests` of the hub, which counts the requests of all readers together.
    AllRequests,
    /// `max_watches` of the hub, which counts the open watches of all readers together.
    AllWatches,
}

impl Limit {
    /// Returns the label of the limit in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Watches => "watches",
            Self::Scans => "scans",
            Self::BytesPerSecond => "bytes_per_second",
            Self::AllRequests => "all_requests",
            Self::AllWatches => "all_watches",
        }
    }
}

/// Counters of one reader (or of readers that share a label) since the start.
#[derive(Clone, Debug, Default)]
pub struct ReaderCounts {
    /// Requests refused, by limit.
    pub refused: BTreeMap<Limit, u64>,
    /// Bytes of answers, counted only if the reader has `limits.bytes_per_second`.
    pub sent: u64,
    /// Total time for which parts of answers were delayed.
    pub delayed: Duration,
}

/// Counters and bandwidth limits of each reader.
#[derive(Debug, Default)]
pub struct ReaderUse {
    counts: Mutex<BTreeMap<SmolStr, ReaderCounts>>,
    buckets: Mutex<BTreeMap<SmolStr, Arc<Bucket>>>,
}

impl ReaderUse {
    /// Returns the counters of all readers, by label.
    pub fn counts(&self) -> BTreeMap<SmolStr, ReaderCounts> {
        self.counts.lock().clone()
    }

    /// Returns for how long the next part of an answer to a reader of this name would be delayed.
    pub fn delay(&self, name: &str) -> Duration {
        let bucket = self.buckets.lock().get(name).cloned();
        bucket.map(|bucket| bucket.delay()).unwrap_or_default()
    }

    /// Counts a refused request.
    pub(in crate::api) fn refused(&self, reader: &Reader, limit: Limit) {
        self.count(label_of(reader), |counts| *counts.refused.entry(limit).or_default() += 1);
    }

    /// Returns the bandwidth of a reader; `None` if it is not limited.
    pub(in crate::api) fn bandwidth(self: &Arc<Self>, reader: &Reader) -> Option<Bandwidth> {
        let rate = reader.limits().bytes_per_second?;
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(reader.name()) {
            buckets.retain(|_, bucket| !bucket.is_full());
        }
        let bucket = buckets.entry(reader.name().clone()).or_default();
        bucket.set_rate(rate);
        Some(Bandwidth::new(Arc::clone(bucket), Arc::clone(self), label_of(reader)))
    }

    fn sent(&self, label: &SmolStr, bytes: usize, delayed: Duration) {
        self.count(label.clone(), |counts| {
            counts.sent += bytes as u64;
            counts.delayed += delayed;
        });
    }

    fn count(&self, label: SmolStr, change: impl FnOnce(&mut ReaderCounts)) {
        let mut counts = self.counts.lock();
        let is_counted = counts.contains_key(&label) || counts.len() < MAX_LABELS;
        change(counts.entry(if is_counted { label } else { OTHER.into() }).or_default());
    }
}

/// Returns the label of a reader in metrics: the name of its table or of its credential in `hub.auth`; all other users
/// share one label.
fn label_of(reader: &Reader) -> SmolStr {
    match reader.origin() {
        ReaderOrigin::Table(name) => name.clone(),
        ReaderOrigin::Anonymous | ReaderOrigin::Administrator | ReaderOrigin::ReadToken => reader.name().clone(),
        ReaderOrigin::Certificate | ReaderOrigin::Oidc | ReaderOrigin::ServiceAccount { .. } => USERS.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_access::{Grants, ReaderLimits, ReaderParts};

    fn reader(name: &str, origin: ReaderOrigin, bytes_per_second: Option<usize>) -> Reader {
        let reader = Reader::named(name, origin, Grants::default());
        let limits = ReaderLimits { bytes_per_second, ..ReaderLimits::default() };
        Reader::new(ReaderParts { limits, ..reader.parts().clone() })
    }

    #[test]
    fn users_of_an_issuer_are_counted_together() {
        let usage = ReaderUse::default();
        for user in 0..MAX_LABELS + 5 {
            usage.refused(&reader(&format!("user-{user}"), ReaderOrigin::Oidc, None), Limit::Requests);
        }
        usage.refused(&reader("app", ReaderOrigin::Table("app".into()), None), Limit::Scans);
        let counts = usage.counts();
        assert_eq!(counts.keys().map(SmolStr::as_str).collect::<Vec<_>>(), ["app", USERS]);
        assert_eq!(counts[USERS].refused[&Limit::Requests], MAX_LABELS as u64 + 5);
        for table in 0..MAX_LABELS {
            let name = format!("table-{table}");
            usage.refused(&reader(&name, ReaderOrigin::Table(name.as_str().into()), None), Limit::Scans);
        }
        let counts = usage.counts();
        assert_eq!((counts.len(), counts[OTHER].refused[&Limit::Scans]), (MAX_LABELS + 1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn buckets_are_bounded_and_those_in_use_are_kept() {
        let usage = Arc::new(ReaderUse::default());
        let of = |user: usize| usage.bandwidth(&reader(&format!("user-{user}"), ReaderOrigin::Oidc, Some(1 << 16)));
        assert!(usage.bandwidth(&reader("free", ReaderOrigin::Oidc, None)).is_none());
        of(0).unwrap().take(10 << 20);
        for user in 1..3 * MAX_BUCKETS {
            of(user).unwrap();
        }
        assert!(usage.buckets.lock().len() <= MAX_BUCKETS);
        assert!(usage.delay("user-0") > Duration::from_secs(100) && usage.delay("user-1").is_zero());
        assert!(of(0).unwrap().admit().is_err() && of(1).unwrap().admit().is_ok());
    }
}

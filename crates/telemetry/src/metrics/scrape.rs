//! Scrapes of the metrics. Concurrent scrapers share one collection.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::snapshot::Snapshot;
use super::text::Format;

/// Text of the metrics, shared by all scrapes that wait for it; `None` if the collection panicked.
pub type ScrapeResult = Option<Bytes>;

type RunningCollection = Shared<BoxFuture<'static, ScrapeResult>>;

/// Collects and writes metrics on request, on a thread that may block. Cheap to clone.
///
/// # Cost
/// Each format has one collection at a time, and all scrapes that arrive while it runs share its result. So any number
/// of scrapers uses at most one thread per format. A collection runs to its end even if all its scrapers give up.
/// Nothing is kept between scrapes.
#[derive(Clone)]
pub struct Scraper(Arc<Inner>);

struct Inner {
    collect: Box<dyn Fn() -> Snapshot + Send + Sync>,
    under_way: [Mutex<Option<RunningCollection>>; 2],
}

impl Scraper {
    /// Creates a scraper. `collect` returns a snapshot and must not wait.
    pub fn new(collect: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { collect: Box::new(collect), under_way: <[_; 2]>::default() }))
    }

    /// Returns the current metrics as text. Must be called on a tokio runtime.
    pub async fn scrape(&self, format: Format) -> ScrapeResult {
        self.join(format).await
    }

    fn join(&self, format: Format) -> RunningCollection {
        let mut under_way = self.0.under_way[format as usize].lock();
        if let Some(joined) = under_way.as_ref().filter(|work| work.peek().is_none()) {
            return joined.clone();
        }
        let scraper = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let text = format.write(&(scraper.0.collect)());
            // Make later scrapes start a new collection. The lock may be held by the scrape that is starting this one.
            scraper.0.under_way[format as usize].lock().take();
            Bytes::from(text)
        });
        let work = work.map(Result::ok).boxed().shared();
        *under_way = Some(work.clone());
        work
    }
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraper").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;

    use futures::future::join_all;

    use super::*;
    use crate::metrics::{Id, LabelSet};
    use informer_hub_types::clock;

    /// Returns a scraper whose collections each wait for a message, and the number of started collections.
    fn gated() -> (Scraper, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (go, gate) = mpsc::channel();
        let (gate, begun) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&begun);
        let scraper = Scraper::new(move || {
            let number = counted.fetch_add(1, SeqCst) + 1;
            let _ = gate.lock().recv();
            let mut snapshot = Snapshot::new(clock::wall());
            snapshot.count(Id::Series, LabelSet::NONE, number as u64);
            snapshot
        });
        (scraper, go, begun)
    }

    async fn until(condition: impl Fn() -> bool) {
        while !condition() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn concurrent_scrapes_share_one_collection() {
        let (scraper, go, begun) = gated();
        let waiting = tokio::spawn({
            let scraper = scraper.clone();
            async move { join_all((0..1000).map(|_| scraper.scrape(Format::Prometheus))).await }
        });
        until(|| begun.load(SeqCst) == 1).await;
        go.send(()).unwrap();
        let answers = waiting.await.unwrap();
        assert_eq!((answers.len(), begun.load(SeqCst)), (1000, 1));
        assert!(answers.iter().all(|answer| answer == &answers[0] && answer.is_some()));
        go.send(()).unwrap();
        let next = scraper.scrape(Format::Prometheus).await.unwrap();
        assert!(
            String::from_utf8_lossy(&next).contains("informer_hub_metrics_series 2"),
            "the next scrape starts a new collection"
        );
    }

    #[tokio::test]
    async fn cancelled_scrapes_start_no_further_collections() {
        let (scraper, go, begun) = gated();
        for _ in 0..50 {
            let impatient = scraper.clone();
            let waiting = tokio::spawn(async move { impatient.scrape(Format::OpenMetrics).await });
            until(|| begun.load(SeqCst) == 1).await;
            waiting.abort();
            let _ = waiting.await;
        }
        assert_eq!(begun.load(SeqCst), 1);
        go.send(()).unwrap();
        until(|| scraper.0.under_way[Format::OpenMetrics as usize].lock().is_none()).await;
    }

    #[tokio::test]
    async fn panicking_collection_returns_nothing_and_the_next_scrape_retries() {
        let first = AtomicUsize::new(0);
        let scraper = Scraper::new(move || {
            assert!(first.fetch_add(1, SeqCst) > 0, "the first one panics");
            Snapshot::new(clock::wall())
        });
        assert_eq!(scraper.scrape(Format::Prometheus).await, None);
        assert_eq!(scraper.scrape(Format::OpenMetrics).await, Some(Bytes::from("# EOF\n")));
        assert_eq!(scraper.scrape(Format::Prometheus).await, Some(Bytes::new()));
    }
}

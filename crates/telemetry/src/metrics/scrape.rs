//! Answers to scrapes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::snapshot::Snapshot;
use super::text::Format;

/// One answer, for as many as wait for it; `None` where it could not be made.
pub type Scraped = Option<Bytes>;

type UnderWay = Shared<BoxFuture<'static, Scraped>>;

/// Has metrics collected and written when somebody asks, on a thread that may block. Cheap to clone.
///
/// # Cost
/// Per format there is one collection at a time, which answers all that wait for it: whoever comes while it runs gets
/// what it finds, so however many scrape, one thread for each format works for them. It runs to its end, also when nobody
/// waits any more. Nothing is kept between scrapes.
#[derive(Clone)]
pub struct Scraper(Arc<Inner>);

struct Inner {
    collect: Box<dyn Fn() -> Snapshot + Send + Sync>,
    under_way: [Mutex<Option<UnderWay>>; 2],
}

impl Scraper {
    /// Scrapes what `collect` gives, which must neither wait nor ask anybody.
    pub fn new(collect: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { collect: Box::new(collect), under_way: <[_; 2]>::default() }))
    }

    /// The metrics as they are now. Must be called on a tokio runtime.
    pub async fn scrape(&self, format: Format) -> Scraped {
        self.join(format).await
    }

    fn join(&self, format: Format) -> UnderWay {
        let mut under_way = self.0.under_way[format as usize].lock();
        if let Some(joined) = under_way.as_ref().filter(|work| work.peek().is_none()) {
            return joined.clone();
        }
        let scraper = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let text = format.write(&(scraper.0.collect)());
            // Whoever comes from now on has another one. This waits for who is starting it.
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

    /// A scraper whose collections each wait for a word, and how many have begun.
    fn held() -> (Scraper, mpsc::Sender<()>, Arc<AtomicUsize>) {
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
    async fn however_many_scrape_at_once_one_collection_answers_them() {
        let (scraper, go, begun) = held();
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
        assert!(String::from_utf8_lossy(&next).contains("informer_hub_metrics_series 2"), "the next is a new one");
    }

    #[tokio::test]
    async fn scrapers_that_give_up_do_not_pile_up_collections() {
        let (scraper, go, begun) = held();
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
    async fn a_collection_that_panics_answers_nothing_and_the_next_one_is_tried() {
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

//! Tests of the read recorder. A gap that is too large would hide a defect of the hub.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use informer_hub_reflector::{
    ErrorClass, ListChunk, ListRequest, ListStream, ListerWatcher, SourceError, VersionMatch, WatchBatch, WatchItem,
    WatchRequest, WatchStream,
};
use informer_hub_types::{ObjectKey, ResourceVersion, StoredObject, Uid};
use parking_lot::Mutex;

use super::history::{ChangeCounter, Kind};
use super::read_recorder::{Gap, ReadLog, ReadRecorder, Recorded};

type Answer<T> = Vec<Result<T, SourceError>>;

/// Source that returns each scripted answer once.
#[derive(Debug, Default)]
struct Scripted {
    list: Mutex<Answer<ListChunk>>,
    watch: Mutex<Answer<Vec<WatchItem>>>,
}

impl ListerWatcher for Scripted {
    fn list(&self, _: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let answer = std::mem::take(&mut *self.list.lock());
        Box::pin(async { Ok(stream::iter(answer).boxed()) })
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let answer = std::mem::take(&mut *self.watch.lock());
        Box::pin(async { Ok(stream::iter(answer).map(|items| items.map(WatchBatch::from)).boxed()) })
    }
}

/// Recorded source with scripted answers, each read to its end.
struct Bench {
    script: Arc<Scripted>,
    recorder: ReadRecorder,
    source: Recorded<(Kind, Arc<dyn ListerWatcher>)>,
}

impl Bench {
    fn new() -> Self {
        let (script, recorder) = (Arc::new(Scripted::default()), ReadRecorder::new(ChangeCounter::default()));
        let inner: Arc<dyn ListerWatcher> = Arc::clone(&script) as _;
        let source = Recorded::new((Kind::Pods, inner), recorder.clone());
        Self { script, recorder, source }
    }

    async fn list(&self, answer: Answer<ListChunk>) {
        *self.script.list.lock() = answer;
        let request = ListRequest { version: VersionMatch::Any, limit: None, continue_token: None };
        self.source.list(request).await.unwrap().collect::<Vec<_>>().await;
    }

    async fn watch(&self, initial_events: bool, answer: Answer<Vec<WatchItem>>) {
        *self.script.watch.lock() = answer;
        let request =
            WatchRequest { version: VersionMatch::MostRecent, timeout: std::time::Duration::MAX, initial_events };
        self.source.watch(request).await.unwrap().collect::<Vec<_>>().await;
    }

    fn reads(&self) -> ReadLog {
        self.recorder.reads(Kind::Pods)
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn object(name: &str, at: u64) -> Arc<StoredObject> {
    Arc::new(StoredObject::head_only(ObjectKey::new("shop", name), Uid::new("u"), version(at)))
}

fn bookmark(at: u64, initial_events_end: bool) -> WatchItem {
    WatchItem::Bookmark { version: version(at), initial_events_end }
}

fn end(at: u64, continue_token: Option<&str>) -> ListChunk {
    ListChunk::End { version: version(at), continue_token: continue_token.map(str::to_owned), remaining: None }
}

fn broken<T>() -> Result<T, SourceError> {
    Err(SourceError { class: ErrorClass::Transient, message: "the connection broke".to_owned() })
}

fn gap(after: u64, upto: u64) -> Gap {
    Gap { after, upto }
}

#[tokio::test]
async fn oracle_list_gap_reaches_from_the_last_event_to_the_list_version() {
    let bench = Bench::new();
    bench.watch(true, vec![Ok(vec![WatchItem::Added(object("a", 5)), bookmark(10, true)])]).await;
    assert_eq!(bench.reads().gaps("b"), [gap(0, 10)]);
    bench.watch(false, vec![Ok(vec![WatchItem::Modified(object("a", 12)), bookmark(15, false)]), broken()]).await;
    assert_eq!(bench.reads().gaps("b"), [gap(0, 10)], "events leave no gap");
    bench.list(vec![Ok(ListChunk::Items(vec![object("a", 12)])), Ok(end(30, None))]).await;
    assert_eq!(bench.reads().gaps("b"), [gap(0, 10), gap(15, 30)]);
    bench.watch(false, vec![Ok(vec![WatchItem::Deleted(object("b", 31))])]).await;
    bench.list(vec![Ok(end(33, None))]).await;
    assert_eq!(bench.reads().gaps("b"), [gap(0, 10), gap(15, 30), gap(31, 33)]);
    assert_eq!(bench.reads().lists(), 3);
}

#[tokio::test]
async fn oracle_interrupted_list_leaves_gaps_only_for_returned_objects() {
    let bench = Bench::new();
    bench.list(vec![Ok(end(10, None))]).await;
    bench.list(vec![Ok(ListChunk::Items(vec![object("a", 20)])), broken()]).await;
    bench.list(vec![Ok(ListChunk::Items(vec![object("a", 22)])), Ok(end(30, Some("more")))]).await;
    bench.watch(true, vec![Ok(vec![WatchItem::Added(object("a", 25)), bookmark(26, false)]), broken()]).await;
    assert_eq!(bench.reads().gaps("a"), [gap(0, 10), gap(10, 20), gap(10, 22), gap(10, 25)]);
    assert_eq!(bench.reads().gaps("b"), [gap(0, 10)]);
    assert_eq!(bench.reads().lists(), 1);
    assert_eq!(bench.reads().requests().len(), 4 + 3 + 1, "{:?}", bench.reads().requests());
}

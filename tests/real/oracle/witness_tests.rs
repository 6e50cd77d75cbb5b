//! The witness, held to account: an excuse that it gives too freely hides a fault of the hub.

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

use super::account::{Count, Kind};
use super::witness::{Gap, Reading, Witness, Witnessed};

type Answer<T> = Vec<Result<T, SourceError>>;

/// Gives each answer once.
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

/// A source whose every answer is read to its end, and its witness.
struct Bench {
    script: Arc<Scripted>,
    witness: Witness,
    source: Witnessed<(Kind, Arc<dyn ListerWatcher>)>,
}

impl Bench {
    fn new() -> Self {
        let (script, witness) = (Arc::new(Scripted::default()), Witness::new(Count::default()));
        let inner: Arc<dyn ListerWatcher> = Arc::clone(&script) as _;
        let source = Witnessed::new((Kind::Pods, inner), witness.clone());
        Self { script, witness, source }
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

    fn reading(&self) -> Reading {
        self.witness.reading(Kind::Pods)
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
    Err(SourceError { class: ErrorClass::Transient, message: "the line broke".to_owned() })
}

fn gap(after: u64, upto: u64) -> Gap {
    Gap { after, upto }
}

#[tokio::test]
async fn oracle_the_witness_sees_a_list_jump_from_the_last_event_to_its_own_version() {
    let bench = Bench::new();
    bench.watch(true, vec![Ok(vec![WatchItem::Added(object("a", 5)), bookmark(10, true)])]).await;
    assert_eq!(bench.reading().gaps("b"), [gap(0, 10)]);
    bench.watch(false, vec![Ok(vec![WatchItem::Modified(object("a", 12)), bookmark(15, false)]), broken()]).await;
    assert_eq!(bench.reading().gaps("b"), [gap(0, 10)], "events leave no gap");
    bench.list(vec![Ok(ListChunk::Items(vec![object("a", 12)])), Ok(end(30, None))]).await;
    assert_eq!(bench.reading().gaps("b"), [gap(0, 10), gap(15, 30)]);
    bench.watch(false, vec![Ok(vec![WatchItem::Deleted(object("b", 31))])]).await;
    bench.list(vec![Ok(end(33, None))]).await;
    assert_eq!(bench.reading().gaps("b"), [gap(0, 10), gap(15, 30), gap(31, 33)]);
    assert_eq!(bench.reading().lists(), 3);
}

#[tokio::test]
async fn oracle_the_witness_excuses_of_a_list_that_broke_off_only_the_objects_that_it_brought() {
    let bench = Bench::new();
    bench.list(vec![Ok(end(10, None))]).await;
    bench.list(vec![Ok(ListChunk::Items(vec![object("a", 20)])), broken()]).await;
    bench.list(vec![Ok(ListChunk::Items(vec![object("a", 22)])), Ok(end(30, Some("more")))]).await;
    bench.watch(true, vec![Ok(vec![WatchItem::Added(object("a", 25)), bookmark(26, false)]), broken()]).await;
    assert_eq!(bench.reading().gaps("a"), [gap(0, 10), gap(10, 20), gap(10, 22), gap(10, 25)]);
    assert_eq!(bench.reading().gaps("b"), [gap(0, 10)]);
    assert_eq!(bench.reading().lists(), 1);
    assert_eq!(bench.reading().requests().len(), 4 + 3 + 1, "{:?}", bench.reading().requests());
}

//! Reflector actor tests: phases between watches and lists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use actix::prelude::*;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::actors::ActorCount;
use crate::actors::pipeline::messages::Enqueue;
use crate::actors::pipeline::reflector::{ReflectorActor, ReflectorParts, WatchOutcome};
use crate::actors::runtime::capacity::ENQUEUE_BATCH;
use crate::actors::runtime::supervision::ExitGuard;
use crate::actors::tests::fleet::PATIENCE;
use crate::cache::testing::origin;
use informer_hub_reflector::{
    ListChunk, ListRequest, ListStream, ListerWatcher, ReflectorOptions, Skipped, SourceError, WatchRequest,
    WatchStream,
};
use informer_hub_types::{
    Change, EncodingInUse, Freshness, InformerHealth, JsonReason, ListReason, ObjectKey, Phase, ResourceVersion,
    Rewinds,
};

/// Answers its first list, ends every watch immediately without an error, and never answers another list.
#[derive(Debug, Default)]
struct HastySource {
    lists: AtomicUsize,
    has_watched: std::sync::atomic::AtomicBool,
}

impl ListerWatcher for HastySource {
    fn list(&self, _: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        if self.lists.fetch_add(1, Relaxed) > 0 {
            return Box::pin(std::future::pending());
        }
        let end = ListChunk::End { version: ResourceVersion::new("1"), continue_token: None, remaining: None };
        Box::pin(async { Ok(stream::iter([Ok(end)]).boxed()) })
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        Box::pin(async { Ok(stream::empty().boxed()) })
    }

    /// Returns protobuf at the first call, which follows the list, and JSON later.
    fn encoding(&self) -> Option<EncodingInUse> {
        let is_watching = self.has_watched.swap(true, Relaxed);
        Some(if is_watching { EncodingInUse::json(JsonReason::Refused) } else { EncodingInUse::protobuf() })
    }
}

/// Accepts every message.
pub(super) struct Swallow;

impl Actor for Swallow {
    type Context = Context<Self>;
}

impl Handler<Enqueue> for Swallow {
    type Result = ();

    fn handle(&mut self, _: Enqueue, _: &mut Self::Context) {}
}

impl Handler<WatchOutcome> for Swallow {
    type Result = ();

    fn handle(&mut self, _: WatchOutcome, _: &mut Self::Context) {}
}

/// Answers lists with these chunks, one list after another, and nothing else.
#[derive(Debug)]
struct ScriptedLists {
    lists: Mutex<VecDeque<Vec<ListChunk>>>,
    /// Number of chunks read.
    read: Arc<AtomicUsize>,
}

impl ListerWatcher for ScriptedLists {
    fn list(&self, _: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let Some(chunks) = self.lists.lock().pop_front() else { return Box::pin(std::future::pending()) };
        let read = Arc::clone(&self.read);
        let chunks = chunks.into_iter().inspect(move |_| _ = read.fetch_add(1, Relaxed));
        Box::pin(async { Ok(stream::iter(chunks.map(Ok)).boxed()) })
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        Box::pin(std::future::pending())
    }
}

/// Returns a source that answers lists with these chunks, one list after another, and nothing else.
pub(super) fn lists(lists: Vec<Vec<ListChunk>>) -> Arc<dyn ListerWatcher> {
    Arc::new(ScriptedLists { lists: Mutex::new(lists.into()), read: Arc::default() })
}

/// A batch of changes, and the number of chunks that the reflector had read when it sent the batch.
type Sent = (usize, Vec<Change>);

/// Forwards each batch of changes.
struct Forward {
    to: UnboundedSender<Sent>,
    read: Arc<AtomicUsize>,
}

impl Actor for Forward {
    type Context = Context<Self>;
}

impl Handler<Enqueue> for Forward {
    type Result = ();

    fn handle(&mut self, enqueue: Enqueue, _: &mut Self::Context) {
        let _ = self.to.send((self.read.load(Relaxed), enqueue.changes));
    }
}

fn parts(health: &Arc<InformerHealth>, source: impl ListerWatcher, fifo: Recipient<Enqueue>) -> ReflectorParts {
    ReflectorParts {
        origin: origin("c"),
        health: Arc::clone(health),
        source: Arc::new(source),
        fifo,
        options: ReflectorOptions { streaming_list: false, ..ReflectorOptions::default() },
        watch_errors: Arc::default(),
        outcomes: Swallow.start().recipient(),
        handlers: informer_hub_types::Threads::current(),
        budget: crate::actors::memory::members::Budget::new(),
        resume: None,
        recovery: crate::actors::runtime::recovery::RecoverySignal::new(),
        rewinds: Rewinds::default(),
    }
}

/// Runs a reflector over these lists until it has sent `batches` batches. Returns them.
fn batches_of(health: &Arc<InformerHealth>, lists: Vec<Vec<ListChunk>>, batches: usize) -> Vec<Sent> {
    System::new().block_on(async {
        let ((to, mut receiver), read) = (unbounded_channel(), Arc::default());
        let source = ScriptedLists { lists: Mutex::new(lists.into()), read: Arc::clone(&read) };
        let parts = parts(health, source, Forward { to, read }.start().recipient());
        let reflector = ReflectorActor::new(parts, ExitGuard::new(0, 0, None, &ActorCount::default())).start();
        let mut all = Vec::new();
        while all.len() < batches {
            let next = tokio::time::timeout(PATIENCE, receiver.recv()).await;
            all.push(next.expect("the reflector sends a batch").unwrap());
        }
        drop(reflector);
        all
    })
}

pub(super) fn end(version: &str) -> ListChunk {
    ListChunk::End { version: ResourceVersion::new(version), continue_token: None, remaining: None }
}

#[test]
fn reflector_lists_twice_if_versions_went_back() {
    let health = InformerHealth::new();
    health.set_version(ResourceVersion::new("9"));
    let batches = batches_of(&health, vec![vec![end("5")], vec![end("5")]], 2);
    let text = |change: &Change| match change {
        Change::ReplaceEnd(version) => format!("end {version}"),
        other => format!("{other:?}"),
    };
    let texts: Vec<Vec<_>> = batches.iter().map(|(_, changes)| changes.iter().map(text).collect()).collect();
    assert_eq!(texts, [["ReplaceBegin", "Rewind", "end 5"].as_slice(), &["ReplaceBegin", "end 5"]]);
    assert_eq!(health.lists_for(ListReason::TooLarge), 1);
}

#[test]
fn reflector_waits_for_room_after_each_batch_of_skipped_items() {
    let count = 3 * ENQUEUE_BATCH;
    let skipped = |at: usize| {
        let key = Some(ObjectKey::new("ns", &at.to_string()));
        ListChunk::Skipped(Skipped { key, version: None, reason: "too large".to_owned() })
    };
    let list = (0..count).map(skipped).chain([end("5")]).collect();
    let (read, changes) = batches_of(&InformerHealth::new(), vec![list], 1).swap_remove(0);
    assert_eq!((read < ENQUEUE_BATCH + 2, changes.len()), (true, ENQUEUE_BATCH), "{read} items were read");
}

#[test]
fn reflector_is_stale_while_no_watch_is_open() {
    System::new().block_on(async {
        tokio::time::pause();
        let health = InformerHealth::new();
        health.set_synced();
        let parts = parts(&health, HastySource::default(), Swallow.start().recipient());
        let reflector = ReflectorActor::new(parts, ExitGuard::new(0, 0, None, &ActorCount::default())).start();
        let until = async |lists: u64, watches: u64| {
            while health.lists.load(Relaxed) < lists || health.watches.load(Relaxed) < watches {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            (health.phase(), matches!(health.freshness(), Freshness::StaleSince { .. }))
        };
        assert_eq!(until(1, 1).await, (Phase::Stale, true), "waiting before the next watch");
        let encoding = health.encoding().unwrap();
        assert_eq!((encoding.fallback(), health.fallbacks()), (Some(JsonReason::Refused), [1, 0, 0]));
        assert_eq!(until(2, 1).await, (Phase::Stale, true), "the list is unanswered");
        drop(reflector);
    });
}

//! Reflector actor tests: phases between watches and lists.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::prelude::*;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;

use crate::actors::ActorCount;
use crate::actors::pipeline::messages::Enqueue;
use crate::actors::pipeline::reflector::{ReflectorActor, ReflectorParts, WatchOutcome};
use crate::actors::runtime::supervision::ExitGuard;
use crate::cache::testing::origin;
use informer_hub_reflector::{
    ListChunk, ListRequest, ListStream, ListerWatcher, ReflectorOptions, SourceError, WatchRequest, WatchStream,
};
use informer_hub_types::{EncodingInUse, Freshness, InformerHealth, JsonReason, Phase, ResourceVersion, Rewinds};

/// Answers its first list, ends every watch immediately without an error, and never answers another list.
#[derive(Debug, Default)]
struct HastySource {
    lists: std::sync::atomic::AtomicUsize,
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
struct Swallow;

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

#[test]
fn reflector_is_stale_while_no_watch_is_open() {
    System::new().block_on(async {
        tokio::time::pause();
        let health = InformerHealth::new();
        health.set_synced();
        let parts = ReflectorParts {
            origin: origin("c"),
            health: Arc::clone(&health),
            source: Arc::new(HastySource::default()),
            fifo: Swallow.start().recipient(),
            options: ReflectorOptions { streaming_list: false, ..ReflectorOptions::default() },
            watch_errors: Arc::default(),
            outcomes: Swallow.start().recipient(),
            handlers: informer_hub_types::Threads::current(),
            budget: crate::actors::memory::members::Budget::new(),
            resume: None,
            recovery: crate::actors::runtime::recovery::RecoverySignal::new(),
            rewinds: Rewinds::default(),
        };
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

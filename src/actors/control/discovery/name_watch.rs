//! Names and generations of the existing objects of a resource, from a metadata list and watch. The objects are not
//! kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::StreamExt;
use smol_str::SmolStr;

use crate::actors::pipeline::reflector::timeouts::{current_version, next_within, within};
use informer_hub_reflector::{
    ItemVerdict, ListChunk, ListRequest, ListerWatcher, PageVerdict, Reflector, ReflectorOptions, SourceError,
    StallPolicy, Step, WatchItem, WatchRequest,
};
use informer_hub_types::{StoredObject, Watcher, clock, rng};

/// Maximum number of names in a list, which are all held in memory.
const MAX_NAMES: u64 = 1_000_000;

/// Resource whose object names are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchedNames {
    /// CustomResourceDefinitions.
    Definitions,
    /// APIServices, which register aggregated APIs.
    Services,
}

/// Change of the watched names.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    /// All names, each with its `metadata.generation`, or zero without one.
    All(BTreeMap<SmolStr, u64>),
    /// An object was added or modified; its name and generation.
    Added(SmolStr, u64),
    /// An object was deleted.
    Removed(SmolStr),
    /// The list or watch failed.
    Failed(SourceError),
}

/// Reports a change of the watched names.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct NamesChanged {
    pub(super) of: WatchedNames,
    pub(super) change: NameChange,
}

/// Error of a watch whose receiver has stopped.
struct ReceiverStopped;

/// Watches names until the receiver stops.
pub(super) async fn watch_names(
    of: WatchedNames,
    source: Arc<dyn ListerWatcher>,
    mut options: ReflectorOptions,
    receiver: Recipient<NamesChanged>,
    mut recovery: Watcher<()>,
) {
    let stall = options.stall;
    options.list.items = options.list.items.min(MAX_NAMES);
    let machine = Reflector::new(options, rng::unit);
    let mut names = NameWatch { of, source, machine, stall, receiver, listed: BTreeMap::new() };
    loop {
        let done = match names.machine.next(clock::now()) {
            Step::Wait { until, .. } => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(until) => {}
                    Ok(()) = recovery.changed() => names.machine.hurry(clock::now()),
                }
                if names.receiver.connected() { Ok(()) } else { Err(ReceiverStopped) }
            }
            Step::List { request, fresh } => names.list(request, fresh).await,
            Step::Check => {
                let current = current_version(&names.stall, &*names.source).await;
                names.machine.on_checked(&current, clock::now());
                Ok(())
            }
            Step::Watch { request } => names.watch(request).await,
        };
        if done.is_err() {
            return;
        }
    }
}

struct NameWatch {
    of: WatchedNames,
    source: Arc<dyn ListerWatcher>,
    machine: Reflector,
    stall: StallPolicy,
    receiver: Recipient<NamesChanged>,
    /// Names of the list in progress.
    listed: BTreeMap<SmolStr, u64>,
}

impl NameWatch {
    async fn send(&self, change: NameChange) -> Result<(), ReceiverStopped> {
        self.receiver.send(NamesChanged { of: self.of, change }).await.map_err(|_| ReceiverStopped)
    }

    async fn send_all(&mut self) -> Result<(), ReceiverStopped> {
        let names = std::mem::take(&mut self.listed);
        self.send(NameChange::All(names)).await
    }

    async fn list(&mut self, request: ListRequest, fresh: bool) -> Result<(), ReceiverStopped> {
        if fresh {
            self.listed.clear();
        }
        match self.read_page(request).await {
            Ok(true) => self.send_all().await,
            Ok(false) => Ok(()),
            Err(error) => {
                self.machine.on_list_error(&error, clock::now());
                self.send(NameChange::Failed(error)).await
            }
        }
    }

    /// Reads a page of the list. Returns whether the list is complete.
    async fn read_page(&mut self, request: ListRequest) -> Result<bool, SourceError> {
        let mut requested = clock::now();
        let opening = within(self.stall.list_head, "list: no answer", self.source.list(request));
        let mut stream = opening.await?;
        loop {
            let chunk = next_within(&self.stall, stream.next()).await?;
            let now = clock::now();
            self.machine.on_list_items(chunk.items(), now - std::mem::replace(&mut requested, now))?;
            match chunk {
                ListChunk::Items(objects) => {
                    self.listed.extend(objects.iter().map(|object| name_of(object)));
                }
                ListChunk::Skipped(_) => {}
                ListChunk::End { version, continue_token, remaining } => {
                    return match self.machine.on_page_end(version, continue_token, remaining, clock::now()) {
                        PageVerdict::NextPage => Ok(false),
                        PageVerdict::ListComplete(_) => Ok(true),
                        PageVerdict::GivenUp(error) => Err(error),
                    };
                }
            }
        }
    }

    async fn watch(&mut self, request: WatchRequest) -> Result<(), ReceiverStopped> {
        if request.initial_events {
            self.listed.clear();
        }
        let (mut opened, mut events) = (None, 0);
        let end = match within(self.stall.watch_head, "watch: no answer", self.source.watch(request)).await {
            Err(error) => Err(error),
            Ok(mut stream) => {
                self.machine.on_watch_opened(clock::now());
                opened = Some(clock::now());
                loop {
                    let next = match self.machine.deadline() {
                        Some(deadline) => tokio::time::timeout_at(deadline, stream.next()).await,
                        None => Ok(stream.next().await),
                    };
                    match next {
                        Err(_) => break Err(self.machine.stall_error()),
                        Ok(None) => break Ok(()),
                        Ok(Some(Err(error))) => break Err(error),
                        Ok(Some(Ok(batch))) => {
                            events += batch.items.len() as u64;
                            for item in batch.items {
                                self.take(item).await?;
                            }
                            if let Some(error) = self.machine.overrun_error(clock::now()) {
                                break Err(error);
                            }
                        }
                    }
                }
            }
        };
        let now = clock::now();
        let lasted = opened.map_or(Duration::ZERO, |opened| now.duration_since(opened));
        self.machine.on_watch_end(end.as_ref().copied(), events, lasted, now);
        if end.as_ref().is_err_and(|error| error.class.is_refusal()) {
            // A refusal voids the names, which only a list restores.
            self.machine.relist();
        }
        match end {
            Ok(()) => Ok(()),
            Err(error) => self.send(NameChange::Failed(error)).await,
        }
    }

    async fn take(&mut self, item: WatchItem) -> Result<(), ReceiverStopped> {
        let verdict = self.machine.on_watch_item(&item, clock::now());
        if let ItemVerdict::InitialEventsEnd(_) = verdict {
            return self.send_all().await;
        }
        let (object, is_there) = match &item {
            WatchItem::Added(object) | WatchItem::Modified(object) => (object, true),
            WatchItem::Deleted(object) => (object, false),
            WatchItem::Bookmark { .. } | WatchItem::Skipped(_) => return Ok(()),
        };
        let (name, generation) = name_of(object);
        if verdict == ItemVerdict::Initial {
            if is_there {
                self.listed.insert(name, generation);
            } else {
                self.listed.remove(&name);
            }
            return Ok(());
        }
        self.send(if is_there { NameChange::Added(name, generation) } else { NameChange::Removed(name) }).await
    }
}

/// Returns the name of an object and its `metadata.generation`; zero if it has none.
fn name_of(object: &StoredObject) -> (SmolStr, u64) {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Head {
        metadata: Metadata,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Metadata {
        generation: u64,
    }
    let head = object.typed::<Head>().unwrap_or_default();
    (object.key().name().into(), head.metadata.generation)
}

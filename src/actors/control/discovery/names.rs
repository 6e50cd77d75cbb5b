//! Names of the existing objects of a resource, from a metadata list and watch. Nothing else is kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::StreamExt;
use smol_str::SmolStr;

use crate::actors::pipeline::reflector::waits::{next_within, within};
use informer_hub_reflector::{
    ItemVerdict, ListChunk, ListRequest, ListerWatcher, PageVerdict, Reflector, ReflectorOptions, SourceError,
    StallPolicy, Step, WatchItem, WatchRequest,
};
use informer_hub_types::{Watcher, clock, rng};

/// Maximum number of names in a list; all are in memory.
const MOST_NAMES: u64 = 1_000_000;

/// Resource whose object names are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Names {
    /// CustomResourceDefinitions.
    Definitions,
    /// APIServices of aggregated APIs.
    Services,
}

/// Change of the watched names.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// Complete set of names.
    All(BTreeSet<SmolStr>),
    /// An object was added or modified.
    Came(SmolStr),
    /// An object was deleted.
    Went(SmolStr),
    /// The list or watch failed.
    Failed(SourceError),
}

/// Reports a change of the watched names.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Heard {
    pub(super) of: Names,
    pub(super) news: News,
}

/// The receiver has stopped.
struct Gone;

/// Watches names until the receiver stops.
pub(super) async fn follow(
    of: Names,
    source: Arc<dyn ListerWatcher>,
    mut options: ReflectorOptions,
    teller: Recipient<Heard>,
    mut others: Watcher<()>,
) {
    let stall = options.stall;
    options.list.items = options.list.items.min(MOST_NAMES);
    let machine = Reflector::new(options, rng::unit);
    let mut following = Following { of, source, machine, stall, teller, listed: BTreeSet::new() };
    loop {
        let done = match following.machine.next(clock::now()) {
            Step::Wait { until, .. } => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(until) => {}
                    Ok(()) = others.changed() => following.machine.hurry(clock::now()),
                }
                if following.teller.connected() { Ok(()) } else { Err(Gone) }
            }
            Step::List { request, fresh } => following.list(request, fresh).await,
            Step::Watch { request } => following.watch(request).await,
        };
        if done.is_err() {
            return;
        }
    }
}

struct Following {
    of: Names,
    source: Arc<dyn ListerWatcher>,
    machine: Reflector,
    stall: StallPolicy,
    teller: Recipient<Heard>,
    /// Names of the list in progress.
    listed: BTreeSet<SmolStr>,
}

impl Following {
    async fn tell(&self, news: News) -> Result<(), Gone> {
        self.teller.send(Heard { of: self.of, news }).await.map_err(|_| Gone)
    }

    async fn tell_all(&mut self) -> Result<(), Gone> {
        let names = std::mem::take(&mut self.listed);
        self.tell(News::All(names)).await
    }

    async fn list(&mut self, request: ListRequest, fresh: bool) -> Result<(), Gone> {
        if fresh {
            self.listed.clear();
        }
        match self.read_page(request).await {
            Ok(true) => self.tell_all().await,
            Ok(false) => Ok(()),
            Err(error) => {
                self.machine.on_list_error(&error, clock::now());
                self.tell(News::Failed(error)).await
            }
        }
    }

    /// Reads a page. Returns whether the list is complete.
    async fn read_page(&mut self, request: ListRequest) -> Result<bool, SourceError> {
        let mut asked = clock::now();
        let opening = within(self.stall.list_head, "list: no answer", self.source.list(request));
        let mut stream = opening.await?;
        loop {
            let chunk = next_within(&self.stall, stream.next()).await?;
            let now = clock::now();
            self.machine.on_list_items(chunk.items(), now - std::mem::replace(&mut asked, now))?;
            match chunk {
                ListChunk::Items(objects) => {
                    self.listed.extend(objects.iter().map(|object| SmolStr::from(object.key().name())));
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

    async fn watch(&mut self, request: WatchRequest) -> Result<(), Gone> {
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
                        Err(_) => break Err(self.machine.out_of_patience()),
                        Ok(None) => break Ok(()),
                        Ok(Some(Err(error))) => break Err(error),
                        Ok(Some(Ok(batch))) => {
                            events += batch.items.len() as u64;
                            for item in batch.items {
                                self.take(item).await?;
                            }
                            if let Some(error) = self.machine.overrun(clock::now()) {
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
        match end {
            Ok(()) => Ok(()),
            Err(error) => self.tell(News::Failed(error)).await,
        }
    }

    async fn take(&mut self, item: WatchItem) -> Result<(), Gone> {
        let verdict = self.machine.on_watch_item(&item, clock::now());
        if let ItemVerdict::InitialEventsEnd(_) = verdict {
            return self.tell_all().await;
        }
        let (object, is_there) = match &item {
            WatchItem::Added(object) | WatchItem::Modified(object) => (object, true),
            WatchItem::Deleted(object) => (object, false),
            WatchItem::Bookmark { .. } | WatchItem::Skipped(_) => return Ok(()),
        };
        let name = SmolStr::from(object.key().name());
        if verdict == ItemVerdict::Initial {
            if is_there {
                self.listed.insert(name);
            } else {
                self.listed.remove(&name);
            }
            return Ok(());
        }
        self.tell(if is_there { News::Came(name) } else { News::Went(name) }).await
    }
}

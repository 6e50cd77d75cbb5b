//! Indices that are added to a cache in use: built on threads of their own, while it goes on taking writes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::try_join_all;
use tokio::sync::oneshot;

use crate::actors::cache::actor::CacheActor;
use crate::actors::cache::messages::{AddIndexers, RemoveIndexer};
use crate::cache::{AddIndexersError, BuildId, BuildStep, IndexBuild, Indexers, OWNER_INDEX, owner_index};

/// Who waits for which indices.
pub(super) type Waiting = BTreeMap<BuildId, oneshot::Sender<Result<(), AddIndexersError>>>;

/// Threads that work on one build, at most. One core is left to what goes on meanwhile.
const MAX_WORKERS: usize = 4;

fn workers() -> usize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    (cores - 1).clamp(1, MAX_WORKERS)
}

impl CacheActor {
    /// Has the index of owners built, unless it is there or on its way.
    pub(super) fn index_owners(&mut self, ctx: &mut Context<Self>) {
        let indexers = Indexers::new().with(OWNER_INDEX, owner_index());
        if self.write_half.write(|half| half.store.plan_indexers(indexers)).is_ok() {
            self.next_build(ctx);
        }
    }

    fn next_build(&mut self, ctx: &mut Context<Self>) {
        if let Some((id, build)) = self.write_half.write(|half| half.store.begin_build()) {
            self.work_on(id, &build, ctx);
        }
    }

    fn work_on(&self, id: BuildId, build: &Arc<IndexBuild>, ctx: &mut Context<Self>) {
        let worker = |_| {
            let build = Arc::clone(build);
            self.io.spawn_blocking(move || build.work())
        };
        let work = try_join_all((0..workers()).map(worker));
        ctx.spawn(work.into_actor(self).map(move |done, act, ctx| act.go_on(id, done.is_ok(), ctx)));
    }

    /// What comes after a build's work; where that cannot be done, its end.
    fn go_on(&mut self, id: BuildId, done: bool, ctx: &mut Context<Self>) {
        let step = if done { self.write_half.write(|half| half.store.resume_build()) } else { None };
        let result = match step {
            Some(BuildStep::Work(build)) => return self.work_on(id, &build, ctx),
            Some(BuildStep::Done(result)) => result,
            None => {
                self.write_half.write(|half| half.store.give_up_build());
                if done {
                    // The store was panicked over, and what waits in line went with it.
                    self.waiting.clear();
                }
                Err(AddIndexersError::Stopped)
            }
        };
        if let Some(asker) = self.waiting.remove(&id) {
            // Who does not wait for it any more has the indices all the same.
            let _ = asker.send(result);
        }
        self.next_build(ctx);
    }
}

impl Handler<AddIndexers> for CacheActor {
    type Result = ResponseFuture<Result<(), AddIndexersError>>;

    fn handle(&mut self, AddIndexers(indexers): AddIndexers, ctx: &mut Self::Context) -> Self::Result {
        let id = match self.write_half.write(|half| half.store.plan_indexers(indexers)) {
            Ok(id) => id,
            Err(conflict) => return Box::pin(std::future::ready(Err(conflict.into()))),
        };
        let (asker, answer) = oneshot::channel();
        self.waiting.insert(id, asker);
        self.next_build(ctx);
        Box::pin(answer.map(|answer| answer.unwrap_or(Err(AddIndexersError::Stopped))))
    }
}

impl Handler<RemoveIndexer> for CacheActor {
    type Result = bool;

    fn handle(&mut self, RemoveIndexer(name): RemoveIndexer, _ctx: &mut Self::Context) -> Self::Result {
        self.write_half.write(|half| half.store.remove_indexer(&name))
    }
}

//! Index builds: adds indices to a cache in use. The work runs on separate threads while the cache accepts writes.

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

/// Callers waiting for index builds, by build.
pub(super) type BuildWaiters = BTreeMap<BuildId, oneshot::Sender<Result<(), AddIndexersError>>>;

/// Maximum number of threads for one build. If there are several cores, one is left for other work.
const MAX_WORKERS: usize = 4;

fn workers() -> usize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    (cores - 1).clamp(1, MAX_WORKERS)
}

impl CacheActor {
    /// Starts to build the index that finds objects by their owners, unless it exists or is already being built.
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
        ctx.spawn(work.into_actor(self).map(move |done, act, ctx| act.continue_build(id, done.is_ok(), ctx)));
    }

    /// Runs the next step of a build. Ends the build if the last step failed (`done` is false).
    fn continue_build(&mut self, id: BuildId, done: bool, ctx: &mut Context<Self>) {
        // A panic while writing drops the store with its builds. The recovered store may have another one.
        let step = self.write_half.write(|half| {
            let is_known = half.store.is_building(id);
            if is_known && done { half.store.resume_build() } else { None }
        });
        let result = match step {
            Some(BuildStep::Work(build)) => return self.work_on(id, &build, ctx),
            Some(BuildStep::Done(result)) => result,
            None => {
                let waiting = &mut self.waiting;
                self.write_half.write(|half| {
                    if half.store.is_building(id) {
                        half.store.give_up_build();
                    }
                    waiting.retain(|other, _| *other == id || half.store.has_build(*other));
                });
                Err(AddIndexersError::Stopped)
            }
        };
        if let Some(caller) = self.waiting.remove(&id) {
            // The caller may be gone; the indices exist all the same.
            let _ = caller.send(result);
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
        let (caller, answer) = oneshot::channel();
        self.waiting.insert(id, caller);
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

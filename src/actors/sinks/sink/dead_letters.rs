//! Dead-letter requests: list, show, replay and purge.

use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use std::sync::Arc;
use tokio::sync::oneshot;

use crate::actors::sinks::sink::{Reply, SinkActor};
use informer_hub_sink::{DeadLetter, LetterFilter, LetterSummary, StoreError};
use informer_hub_types::clock;

/// Request about a sink's dead letters.
#[derive(Clone, Debug)]
pub enum LetterRequest {
    /// Lists matching dead letters, oldest first.
    List {
        /// Selects the dead letters.
        filter: LetterFilter,
        /// Number of the first dead letter to list.
        from: u64,
        /// Maximum number of entries.
        most: usize,
    },
    /// Returns one dead letter with its event.
    Show {
        /// Number of the dead letter.
        number: u64,
    },
    /// Redelivers matching dead letters with their original IDs, oldest first.
    ///
    /// They are queued after pending events, so a receiver may see an older state of an object after a newer one.
    Replay {
        /// Selects the dead letters.
        filter: LetterFilter,
    },
    /// Deletes matching dead letters.
    Purge {
        /// Selects the dead letters.
        filter: LetterFilter,
    },
}

/// Answer to a [`LetterRequest`].
#[derive(Clone, Debug)]
pub enum LetterAnswer {
    /// Answer to [`LetterRequest::List`].
    List(Vec<LetterSummary>),
    /// Answer to [`LetterRequest::Show`]; `None` if the number does not exist.
    One(Option<Box<DeadLetter>>),
    /// Answer to [`LetterRequest::Replay`] and [`LetterRequest::Purge`]: number of dead letters replayed or deleted.
    Count(u64),
}

impl Message for LetterRequest {
    type Result = Result<LetterAnswer, StoreError>;
}

impl Handler<LetterRequest> for SinkActor {
    type Result = Reply<Result<LetterAnswer, StoreError>>;

    fn handle(&mut self, request: LetterRequest, ctx: &mut Context<Self>) -> Self::Result {
        if let (LetterRequest::Replay { filter }, None) = (&request, &self.params.place) {
            let replayed = self.replay_from_memory(filter);
            self.pump(ctx);
            return Reply::Now(replayed);
        }
        let store = Arc::clone(&self.store);
        let (reply, answer) = oneshot::channel();
        let work = self.params.io.spawn_blocking(move || {
            let mut store = store.lock();
            let mut end = None;
            let done = match request {
                LetterRequest::List { filter, from, most } => {
                    store.list_letters(&filter, from, most).map(LetterAnswer::List)
                }
                LetterRequest::Show { number } => store.letter(number).map(|one| LetterAnswer::One(one.map(Box::new))),
                LetterRequest::Purge { filter } => store.purge_letters(&filter).map(LetterAnswer::Count),
                LetterRequest::Replay { filter } => {
                    let replayed = store.replay_letters(&filter);
                    end = replayed.end;
                    replayed.error.map_or(Ok(LetterAnswer::Count(replayed.count)), Err)
                }
            };
            (done, store.state(), end)
        });
        ctx.spawn(work.into_actor(self).map(|done, actor, ctx| {
            let Ok((done, state, end)) = done else { return };
            // Work of the machine may have changed the store since `state` was read. If the store is busy, the end of
            // that work shows the new state.
            let state = actor.store.try_lock().map_or(state, |store| store.state());
            let health = &actor.params.machine.health;
            if actor.params.place.is_some() {
                health.show_journal(&state);
            } else {
                health.note_letters(state.letters);
            }
            if let Some(end) = end {
                actor.state.machine.appended(end, state.pending);
            }
            // The caller may no longer wait.
            let _ = reply.send(done);
            actor.pump(ctx);
        }));
        Reply::Later(answer)
    }
}

impl SinkActor {
    fn replay_from_memory(&mut self, filter: &LetterFilter) -> Result<LetterAnswer, StoreError> {
        let mut store = self.store.lock();
        let mut found = Vec::new();
        store.letters(filter, 0, usize::MAX, |number, letter| found.push((number, letter.event.replayed())))?;
        let (numbers, events): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let refused = self.state.machine.readmit(events, clock::now());
        // Letters are readmitted oldest first, so those without room are the newest.
        let taken = numbers.len() - refused.len();
        store.remove_letters(&numbers[..taken])?;
        self.params.machine.health.note_letters(store.state().letters);
        Ok(LetterAnswer::Count(taken as u64))
    }
}

//! Dead letters by message: looked at, delivered again, thrown away.

use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use std::sync::Arc;
use tokio::sync::oneshot;

use crate::actors::sinks::sink::{Reply, SinkActor};
use informer_hub_sink::{DeadLetter, LetterFilter, LetterSummary, StoreError};
use informer_hub_types::clock;

/// Asks a sink about its dead letters.
#[derive(Clone, Debug)]
pub enum LetterRequest {
    /// Those that fit, oldest first.
    List {
        /// Which.
        filter: LetterFilter,
        /// The first number.
        from: u64,
        /// So many at most.
        most: usize,
    },
    /// One with its event.
    Show {
        /// Its number.
        number: u64,
    },
    /// Have those that fit delivered again, with the ids that they had, oldest first. They come after what is pending, so
    /// a receiver may see an older state of an object after a newer one: it was asked for.
    Replay {
        /// Which.
        filter: LetterFilter,
    },
    /// Throw those that fit away.
    Purge {
        /// Which.
        filter: LetterFilter,
    },
}

/// What a sink says about its dead letters.
#[derive(Clone, Debug)]
pub enum LetterAnswer {
    /// To [`LetterRequest::List`].
    List(Vec<LetterSummary>),
    /// To [`LetterRequest::Show`]; `None`: there is none of that number any more.
    One(Option<Box<DeadLetter>>),
    /// To [`LetterRequest::Replay`] and [`LetterRequest::Purge`]: how many.
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
            let health = &actor.params.machine.health;
            if actor.params.place.is_some() {
                health.show_journal(&state);
            } else {
                health.note_letters(state.letters);
            }
            if let Some(end) = end {
                actor.state.machine.appended(end);
            }
            // Who asked may have gone.
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
        store.letters(filter, 0, usize::MAX, |number, letter| found.push((number, letter.event)))?;
        let (numbers, events): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let refused = self.state.machine.readmit(events, clock::now());
        // What there is no room for is the newest, since the oldest went first.
        let taken = numbers.len() - refused.len();
        store.remove_letters(&numbers[..taken])?;
        self.params.machine.health.note_letters(store.state().letters);
        Ok(LetterAnswer::Count(taken as u64))
    }
}

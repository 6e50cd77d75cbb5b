//! Waiting for the next key, and the timekeeper: the waiting worker that sleeps until the next delayed key is due.

use tokio::sync::futures::Notified;
use tokio::task::coop;

use super::queue::TakeResult;
use super::{Key, Work, WorkQueue};
use informer_hub_types::clock::Instant;

impl<T: Key> WorkQueue<T> {
    /// Waits for the next key. Returns `None` once the queue is shut down and nothing is queued.
    ///
    /// After a plain [`WorkQueue::shut_down`], a key that was added while in process may be queued again after other
    /// workers received `None`. The worker that processes it receives it again with its next call. During a
    /// [drain](WorkQueue::shut_down_with_drain), no worker receives `None` before such keys are handed out.
    ///
    /// Yields to other tasks from time to time, even if keys are always available.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing. But it must not be *kept* without being polled, as in a loop whose `select!`
    /// borrows it while another branch awaits. The future may have been woken for a key, or be the one that waits for
    /// the next delayed key. Then the other workers sleep until it is polled or dropped.
    pub async fn get(&self) -> Option<Work<T>> {
        // Yields before anything else, so that a worker with keys always available does not starve its thread. Yielding
        // later could lose a received wake-up if the future is dropped.
        coop::consume_budget().await;
        let mut timekeeper = None;
        loop {
            // Created before the queue is inspected, so that later changes are not missed.
            let woken = self.shared.ready.notified();
            match self.take(timekeeper.take()) {
                GetStep::Work(work) => return Some(work),
                GetStep::Over => return None,
                GetStep::Wait => woken.await,
                GetStep::Keep(keeper) => timekeeper.insert(keeper).keep(woken).await,
            }
        }
    }

    fn take(&self, keeper: Option<Timekeeper<'_, T>>) -> GetStep<'_, T> {
        let mut keeper = keeper;
        self.locked(|state, now| {
            if keeper.as_mut().is_some_and(|keeper| std::mem::take(&mut keeper.on_duty)) {
                state.timekeeper = None;
            }
            match state.queue.take(now) {
                TakeResult::Item(item, ticket) => GetStep::Work(Work::new(item, ticket, self.clone())),
                TakeResult::Over => GetStep::Over,
                TakeResult::Nothing => match state.queue.next_due() {
                    Some(until) if state.timekeeper.is_none() => {
                        state.timekeeper = Some(until);
                        GetStep::Keep(Timekeeper { queue: self, until, on_duty: true })
                    }
                    _ => GetStep::Wait,
                },
            }
        })
    }
}

/// Next step of a worker in `get`.
enum GetStep<'a, T: Key> {
    Work(Work<T>),
    Over,
    Wait,
    Keep(Timekeeper<'a, T>),
}

/// The waiting worker that sleeps until the next delayed key is due. If it is dropped while it does so, another waiting
/// worker replaces it.
struct Timekeeper<'a, T: Key> {
    queue: &'a WorkQueue<T>,
    until: Instant,
    on_duty: bool,
}

impl<T: Key> Timekeeper<'_, T> {
    async fn keep(&self, woken: Notified<'_>) {
        tokio::select! {
            () = woken => {}
            () = self.queue.shared.earlier.notified() => {}
            () = tokio::time::sleep_until(self.until) => {}
        }
    }
}

impl<T: Key> Drop for Timekeeper<'_, T> {
    fn drop(&mut self) {
        if self.on_duty {
            self.queue.locked(|state, _| state.timekeeper = None);
        }
    }
}

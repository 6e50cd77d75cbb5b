//! Places of connections: so many, and who leaves when one more comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use informer_hub_types::clock::{self, Instant};

/// The connections that wait for a request, or for their answer to be taken, in the order in which they began to.
#[derive(Debug, Default)]
pub(super) struct Seats {
    waiting: Mutex<Line>,
    /// Somebody has begun to wait.
    waits: Notify,
}

#[derive(Debug, Default)]
struct Line {
    seats: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// One connection's place. Dropping it leaves.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    /// Its number in the line, and since when; `None` while a request of its is being answered.
    turn: Mutex<Option<(u64, Instant)>>,
    leave: Arc<Notify>,
}

impl Seats {
    /// A place for one more, who waits from now on. How many there are is the caller's to see to.
    pub(super) fn take(self: &Arc<Self>) -> Seat {
        let seat = Seat { seats: Arc::clone(self), turn: Mutex::default(), leave: Arc::default() };
        seat.wait();
        seat
    }

    /// Asks the one that has waited longest to leave; false where nobody waits. It has left once its task has run.
    pub(super) fn evict(&self) -> bool {
        let first = self.waiting.lock().seats.pop_first();
        first.is_some_and(|(_, leave)| {
            leave.notify_one();
            true
        })
    }

    /// Waits until somebody waits.
    ///
    /// # Cancel safety
    /// Who began to wait meanwhile is not forgotten.
    pub(super) async fn somebody_waits(&self) {
        self.waits.notified().await;
    }
}

impl Seat {
    /// A request has come.
    pub(super) fn begin(&self) {
        if let Some((number, _)) = self.turn.lock().take() {
            self.seats.waiting.lock().seats.remove(&number);
        }
    }

    /// Its answer is ready to be taken; from now on it waits.
    pub(super) fn wait(&self) {
        let mut turn = self.turn.lock();
        let mut line = self.seats.waiting.lock();
        let number = line.next;
        line.next += 1;
        line.seats.insert(number, Arc::clone(&self.leave));
        if let Some((old, _)) = turn.replace((number, clock::now())) {
            line.seats.remove(&old);
        }
        drop(line);
        self.seats.waits.notify_one();
    }

    /// Ends when it is to leave: somebody else needs the place, or it has waited so long at a stretch.
    pub(super) async fn time_to_leave(&self, longest: Duration) {
        let overdue = async {
            loop {
                let since = self.turn.lock().map_or_else(clock::now, |(_, since)| since);
                if clock::now() >= since + longest {
                    return;
                }
                tokio::time::sleep_until(since + longest).await;
            }
        };
        tokio::select! {
            () = self.leave.notified() => {}
            () = overdue => {}
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_longest_leaves_and_who_is_being_answered_does_not() {
        let seats = Arc::new(Seats::default());
        let [first, second, third] = [(); 3].map(|()| seats.take());
        first.begin();
        second.begin();
        second.wait();
        assert!(seats.evict());
        assert!(third.time_to_leave(LONG).now_or_never().is_some());
        assert!(second.time_to_leave(LONG).now_or_never().is_none());
        drop(third);
        assert!(seats.evict() && second.time_to_leave(LONG).now_or_never().is_some());
        assert!(!seats.evict(), "the first is being answered");
        first.wait();
        assert!(seats.somebody_waits().now_or_never().is_some());
        drop(first);
        assert!(!seats.evict(), "it has left");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_at_a_stretch_leaves() {
        let seats = Arc::new(Seats::default());
        let seat = seats.take();
        let (half, start) = (LONG / 2, clock::now());
        let work = async {
            tokio::time::sleep(half).await;
            seat.begin();
            tokio::time::sleep(2 * LONG).await;
            seat.wait();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = seat.time_to_leave(LONG) => {}
            () = work => {}
        }
        assert_eq!(clock::now() - start, half + 2 * LONG + LONG);
    }
}

//! Guard of a key in process.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::{Key, WorkQueue};

/// A key in process. No other worker gets the key until the holder of this value ends the processing by one of the
/// methods, or drops the value.
///
/// Dropping the value is equivalent to [`retry`](Work::retry). It means that the holder panicked, was aborted or timed
/// out before the key was processed. client-go's `Done` is [`Work::done`].
#[must_use = "dropping it counts as a failure and retries the key"]
pub struct Work<T: Key> {
    item: T,
    /// Ticket with which the processing is ended; `None` once it has ended or the key was detached.
    ticket: Option<u64>,
    queue: WorkQueue<T>,
}

impl<T: Key> Work<T> {
    pub(super) fn new(item: T, ticket: u64, queue: WorkQueue<T>) -> Self {
        Self { item, ticket: Some(ticket), queue }
    }

    /// Returns the key.
    pub fn item(&self) -> &T {
        &self.item
    }

    /// Ends the processing. The key is queued again only if it was added meanwhile. The limiter keeps counting its
    /// retries.
    pub fn done(mut self) {
        self.end_processing();
    }

    /// Ends the processing after a success, or after a failure not worth retrying. The limiter forgets the key.
    pub fn succeed(mut self) {
        self.queue.forget(&self.item);
        self.end_processing();
    }

    /// Ends the processing after a failure. The key is retried after the limiter's delay.
    pub fn retry(self) {
        drop(self);
    }

    /// Ends the processing and queues the key again after `delay`, ignoring the limiter.
    pub fn retry_after(mut self, delay: Duration) {
        self.queue.add_after(self.item.clone(), delay);
        self.end_processing();
    }

    /// Returns the key, which stays in process: no worker gets it until [`WorkQueue::done`] is called for it, and the
    /// queue cannot be drained before.
    pub fn detach(mut self) -> T {
        self.ticket = None;
        self.item.clone()
    }

    fn end_processing(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.queue.finish(&self.item, ticket);
        }
    }
}

impl<T: Key> Drop for Work<T> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.queue.add_rate_limited(self.item.clone());
        }
        self.end_processing();
    }
}

impl<T: Key> Deref for Work<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Key + fmt::Debug> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.item).finish()
    }
}

//! Guard of a key in process.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::{Key, WorkQueue};

/// A key that only its holder processes, until the holder returns it by one of the methods or drops it.
///
/// Dropping it is equivalent to [`retry`](Work::retry), because the holder panicked, was aborted or timed out, and the
/// key was not processed. client-go's `Done` is [`Work::done`].
#[must_use = "dropping it counts as a failure and retries the key"]
pub struct Work<T: Key> {
    item: T,
    /// Ticket with which the key is returned to the queue; `None` after the key was returned or detached.
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

    /// Returns the key after its processing. It is queued again only if it was added meanwhile. The limiter keeps
    /// counting its retries.
    pub fn done(mut self) {
        self.end_processing();
    }

    /// Returns the key after a success, or a failure not worth retrying. The limiter forgets the key.
    pub fn succeed(mut self) {
        self.queue.forget(&self.item);
        self.end_processing();
    }

    /// Returns the key after a failure. It is retried after the limiter's delay.
    pub fn retry(self) {
        drop(self);
    }

    /// Returns the key and queues it again after `delay`, ignoring the limiter.
    pub fn retry_after(mut self, delay: Duration) {
        self.queue.add_after(self.item.clone(), delay);
        self.end_processing();
    }

    /// Returns the bare key. It is not handed out again until [`WorkQueue::done`] is called for it, and the queue
    /// cannot be drained before.
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

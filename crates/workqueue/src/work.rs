//! A key in a worker's hands.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::{Key, WorkQueue};

/// A key that its holder alone works on, until it is given back by one of the methods, which say what has become of the
/// work, or dropped.
///
/// To drop it without a word is to [`retry`](Work::retry): the holder has panicked, was aborted, ran out of time or
/// forgot, and the change that the key stands for has not been dealt with. client-go's `Done` is [`Work::done`].
#[must_use = "dropping it means that the work has failed"]
pub struct Work<T: Key> {
    item: T,
    /// `None` once the key has been given back or detached.
    ticket: Option<u64>,
    queue: WorkQueue<T>,
}

impl<T: Key> Work<T> {
    pub(super) fn new(item: T, ticket: u64, queue: WorkQueue<T>) -> Self {
        Self { item, ticket: Some(ticket), queue }
    }

    /// The key.
    pub fn item(&self) -> &T {
        &self.item
    }

    /// The work is done: the key gets in line again only if it was added meanwhile. The limiter goes on counting tries
    /// of it.
    pub fn done(mut self) {
        self.give_back();
    }

    /// The work has succeeded, or there is no sense in trying again: the limiter forgets the key.
    pub fn succeed(mut self) {
        self.queue.forget(&self.item);
        self.give_back();
    }

    /// The work has failed: the key is tried again after the limiter's delay.
    pub fn retry(self) {
        drop(self);
    }

    /// The key is worked on again after `delay`, whatever the limiter thinks.
    pub fn retry_after(mut self, delay: Duration) {
        self.queue.add_after(self.item.clone(), delay);
        self.give_back();
    }

    /// The bare key. Nobody else gets it until [`WorkQueue::done`] is called for it, and the queue cannot be drained.
    pub fn detach(mut self) -> T {
        self.ticket = None;
        self.item.clone()
    }

    fn give_back(&mut self) {
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
        self.give_back();
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

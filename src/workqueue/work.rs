//! A key in a worker's hands.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::{Key, WorkQueue};

/// A key that its holder alone works on, until this is dropped or given back by one of its methods.
///
/// Dropping it means that the work is done: the key gets in line again only if it was added meanwhile. What the limiter
/// remembers of the key stays. If the holder panics, the key is also tried again after the limiter's delay, since the
/// change that it stands for has not been dealt with.
#[must_use = "dropping it means that the work is done"]
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

    /// The work is done; the limiter goes on counting tries of this key.
    pub fn done(self) {
        drop(self);
    }

    /// The work has succeeded, or there is no sense in trying again: the limiter forgets the key.
    pub fn succeed(self) {
        self.queue.forget(&self.item);
    }

    /// The work has failed: the key is tried again after the limiter's delay.
    pub fn retry(self) {
        self.queue.add_rate_limited(self.item.clone());
    }

    /// The key is worked on again after `delay`, whatever the limiter thinks.
    pub fn retry_after(self, delay: Duration) {
        self.queue.add_after(self.item.clone(), delay);
    }

    /// The bare key. Nobody else gets it until [`WorkQueue::done`] is called for it, and the queue cannot be drained.
    pub fn detach(mut self) -> T {
        self.ticket = None;
        self.item.clone()
    }
}

impl<T: Key> Drop for Work<T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if std::thread::panicking() {
            self.queue.add_rate_limited(self.item.clone());
        }
        self.queue.finish(&self.item, ticket);
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

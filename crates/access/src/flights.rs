//! Requests in flight that callers share: callers with the same key wait for one request.

use std::collections::HashMap;
use std::hash::Hash;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

/// A shared request, with the unique number by which [`Flights::end`] recognizes it.
pub(crate) type Flight<A> = (u64, Shared<BoxFuture<'static, A>>);

/// Requests queued or in flight, by key. A request is cancelled when no caller waits for it.
pub(crate) struct Flights<K, A> {
    all: HashMap<K, (u64, WeakShared<BoxFuture<'static, A>>)>,
    next: u64,
}

impl<K, A> Default for Flights<K, A> {
    fn default() -> Self {
        Self { all: HashMap::new(), next: 0 }
    }
}

impl<K: Hash + Eq, A: Clone> Flights<K, A> {
    /// Returns the request with this key; `None` if there is none or all its callers have stopped waiting.
    pub(crate) fn get(&self, key: &K) -> Option<Flight<A>> {
        let (number, flight) = self.all.get(key)?;
        Some((*number, flight.upgrade()?))
    }

    /// Returns whether at least `most` requests are queued or in flight. Cancelled requests do not count.
    pub(crate) fn is_full(&mut self, most: usize) -> bool {
        if self.all.len() >= most {
            self.all.retain(|_, (_, flight)| flight.upgrade().is_some());
        }
        self.all.len() >= most
    }

    /// Adds and returns a request that callers with the same key share. If the key already has a request, replaces it.
    pub(crate) fn begin(&mut self, key: K, request: BoxFuture<'static, A>) -> Flight<A> {
        let (number, flight) = (self.next, request.shared());
        self.next += 1;
        if let Some(weak) = flight.downgrade() {
            self.all.insert(key, (number, weak));
        }
        (number, flight)
    }

    /// Removes the answered request with this key and number. Returns whether this call removed it.
    ///
    /// Of the callers that share a request, the first to call this method gets true and stores the answer. The others
    /// get false. If a newer request has replaced this request, all callers get false.
    pub(crate) fn end(&mut self, key: &K, number: u64) -> bool {
        let is_current = self.all.get(key).is_some_and(|(current, _)| *current == number);
        if is_current {
            self.all.remove(key);
        }
        is_current
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

//! Watchable value: tokio's `watch` with a deterministic wake-up order.
//!
//! tokio spreads waiters over several lists at random, even in a simulation whose other random numbers come from a
//! seed. Here waiters wake in the order in which they began to wait, so that a simulation is reproducible.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// Sending half: holds and changes the value. Dropping it ends every wait.
pub struct WatchCell<T>(Arc<Shared<T>>);

/// Receiving half: reads the value and waits for its changes. A clone has seen the same changes as the original.
pub struct Watcher<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// Error of a wait after the [`WatchCell`] was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watched value no longer changes: its owner was dropped")]
pub struct WatchClosed;

struct Shared<T> {
    value: RwLock<T>,
    /// Number of changes; [`CLOSED`] after the cell was dropped.
    version: AtomicU64,
    changed: Notify,
}

/// Value of [`Shared::version`] after the cell was dropped.
const CLOSED: u64 = u64::MAX;

impl<T> WatchCell<T> {
    /// Creates a cell with an initial value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: RwLock::new(value), version: AtomicU64::new(0), changed: Notify::new() }))
    }

    /// Creates a receiver that has seen the current value.
    #[must_use]
    pub fn subscribe(&self) -> Watcher<T> {
        Watcher { seen: self.0.version.load(SeqCst), shared: Arc::clone(&self.0) }
    }

    /// Returns a copy of the value.
    #[must_use]
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.0.value.read().clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        self.modify(|old| {
            *old = value;
            true
        });
    }

    /// Passes the value to `change`, and wakes the receivers if `change` returns `true`.
    pub fn modify(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut value = self.0.value.write();
        let is_changed = change(&mut value);
        if is_changed {
            self.0.version.fetch_add(1, SeqCst);
        }
        drop(value);
        if is_changed {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T: Default> Default for WatchCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Watcher<T> {
    /// Returns the value and marks it as seen. Hold the guard only briefly: it blocks changes.
    pub fn read_latest(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.value.read();
        self.seen = self.shared.version.load(SeqCst);
        value
    }

    /// Waits until the value has changed since it was last seen, and marks it as seen.
    ///
    /// # Errors
    /// [`WatchClosed`] if the cell was dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: a change that was not reported is reported by the next call.
    pub async fn changed(&mut self) -> Result<(), WatchClosed> {
        changed(&self.shared, &mut self.seen).await
    }

    /// Waits until the value satisfies `is_wanted`, and marks it as seen.
    ///
    /// # Errors
    /// [`WatchClosed`] if the cell was dropped and the value does not satisfy `is_wanted`.
    pub async fn wait_for(&mut self, is_wanted: impl Fn(&T) -> bool) -> Result<RwLockReadGuard<'_, T>, WatchClosed> {
        let (shared, seen) = (&*self.shared, &mut self.seen);
        loop {
            {
                let value = shared.value.read();
                *seen = shared.version.load(SeqCst);
                if is_wanted(&value) {
                    return Ok(value);
                }
            }
            changed(shared, seen).await?;
        }
    }
}

async fn changed<T>(shared: &Shared<T>, seen: &mut u64) -> Result<(), WatchClosed> {
    loop {
        let mut notified = std::pin::pin!(shared.changed.notified());
        // Changes after this line wake this waiter.
        notified.as_mut().enable();
        let version = shared.version.load(SeqCst);
        if version == CLOSED {
            return Err(WatchClosed);
        }
        if version != *seen {
            *seen = version;
            return Ok(());
        }
        notified.await;
    }
}

impl<T> Drop for WatchCell<T> {
    fn drop(&mut self) {
        self.0.version.store(CLOSED, SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl<T> Clone for Watcher<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchCell").field(&*self.0.value.read()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Watcher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&*self.shared.value.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn each_change_is_reported_once_and_then_the_close() {
        let value = WatchCell::new(1);
        let mut watcher = value.subscribe();
        assert_eq!(watcher.changed().now_or_never(), None);
        value.set(2);
        value.set(3);
        assert_eq!(watcher.changed().now_or_never(), Some(Ok(())));
        assert_eq!(watcher.changed().now_or_never(), None);
        value.modify(|_| false);
        assert_eq!(watcher.changed().now_or_never(), None);
        value.set(4);
        assert_eq!(*watcher.read_latest(), 4);
        assert_eq!(watcher.changed().now_or_never(), None, "already seen");
        drop(value);
        assert_eq!(watcher.changed().now_or_never(), Some(Err(WatchClosed)));
    }

    #[tokio::test]
    async fn waiters_wake_in_order_when_their_condition_holds() {
        let (value, order) = (WatchCell::new(0), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let waiting: Vec<_> = (0..20)
            .map(|at| {
                let (mut watcher, order) = (value.subscribe(), Arc::clone(&order));
                tokio::spawn(async move {
                    assert_eq!(watcher.wait_for(|it| *it > 1).await.map(|it| *it), Ok(2));
                    order.lock().push(at);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        value.set(1);
        tokio::task::yield_now().await;
        assert!(order.lock().is_empty());
        value.set(2);
        for waiting in waiting {
            waiting.await.unwrap();
        }
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
        let mut watcher = value.subscribe();
        drop(value);
        assert_eq!(watcher.wait_for(|it| *it == 7).await.map(|_| ()), Err(WatchClosed));
        assert_eq!(watcher.wait_for(|it| *it == 2).await.map(|it| *it), Ok(2));
    }
}

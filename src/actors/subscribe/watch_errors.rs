//! Watch error handlers of an informer: client-go's `SetWatchErrorHandler`, for shared informers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use parking_lot::Mutex;

use crate::actors::subscribe::user::User;
use informer_hub_reflector::SourceError;
use informer_hub_types::{Origin, Threads};

/// Handler called with each failed list or watch. Unlike in client-go, this includes failures of an open watch.
///
/// It runs on a blocking thread, one call at a time. Failures during a call are not reported. A panic affects only its
/// call.
#[derive(Clone)]
pub struct WatchErrorHandler {
    call: Arc<OnError>,
    /// Whether a call is running. Shared by all informers that use the handler.
    busy: Arc<AtomicBool>,
}

type OnError = dyn Fn(&Origin, &SourceError) + Send + Sync;

impl WatchErrorHandler {
    /// Creates a handler from a closure.
    pub fn new(handler: impl Fn(&Origin, &SourceError) + Send + Sync + 'static) -> Self {
        Self { call: Arc::new(handler), busy: Arc::default() }
    }
}

impl fmt::Debug for WatchErrorHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchErrorHandler").finish_non_exhaustive()
    }
}

/// Watch error handlers of one informer. Each handler belongs to a user of the informer, and is removed with that user.
#[derive(Default)]
pub(in crate::actors) struct WatchErrors(Mutex<Vec<UserHandler>>);

#[derive(Clone)]
struct UserHandler {
    user: User,
    handler: WatchErrorHandler,
}

impl WatchErrors {
    pub(in crate::actors) fn add(&self, user: User, handler: WatchErrorHandler) {
        self.0.lock().push(UserHandler { user, handler });
    }

    pub(in crate::actors) fn remove(&self, user: &User) {
        self.0.lock().retain(|entry| entry.user != *user);
    }

    /// Adds the handlers of `other`. They belong to a request that was resolved to this informer only after the
    /// informer had started.
    pub(in crate::actors) fn absorb(&self, other: &Self) {
        let more = other.0.lock().clone();
        self.0.lock().extend(more);
    }

    /// Calls every handler that is not busy, without waiting.
    pub(in crate::actors) fn notify(&self, origin: &Arc<Origin>, error: &SourceError, handlers: &Threads) {
        for UserHandler { handler: WatchErrorHandler { call, busy }, .. } in self.0.lock().iter().cloned() {
            if busy.swap(true, AcqRel) {
                continue;
            }
            let (origin, error) = (Arc::clone(origin), error.clone());
            handlers.spawn_blocking(move || {
                if catch_unwind(AssertUnwindSafe(|| call(&origin, &error))).is_err() {
                    tracing::warn!(
                        cluster = %origin.cluster, resource = %origin.resource.gvr,
                        "a watch error handler of the embedding program panicked; it is called again for later errors"
                    );
                }
                busy.store(false, std::sync::atomic::Ordering::Release);
            });
        }
    }
}

impl fmt::Debug for WatchErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchErrors").field(&self.0.lock().len()).finish()
    }
}

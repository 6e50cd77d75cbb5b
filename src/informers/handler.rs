//! Event handlers: client-go's `ResourceEventHandler`, its two function structs and its filter.
//!
//! Differences from client-go:
//! - *A tombstone is a flag*, not a wrapper (`DeletedFinalStateUnknown`) that a handler must unwrap. `on_delete` always
//!   receives an object, possibly only its last known state.
//! - *The object is always present and of the handler's type*, so no handler needs a type assertion.
//! - *`initial` and `tombstone` are arguments* of the trait. [`ResourceEventHandlerFuncs`] omits them, as client-go's
//!   does; [`ResourceEventHandlerDetailedFuncs`] passes them on.

use std::fmt;

use informer_hub_types::{Dynamic, Notification, Object};

/// Handler called for each notification of one subscription.
///
/// # Ordering
/// Calls never overlap. Calls for one object follow the order of its changes; the order between objects is not
/// specified.
pub trait ResourceEventHandler<K = Dynamic>: Send + 'static {
    /// Called for an object that is new to this handler. `initial` is true if the object existed before the handler or the
    /// informer.
    fn on_add(&mut self, object: &Object<K>, initial: bool);
    /// Called for a changed object. Also called at a resync, where `old` and `new` have the same resource version.
    fn on_update(&mut self, old: &Object<K>, new: &Object<K>);
    /// Called for a deleted object. If `tombstone` is true, the watch did not see the deletion, and `object` may be older
    /// than its last state.
    fn on_delete(&mut self, object: &Object<K>, tombstone: bool);
}

impl<K, H: ResourceEventHandler<K> + ?Sized> ResourceEventHandler<K> for Box<H> {
    fn on_add(&mut self, object: &Object<K>, initial: bool) {
        (**self).on_add(object, initial);
    }

    fn on_update(&mut self, old: &Object<K>, new: &Object<K>) {
        (**self).on_update(old, new);
    }

    fn on_delete(&mut self, object: &Object<K>, tombstone: bool) {
        (**self).on_delete(object, tombstone);
    }
}

/// Calls the handler method for a notification. [`Notification::Synced`] has no object and is ignored.
pub fn dispatch<K: 'static>(handler: &mut dyn ResourceEventHandler<K>, notification: &Notification<K>) {
    match notification {
        Notification::Added { object, initial } => handler.on_add(object, *initial),
        Notification::Updated { old, new, .. } => handler.on_update(old, new),
        Notification::Deleted { object, tombstone } => handler.on_delete(object, *tombstone),
        Notification::Synced(_) => {}
    }
}

type OnFlagged<K> = Option<Box<dyn FnMut(&Object<K>, bool) + Send>>;
type Filter<K> = Box<dyn Fn(&Object<K>) -> bool + Send>;
type OnUpdate<K> = Option<Box<dyn FnMut(&Object<K>, &Object<K>) + Send>>;

/// Handler made of up to three closures; events without a closure are ignored.
///
/// # Examples
/// ```
/// use informer_hub::informers::{ResourceEventHandler, ResourceEventHandlerFuncs};
/// use informer_hub::types::Dynamic;
///
/// let funcs = ResourceEventHandlerFuncs::<Dynamic>::new()
///     .on_add(|object| println!("{} is there", object.name()))
///     .on_delete(|object| println!("{} is gone", object.name()));
/// let handler: Box<dyn ResourceEventHandler> = Box::new(funcs);
/// # drop(handler);
/// ```
pub struct ResourceEventHandlerFuncs<K = Dynamic>(ResourceEventHandlerDetailedFuncs<K>);

impl<K> ResourceEventHandlerFuncs<K> {
    /// Creates a handler that ignores all events.
    #[must_use]
    pub fn new() -> Self {
        Self(ResourceEventHandlerDetailedFuncs::new())
    }

    /// Sets the closure called with each new object; replaces an earlier one.
    #[must_use]
    pub fn on_add(self, mut f: impl FnMut(&Object<K>) + Send + 'static) -> Self {
        Self(self.0.on_add(move |object, _| f(object)))
    }

    /// Sets the closure called with the old and new state; replaces an earlier one.
    #[must_use]
    pub fn on_update(self, f: impl FnMut(&Object<K>, &Object<K>) + Send + 'static) -> Self {
        Self(self.0.on_update(f))
    }

    /// Sets the closure called with the last known state of a deleted object; replaces an earlier one.
    #[must_use]
    pub fn on_delete(self, mut f: impl FnMut(&Object<K>) + Send + 'static) -> Self {
        Self(self.0.on_delete(move |object, _| f(object)))
    }
}

impl<K: 'static> ResourceEventHandler<K> for ResourceEventHandlerFuncs<K> {
    fn on_add(&mut self, object: &Object<K>, initial: bool) {
        ResourceEventHandler::on_add(&mut self.0, object, initial);
    }

    fn on_update(&mut self, old: &Object<K>, new: &Object<K>) {
        ResourceEventHandler::on_update(&mut self.0, old, new);
    }

    fn on_delete(&mut self, object: &Object<K>, tombstone: bool) {
        ResourceEventHandler::on_delete(&mut self.0, object, tombstone);
    }
}

/// [`ResourceEventHandlerFuncs`] with the `initial` and `tombstone` flags.
pub struct ResourceEventHandlerDetailedFuncs<K = Dynamic> {
    add: OnFlagged<K>,
    update: OnUpdate<K>,
    delete: OnFlagged<K>,
}

impl<K> ResourceEventHandlerDetailedFuncs<K> {
    /// Creates a handler that ignores all events.
    #[must_use]
    pub fn new() -> Self {
        Self { add: None, update: None, delete: None }
    }

    /// Sets the closure called with each new object and the `initial` flag; replaces an earlier one.
    #[must_use]
    pub fn on_add(mut self, f: impl FnMut(&Object<K>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(f));
        self
    }

    /// Sets the closure called with the old and new state; replaces an earlier one.
    #[must_use]
    pub fn on_update(mut self, f: impl FnMut(&Object<K>, &Object<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(f));
        self
    }

    /// Sets the closure called with the last known state of a deleted object and the `tombstone` flag; replaces an
    /// earlier one.
    #[must_use]
    pub fn on_delete(mut self, f: impl FnMut(&Object<K>, bool) + Send + 'static) -> Self {
        self.delete = Some(Box::new(f));
        self
    }
}

impl<K: 'static> ResourceEventHandler<K> for ResourceEventHandlerDetailedFuncs<K> {
    fn on_add(&mut self, object: &Object<K>, initial: bool) {
        if let Some(f) = &mut self.add {
            f(object, initial);
        }
    }

    fn on_update(&mut self, old: &Object<K>, new: &Object<K>) {
        if let Some(f) = &mut self.update {
            f(old, new);
        }
    }

    fn on_delete(&mut self, object: &Object<K>, tombstone: bool) {
        if let Some(f) = &mut self.delete {
            f(object, tombstone);
        }
    }
}

/// Handler that passes on only objects that a filter accepts.
///
/// If an update changes the filter's answer, it is passed on as another event. If only the new state is accepted, it
/// becomes an addition that is not initial. If only the old state is accepted, it becomes a deletion of the old state
/// that is not a tombstone.
///
/// As in client-go, a deletion is filtered by the state in the deletion event. If the filter rejects that state but
/// accepted the previous one, the handler is not notified of the deletion. The filter of a subscription
/// ([`ObjectFilter`]) does report this deletion; prefer it if namespace and labels suffice.
///
/// [`ObjectFilter`]: crate::cache::ObjectFilter
pub struct FilteringResourceEventHandler<K, H> {
    filter: Filter<K>,
    handler: H,
}

impl<K, H> FilteringResourceEventHandler<K, H> {
    /// Creates a handler that passes events to `handler` if `filter` accepts them. The filter must be a pure function
    /// of the object.
    pub fn new(filter: impl Fn(&Object<K>) -> bool + Send + 'static, handler: H) -> Self {
        Self { filter: Box::new(filter), handler }
    }
}

impl<K: 'static, H: ResourceEventHandler<K>> ResourceEventHandler<K> for FilteringResourceEventHandler<K, H> {
    fn on_add(&mut self, object: &Object<K>, initial: bool) {
        if (self.filter)(object) {
            self.handler.on_add(object, initial);
        }
    }

    fn on_update(&mut self, old: &Object<K>, new: &Object<K>) {
        match ((self.filter)(old), (self.filter)(new)) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(old, false),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, object: &Object<K>, tombstone: bool) {
        if (self.filter)(object) {
            self.handler.on_delete(object, tombstone);
        }
    }
}

impl<K> Default for ResourceEventHandlerFuncs<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Default for ResourceEventHandlerDetailedFuncs<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for ResourceEventHandlerFuncs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceEventHandlerFuncs").finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for ResourceEventHandlerDetailedFuncs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceEventHandlerDetailedFuncs").finish_non_exhaustive()
    }
}

impl<K, H: fmt::Debug> fmt::Debug for FilteringResourceEventHandler<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteringResourceEventHandler").field("handler", &self.handler).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "handler_tests.rs"]
mod tests;

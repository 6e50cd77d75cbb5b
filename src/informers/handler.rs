//! client-go's `ResourceEventHandler`, its two bags of functions and its filter.
//!
//! What differs, and why:
//! - *A tombstone is a flag*, never a wrapper (`DeletedFinalStateUnknown`) that a handler must not forget to unwrap:
//!   `on_delete` always gets an object, if only the last state that was known.
//! - *The object is always there and always of the handler's kind*, so no handler needs a type assertion.
//! - *`initial` and `tombstone` are arguments* of the trait; [`ResourceEventHandlerFuncs`] leaves them out, as
//!   client-go's does, and [`ResourceEventHandlerDetailedFuncs`] passes them on.

use std::fmt;

use informer_hub_types::{Dynamic, Notification, Object};

/// What is called for each notification of one subscription.
///
/// # Ordering
/// Never called twice at once. For one object, in the order in which it changed; between objects, none is promised.
pub trait ResourceEventHandler<K = Dynamic>: Send + 'static {
    /// An object is new to this handler; `initial` if it was there before the handler or the informer was.
    fn on_add(&mut self, object: &Object<K>, initial: bool);
    /// An object changed, or is repeated by a resync: then both have the same version.
    fn on_update(&mut self, old: &Object<K>, new: &Object<K>);
    /// An object is gone; with `tombstone` its deletion was not seen, so `object` may be older than its last state.
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

/// Tells a handler of one notification. [`Notification::Synced`] is about no object, and ignored.
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

/// A handler of up to three closures; what has none is ignored.
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
    /// Ignores everything.
    #[must_use]
    pub fn new() -> Self {
        Self(ResourceEventHandlerDetailedFuncs::new())
    }

    /// Called with each object that is new; replaces an earlier closure.
    #[must_use]
    pub fn on_add(self, mut f: impl FnMut(&Object<K>) + Send + 'static) -> Self {
        Self(self.0.on_add(move |object, _| f(object)))
    }

    /// Called with the old and the new state; replaces an earlier closure.
    #[must_use]
    pub fn on_update(self, f: impl FnMut(&Object<K>, &Object<K>) + Send + 'static) -> Self {
        Self(self.0.on_update(f))
    }

    /// Called with the last known state of what is gone; replaces an earlier closure.
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

/// [`ResourceEventHandlerFuncs`] whose `on_add` is told of `initial`, and whose `on_delete` of `tombstone`.
pub struct ResourceEventHandlerDetailedFuncs<K = Dynamic> {
    add: OnFlagged<K>,
    update: OnUpdate<K>,
    delete: OnFlagged<K>,
}

impl<K> ResourceEventHandlerDetailedFuncs<K> {
    /// Ignores everything.
    #[must_use]
    pub fn new() -> Self {
        Self { add: None, update: None, delete: None }
    }

    /// Called with each object that is new, and whether it was there before; replaces an earlier closure.
    #[must_use]
    pub fn on_add(mut self, f: impl FnMut(&Object<K>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(f));
        self
    }

    /// Called with the old and the new state; replaces an earlier closure.
    #[must_use]
    pub fn on_update(mut self, f: impl FnMut(&Object<K>, &Object<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(f));
        self
    }

    /// Called with the last known state of what is gone, and whether that is a tombstone; replaces an earlier closure.
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

/// Shows a handler only what passes a filter: an update that begins to pass is an addition (never an initial one), one
/// that ceases to is a deletion of the old state (never a tombstone).
///
/// A deletion is judged by the state that it carries, as client-go judges it: where that state no longer passes though
/// the one before it did, the handler is not told. A subscription's own filter ([`ObjectFilter`]) has the store to ask,
/// and tells it; prefer that one where namespace and labels are enough.
///
/// [`ObjectFilter`]: crate::cache::ObjectFilter
pub struct FilteringResourceEventHandler<K, H> {
    filter: Filter<K>,
    handler: H,
}

impl<K, H> FilteringResourceEventHandler<K, H> {
    /// `handler`, told only of what `filter` lets pass. The filter must answer alike for equal states.
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

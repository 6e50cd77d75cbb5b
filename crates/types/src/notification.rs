//! What a listener is told.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{ApiResource, ClusterLabels, ClusterName, CodecError, ObjectKey, Scope, StoredObject};

/// Stands for "any kind": objects of it are read as JSON.
#[derive(Clone, Copy, Debug)]
pub enum Dynamic {}

/// Where objects come from: one informer of one cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The cluster.
    pub cluster: ClusterName,
    /// The cluster's labels.
    pub cluster_labels: ClusterLabels,
    /// The resource.
    pub resource: ApiResource,
    /// The part of the resource that the informer watches.
    pub scope: Scope,
}

/// Stored bytes could not be read as what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The object does not fit the Rust type; the type's owner can fix it.
    #[error("object {key} does not fit the type")]
    Mismatch {
        /// Which object.
        key: ObjectKey,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The body is not there: the hub's memory limit leaves room for heads only ([`MemoryStep::Heads`]). Whoever runs the
    /// hub can raise the limit.
    ///
    /// [`MemoryStep::Heads`]: super::MemoryStep::Heads
    #[error("the body of {key} is not kept: the hub's memory limit has room for its head only")]
    NotKept {
        /// Which object.
        key: ObjectKey,
    },
    /// The stored bytes are damaged: a fault of this program or of the machine.
    #[error("object bytes are damaged")]
    Damaged(#[source] CodecError),
}

/// An object of a cluster, as a handle: cloning counts two references, decoding happens when asked for.
pub struct Object<K = Dynamic> {
    origin: Arc<Origin>,
    stored: Arc<StoredObject>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Object<K> {
    /// A handle to `stored`, which came from `origin`.
    #[must_use]
    pub fn new(origin: Arc<Origin>, stored: Arc<StoredObject>) -> Self {
        Self { origin, stored, kind: PhantomData }
    }

    /// The informer it came from.
    #[must_use]
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The cluster it lives in.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.origin.cluster
    }

    /// The stored form, shared.
    #[must_use]
    pub fn stored(&self) -> &Arc<StoredObject> {
        &self.stored
    }

    /// The same object read as another kind; nothing is checked before it is decoded.
    #[must_use]
    pub fn cast<L>(self) -> Object<L> {
        Object { origin: self.origin, stored: self.stored, kind: PhantomData }
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.stored.key().name()
    }

    /// `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.stored.key().namespace()
    }
}

impl<K: DeserializeOwned> Object<K> {
    /// The object as its Rust type. Costs a decode each time (about 45 µs for a 10 KB pod): keep the result.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes do not fit the type.
    pub fn decode(&self) -> Result<K, DecodeError> {
        self.stored.typed()
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.origin), Arc::clone(&self.stored))
    }
}

impl<K> Deref for Object<K> {
    type Target = StoredObject;
    fn deref(&self) -> &StoredObject {
        &self.stored
    }
}

impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.stored.resource_version();
        write!(f, "{}/{} {}@{version}", self.origin.cluster, self.origin.resource.gvr, self.stored.key())
    }
}

/// One thing a listener is told about one object, or that a first list is complete.
///
/// # Ordering
/// For one object of one informer, in the order in which it happened. Between objects, none is promised.
pub enum Notification<K = Dynamic> {
    /// The object is new to this listener.
    Added {
        /// The object.
        object: Object<K>,
        /// Whether it was there already when the listener came (or when the informer made its first list).
        initial: bool,
    },
    /// The object changed (or, with `resync`, is repeated unchanged because this listener asked for it).
    Updated {
        /// The state that this listener was told last.
        old: Object<K>,
        /// The state now.
        new: Object<K>,
        /// Whether this is a resync: nothing changed.
        resync: bool,
    },
    /// The object is gone.
    Deleted {
        /// Its last known state.
        object: Object<K>,
        /// Whether the deletion itself was not seen, so that the last states before it may be missing.
        tombstone: bool,
    },
    /// Every object of the informer's first list has been told. Once per informer and listener.
    Synced(Arc<Origin>),
}

impl<K> Notification<K> {
    /// The object in its newest state; `None` for [`Self::Synced`].
    #[must_use]
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Added { object, .. } | Self::Deleted { object, .. } | Self::Updated { new: object, .. } => {
                Some(object)
            }
            Self::Synced(_) => None,
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Arc<Origin> {
        match self {
            Self::Synced(origin) => origin,
            Self::Added { object, .. } | Self::Deleted { object, .. } | Self::Updated { new: object, .. } => {
                object.origin()
            }
        }
    }

    /// The same notification read as another kind.
    #[must_use]
    pub fn cast<L>(self) -> Notification<L> {
        match self {
            Self::Added { object, initial } => Notification::Added { object: object.cast(), initial },
            Self::Updated { old, new, resync } => Notification::Updated { old: old.cast(), new: new.cast(), resync },
            Self::Deleted { object, tombstone } => Notification::Deleted { object: object.cast(), tombstone },
            Self::Synced(origin) => Notification::Synced(origin),
        }
    }
}

impl<K> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: object.clone(), initial: *initial },
            Self::Updated { old, new, resync } => Self::Updated { old: old.clone(), new: new.clone(), resync: *resync },
            Self::Deleted { object, tombstone } => Self::Deleted { object: object.clone(), tombstone: *tombstone },
            Self::Synced(origin) => Self::Synced(Arc::clone(origin)),
        }
    }
}

impl<K> fmt::Debug for Notification<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial } => write!(f, "Added({object:?}, initial: {initial})"),
            Self::Updated { old, new, resync } => {
                write!(f, "Updated({new:?}, from: {}, resync: {resync})", old.resource_version())
            }
            Self::Deleted { object, tombstone } => write!(f, "Deleted({object:?}, tombstone: {tombstone})"),
            Self::Synced(origin) => write!(f, "Synced({}/{})", origin.cluster, origin.resource.gvr),
        }
    }
}

/// Notifications of one informer for one listener, in order: what travels between actors.
///
/// A lone event travels alone; a backlog travels in hundreds.
#[derive(Clone, Debug)]
pub struct Notifications<K = Dynamic>(
    /// Oldest first; never empty.
    pub Vec<Notification<K>>,
);

impl<K: 'static> actix::Message for Notifications<K> {
    type Result = ();
}

impl<K: 'static> actix::Message for Notification<K> {
    type Result = ();
}

//! Owner chains of objects, and the index of owner UIDs.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::index_errors::IndexError;
use crate::indexers::IndexFn;
use crate::snapshot::Snapshot;
use informer_hub_query::Extractor;
use informer_hub_types::{DecodeError, FieldPath, Members, Object, ObjectKey, SharedStr, StoredObject, Uid};

/// Name of the index of owner UIDs, which answers `OwnedBy` conditions. Its function is [`owner_index`].
pub const OWNER_INDEX: &str = "owner-uid";

/// Maximum number of owners in a chain, which limits the work for malicious chains. Chains made by Kubernetes have
/// three or four owners.
const MAX_LINKS: usize = 32;

static REFERENCES: LazyLock<Reading> = LazyLock::new(|| Reading::of("metadata.ownerReferences[*]"));
static UIDS: LazyLock<Reading> = LazyLock::new(|| Reading::of("metadata.ownerReferences[*].uid"));

/// A path, prepared for reading it in many objects.
struct Reading {
    path: FieldPath,
    extractor: Extractor,
    members: Members,
}

impl Reading {
    fn of(text: &str) -> Self {
        let path: FieldPath = text.parse().expect("the path is valid");
        let (extractor, members) = (Extractor::new(std::slice::from_ref(&path)), Members::new([&path]));
        Self { path, extractor, members }
    }
}

/// Returns the path of an object's owner references.
pub(super) fn references() -> &'static FieldPath {
    &REFERENCES.path
}

/// An entry of an object's `metadata.ownerReferences`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerRef {
    /// `apiVersion` of the owner.
    pub api_version: Box<str>,
    /// Kind of the owner.
    pub kind: Box<str>,
    /// Name of the owner.
    pub name: Box<str>,
    /// UID of the owner.
    pub uid: Uid,
    /// Whether the owner is the controller of the object.
    pub controller: bool,
}

impl OwnerRef {
    /// Returns the owner references of an object in order. Malformed ones are left out.
    ///
    /// # Errors
    /// [`OwnerChainError::Unreadable`], [`OwnerChainError::NotKept`].
    pub fn all_of(object: &StoredObject) -> Result<Vec<Self>, OwnerChainError> {
        let json = object.json_with(&REFERENCES.members).map_err(|error| match error {
            DecodeError::NotKept { key } => OwnerChainError::NotKept(key),
            _ => OwnerChainError::Unreadable,
        })?;
        let values = REFERENCES.extractor.extract(&json).map_err(|_| OwnerChainError::Unreadable)?;
        Ok(values.iter().flatten().filter_map(Self::read).collect())
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        Some(Self {
            api_version: text("apiVersion")?.into(),
            kind: text("kind")?.into(),
            name: text("name")?.into(),
            uid: Uid::new(text("uid")?),
            controller: value.get("controller").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// Returns the API group of the owner; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns whether the objects of a snapshot have the owner's kind and API group, in any API version.
    #[must_use]
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let resource = snapshot.resource();
        *resource.kind == *self.kind && resource.gvr.group == self.group()
    }
}

/// The owners of an object, nearest first.
#[derive(Debug)]
pub struct OwnerChain {
    /// Owners in order: the first owns the given object, and each further one owns the owner before it. If an object
    /// has several owners, its controller is followed or, without a controller, its first owner.
    pub owners: Vec<Object>,
    /// Why the chain ends before its root; `None` if it is complete.
    pub broken: Option<OwnerChainError>,
}

/// Reason why a chain of owners is incomplete.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OwnerChainError {
    /// The owner's kind is not watched.
    #[error("cannot look up {} {} {:?}: the hub has no cache of that kind", .0.api_version, .0.kind, .0.name)]
    Unwatched(OwnerRef),
    /// The cache has no object with the name of the owner: it was deleted, or is not known yet.
    #[error("{} {} {:?} does not exist", .0.api_version, .0.kind, .0.name)]
    Missing(OwnerRef),
    /// The owner was replaced: the object that has its name now has another UID.
    #[error("{} {} {:?} was replaced by an object with UID {found}", reference.api_version, reference.kind, reference.name)]
    Replaced {
        /// The reference to the owner.
        reference: OwnerRef,
        /// UID of the object that has the owner's name now.
        found: Uid,
    },
    /// The owner is the object itself, or already in the chain.
    #[error("{} {} {:?} owns itself", .0.api_version, .0.kind, .0.name)]
    Cycle(OwnerRef),
    /// The chain exceeds the maximum length.
    #[error("the chain of owners has more than {MAX_LINKS} objects")]
    TooLong,
    /// An object's body is not in memory, because the hub's memory limit leaves no room for it.
    #[error("the hub's memory limit leaves no room for the body of {0}, so its owners are not known")]
    NotKept(ObjectKey),
    /// An object's body is damaged.
    #[error("the stored body of an object in the chain of owners is damaged, so its owners are not known")]
    Unreadable,
}

/// Follows the owners of an object up to the root. Each owner is in the cluster of the object, and in its namespace or
/// cluster-scoped. `snapshots` has the snapshot of each resource whose objects may be owners.
#[must_use]
pub fn owner_chain(object: &Object, snapshots: &[Arc<Snapshot>]) -> OwnerChain {
    let mut chain = OwnerChain { owners: Vec::new(), broken: None };
    let mut at = object.clone();
    loop {
        let found = next_owner(&at, snapshots).and_then(|next| match next {
            Some((reference, _)) if reference.uid == *object.uid() => Err(OwnerChainError::Cycle(reference)),
            Some((reference, _)) if chain.owners.iter().any(|owner| *owner.uid() == reference.uid) => {
                Err(OwnerChainError::Cycle(reference))
            }
            Some(_) if chain.owners.len() == MAX_LINKS => Err(OwnerChainError::TooLong),
            next => Ok(next.map(|(_, owner)| owner)),
        });
        match found {
            Ok(Some(owner)) => {
                chain.owners.push(owner.clone());
                at = owner;
            }
            Ok(None) => return chain,
            Err(broken) => {
                chain.broken = Some(broken);
                return chain;
            }
        }
    }
}

fn next_owner(object: &Object, snapshots: &[Arc<Snapshot>]) -> Result<Option<(OwnerRef, Object)>, OwnerChainError> {
    let references = OwnerRef::all_of(object)?;
    let controller = references.iter().position(|reference| reference.controller).unwrap_or(0);
    let Some(reference) = references.into_iter().nth(controller) else { return Ok(None) };
    let mut found = None;
    let mut is_watched = false;
    for snapshot in snapshots.iter().filter(|snapshot| reference.is_of(snapshot)) {
        is_watched = true;
        let namespace = if snapshot.resource().namespaced { object.namespace().unwrap_or_default() } else { "" };
        let Some(owner) = snapshot.get(object.cluster(), &ObjectKey::new(namespace, &reference.name)) else { continue };
        if *owner.uid() == reference.uid {
            return Ok(Some((reference, owner)));
        }
        found = Some(owner.uid().clone());
    }
    Err(match found {
        Some(found) => OwnerChainError::Replaced { reference, found },
        None if is_watched => OwnerChainError::Missing(reference),
        None => OwnerChainError::Unwatched(reference),
    })
}

/// Returns the index function of owner UIDs, which answers `OwnedBy`.
#[must_use]
pub fn owner_index() -> IndexFn {
    IndexFn::new(|object| {
        let json = object.json_with(&UIDS.members)?;
        let values = UIDS.extractor.extract(&json).map_err(|error| IndexError(error.to_string()))?;
        Ok(values.iter().flatten().filter_map(Value::as_str).map(SharedStr::from).collect())
    })
}

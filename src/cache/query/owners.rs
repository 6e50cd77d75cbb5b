//! Who owns an object, up to the one that nobody owns; and the index that says what an object owns.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::cache::indexers::{IndexError, IndexFn};
use crate::cache::snapshot::Snapshot;
use informer_hub_query::Extractor;
use informer_hub_types::{DecodeError, FieldPath, Object, ObjectKey, SharedStr, StoredObject, Uid};

/// A longer chain is cut: Kubernetes' own have three or four links.
const MAX_LINKS: usize = 32;

static REFERENCES: LazyLock<Extractor> = LazyLock::new(|| Extractor::new(&[path("metadata.ownerReferences[*]")]));
static UIDS: LazyLock<Extractor> = LazyLock::new(|| Extractor::new(&[path("metadata.ownerReferences[*].uid")]));

fn path(text: &str) -> FieldPath {
    text.parse().expect("it is a path")
}

/// One of an object's `metadata.ownerReferences`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerRef {
    /// The owner's `apiVersion`.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Uid,
    /// Whether it is the one that controls the object.
    pub controller: bool,
}

impl OwnerRef {
    /// The owner references of an object, in their order. What is none is left out.
    ///
    /// # Errors
    /// [`Broken::Unreadable`], [`Broken::NotKept`].
    pub fn all_of(object: &StoredObject) -> Result<Vec<Self>, Broken> {
        let json = object.json().map_err(|error| match error {
            DecodeError::NotKept { key } => Broken::NotKept(key),
            _ => Broken::Unreadable,
        })?;
        let values = REFERENCES.extract(&json).map_err(|_| Broken::Unreadable)?;
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

    /// The group of its API version; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether a resource has objects of its kind, whatever their version.
    #[must_use]
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let resource = snapshot.resource();
        *resource.kind == *self.kind && resource.gvr.group == self.group()
    }
}

/// The owners of an object, the nearest first.
#[derive(Debug)]
pub struct Chain {
    /// Who they are: the controller of each, or its first owner where it has none.
    pub owners: Vec<Object>,
    /// Why it ends before the one that nobody owns; `None` where that is the last.
    pub broken: Option<Broken>,
}

/// Why a chain of owners ends early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// Nobody watches the owner's kind.
    #[error("nothing is known of {} {} {:?}: the hub has no cache of that kind", .0.api_version, .0.kind, .0.name)]
    Unwatched(OwnerRef),
    /// The cache has no such object: it is gone, or not known yet.
    #[error("{} {} {:?} is not there", .0.api_version, .0.kind, .0.name)]
    Missing(OwnerRef),
    /// Another object has taken its name.
    #[error("{} {} {:?} is another object by now, of UID {found}", reference.api_version, reference.kind, reference.name)]
    Replaced {
        /// Who was named.
        reference: OwnerRef,
        /// Who is there.
        found: Uid,
    },
    /// It owns itself, by others.
    #[error("{} {} {:?} owns itself", .0.api_version, .0.kind, .0.name)]
    Cycle(OwnerRef),
    /// There are more owners than anybody has.
    #[error("the chain of owners is longer than {MAX_LINKS}")]
    TooLong,
    /// An object's body is not kept: the hub's memory limit has room for its head only.
    #[error("the body of {0} is not kept, so its owners are not known")]
    NotKept(ObjectKey),
    /// An object's bytes are damaged.
    #[error("an object on the way cannot be read")]
    Unreadable,
}

/// Follows the owners of an object up to the one that nobody owns. `snapshots`: those of all resources that may hold an
/// owner; an owner is looked for in its dependent's cluster, in its namespace or in none.
#[must_use]
pub fn owner_chain(object: &Object, snapshots: &[Arc<Snapshot>]) -> Chain {
    let mut chain = Chain { owners: Vec::new(), broken: None };
    let mut at = object.clone();
    loop {
        let found = next_owner(&at, snapshots).and_then(|next| match next {
            Some((reference, _)) if reference.uid == *object.uid() => Err(Broken::Cycle(reference)),
            Some((reference, _)) if chain.owners.iter().any(|owner| *owner.uid() == reference.uid) => {
                Err(Broken::Cycle(reference))
            }
            Some(_) if chain.owners.len() == MAX_LINKS => Err(Broken::TooLong),
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

fn next_owner(object: &Object, snapshots: &[Arc<Snapshot>]) -> Result<Option<(OwnerRef, Object)>, Broken> {
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
        Some(found) => Broken::Replaced { reference, found },
        None if is_watched => Broken::Missing(reference),
        None => Broken::Unwatched(reference),
    })
}

/// The index of an object's owners, by their UIDs: what `OwnedBy` is answered from.
#[must_use]
pub fn owner_index() -> IndexFn {
    IndexFn::new(|object| {
        let json = object.json()?;
        let values = UIDS.extract(&json).map_err(|error| IndexError(error.to_string()))?;
        Ok(values.iter().flatten().filter_map(Value::as_str).map(SharedStr::from).collect())
    })
}

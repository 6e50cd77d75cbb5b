//! Objects that an object owns, directly and indirectly, over all cached resources.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;

use crate::api::kubernetes::{CacheInfo, Fleet};
use crate::api::v1::{Failure, Sight};
use crate::cache::{Bounds, OwnerRef, Query};
use informer_hub_access::Verb;
use informer_hub_query::Expr;
use informer_hub_types::{ClusterSelector, Object, Uid};

/// Maximum number of objects in the tree that an object owns, without the object itself.
pub(super) const MOST: usize = 1000;

/// Maximum number of levels of the tree that an object owns.
const LEVELS: usize = 16;

/// Maximum number of owners whose children one query searches for.
const OWNERS: usize = 100;

/// Maximum number of concurrent queries.
const AT_ONCE: usize = 4;

/// Time limit of one query.
const WITHIN: Duration = Duration::from_secs(5);

/// Objects that an object owns, directly and indirectly.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// Children by UID of their owner, in the order of resource, namespace and name.
    pub(super) of: HashMap<Uid, Vec<Object>>,
    /// Whether the tree has more objects or levels than are returned.
    pub(super) more: bool,
}

/// Returns the objects that `root` owns, directly and indirectly, found level by level. Each cache answers from its
/// index of owners, which its first query builds.
pub(super) async fn children_of(
    fleet: &dyn Fleet,
    root: &Object,
    caches: &[CacheInfo],
    sight: &Sight,
) -> Result<Children, Failure> {
    let mut found = Children::default();
    let mut known: HashSet<Uid> = [root.uid().clone()].into();
    let mut level = vec![root.clone()];
    for _ in 0..LEVELS {
        let mut next = Vec::new();
        for owners in level.chunks(OWNERS) {
            let queries = caches.iter().map(|cache| {
                let query = query_of(root, owners);
                async move { (cache, fleet.query(cache, query).await) }
            });
            let mut answers = stream::iter(queries.collect::<Vec<_>>()).buffered(AT_ONCE);
            while let Some((_, answer)) = answers.next().await {
                let answer = answer?;
                found.more |= answer.more;
                next.extend(answer.items);
            }
        }
        sight.retain(Verb::List, &mut next).await;
        level = add(&mut found, &mut known, &level, next);
        if level.is_empty() || found.more {
            return Ok(found);
        }
    }
    found.more = true;
    Ok(found)
}

/// Adds children below their owners, except those that are already in the tree. Returns the added children.
fn add(found: &mut Children, known: &mut HashSet<Uid>, owners: &[Object], children: Vec<Object>) -> Vec<Object> {
    let mut added = Vec::new();
    for child in children {
        if known.len() > MOST {
            found.more = true;
            break;
        }
        let references = OwnerRef::all_of(child.stored()).unwrap_or_default();
        let mut owners_of =
            references.iter().filter(|reference| owners.iter().any(|owner| *owner.uid() == reference.uid));
        let Some(owner) = owners_of.next() else { continue };
        // A child is listed below its first owner only, so that a tree has each object once.
        if known.insert(child.uid().clone()) {
            found.of.entry(owner.uid.clone()).or_default().push(child.clone());
            added.push(child);
        }
    }
    added
}

/// Returns the query for the children of `owners`, which are `root` or objects below it. If `root` has a namespace,
/// only that namespace is searched, because an object in a namespace owns only objects of the same namespace.
fn query_of(root: &Object, owners: &[Object]) -> Query {
    let any = owners.iter().map(|owner| Expr::OwnedBy(owner.uid().clone())).collect();
    let query = Query::matching(Expr::Or(any)).in_clusters(ClusterSelector::Names(vec![root.cluster().clone()]));
    let query = match root.namespace() {
        Some(namespace) => query.in_namespace(namespace),
        None => query,
    };
    let limit = NonZeroUsize::new(MOST).unwrap_or(NonZeroUsize::MIN);
    query.limit(limit).within(Bounds { within: WITHIN, ..Bounds::default() })
}

//! Search for the cache of a resource by its name in a request.

use std::collections::BTreeSet;

use super::failure::Failure;
use super::sight::Sight;
use crate::api::kubernetes::{CacheInfo, Fleet, view_rank};
use informer_hub_types::{Gvr, first_names, nearest_name};

/// Returns the cache of a resource that the reader may see.
///
/// The name is as kubectl accepts it: the plural, the singular or the kind in any case, alone (`pods`), with the group
/// (`deployments.apps`), or with version and group (`deployments.v1.apps`). A name alone means the resource of the core
/// group if there is one, else the first group by name.
pub(in crate::api) fn find(fleet: &dyn Fleet, name: &str, sight: &Sight) -> Result<CacheInfo, Failure> {
    let mut caches = visible(fleet, sight);
    let wanted = name.to_lowercase();
    if let Some(found) = caches.iter().position(|cache| is_named(cache, &wanted)) {
        return Ok(caches.swap_remove(found));
    }
    if fleet.caches().iter().any(|cache| is_named(cache, &wanted)) {
        sight.withhold();
    }
    let known: Vec<_> = caches.iter().map(|cache| short_name(&cache.resource.gvr)).collect();
    let nearest = nearest_name(&wanted, known.iter().map(String::as_str), 2);
    Err(Failure::unknown_resource(name, nearest, &first_names(&known)))
}

/// Returns one cache for each resource that the reader may see. Of several caches of a resource, returns the one that
/// keeps the most of each object.
pub(in crate::api) fn find_all(fleet: &dyn Fleet, sight: &Sight) -> Vec<CacheInfo> {
    let mut caches = visible(fleet, sight);
    let mut known = BTreeSet::new();
    caches.retain(|cache| known.insert(cache.resource.gvr.clone()));
    caches
}

/// Returns the caches that the reader may see, ordered by group. Within a group, the caches that keep more of each
/// object come first.
fn visible(fleet: &dyn Fleet, sight: &Sight) -> Vec<CacheInfo> {
    let mut caches = fleet.caches();
    caches.retain(|cache| sight.resource(&cache.resource));
    caches.sort_by_key(|cache| (cache.resource.gvr.group.clone(), view_rank(&cache.view)));
    caches
}

fn is_named(cache: &CacheInfo, wanted: &str) -> bool {
    let gvr = &cache.resource.gvr;
    let (first, rest) = wanted.split_once('.').unwrap_or((wanted, ""));
    let is_it = first == gvr.resource || first == cache.resource.kind.to_lowercase();
    is_it && (rest.is_empty() || rest == gvr.group || rest.split_once('.') == Some((&gvr.version, &gvr.group)))
}

/// Returns the name of a resource as kubectl writes it: its plural, followed by the group unless it is the core group.
pub(in crate::api) fn short_name(gvr: &Gvr) -> String {
    if gvr.group.is_empty() { gvr.resource.to_string() } else { format!("{}.{}", gvr.resource, gvr.group) }
}

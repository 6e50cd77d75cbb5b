//! The cache of a resource by the name that a request writes.

use super::failure::Failure;
use crate::api::kubernetes::{CacheInfo, Fleet, view_rank};
use informer_hub_types::{Gvr, first_names, nearest_name};

/// Returns the cache of a resource that the reader may see.
///
/// The name is as kubectl accepts it: the plural, the singular or the kind in any case, alone (`pods`), with the group
/// (`deployments.apps`), or with version and group (`deployments.v1.apps`). A name alone means the resource of the core
/// group if there is one, else the first group by name.
pub(super) fn find(fleet: &dyn Fleet, name: &str, may_see: impl Fn(&Gvr) -> bool) -> Result<CacheInfo, Failure> {
    let mut caches = fleet.caches();
    caches.retain(|cache| may_see(&cache.resource.gvr));
    caches.sort_by_key(|cache| (cache.resource.gvr.group.clone(), view_rank(&cache.view)));
    let wanted = name.to_lowercase();
    if let Some(found) = caches.iter().position(|cache| is_named(cache, &wanted)) {
        return Ok(caches.swap_remove(found));
    }
    let known: Vec<_> = caches.iter().map(|cache| short_name(&cache.resource.gvr)).collect();
    let nearest = nearest_name(&wanted, known.iter().map(String::as_str), 2);
    Err(Failure::unknown_resource(name, nearest, &first_names(&known)))
}

fn is_named(cache: &CacheInfo, wanted: &str) -> bool {
    let gvr = &cache.resource.gvr;
    let (first, rest) = wanted.split_once('.').unwrap_or((wanted, ""));
    let is_it = first == gvr.resource || first == cache.resource.kind.to_lowercase();
    is_it && (rest.is_empty() || rest == gvr.group || rest.split_once('.') == Some((&gvr.version, &gvr.group)))
}

/// Returns the plural, with the group unless it is the core group.
fn short_name(gvr: &Gvr) -> String {
    if gvr.group.is_empty() { gvr.resource.to_string() } else { format!("{}.{}", gvr.resource, gvr.group) }
}

//! Decides which resources of a cluster are watched, from the configuration and from discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smol_str::SmolStr;

use informer_hub_types::{ApiResource, Catalogue, Gvr, ResourceLookup, ResourcePattern, ResourceRef};

/// Discovery results of one cluster.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryResults {
    /// Resources that the cluster serves now.
    pub catalogue: Arc<Catalogue>,
    /// Names of the cluster's CRDs, each with its `metadata.generation` (zero if it has none); `None` if CRDs cannot be
    /// watched.
    pub definitions: Option<Arc<BTreeMap<SmolStr, u64>>>,
}

/// Decision about one requested resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchDecision {
    /// The resource is served: watch it.
    Watch(ApiResource),
    /// The cluster serves the resource in an API version other than the watched one: move its informer to this version.
    Move(ApiResource),
    /// A different resource (other kind or scope) has taken the place of the watched one: delete the old objects and
    /// watch this resource.
    Renew(ApiResource),
    /// The resource is not served: stop its informer.
    Rest {
        /// Whether the cached objects count as deleted, because the CRD was deleted.
        gone: bool,
        /// Why the resource is not served, for the status and the log.
        why: String,
    },
    /// Discovery is incomplete: change nothing.
    Unknown,
}

/// Returns the name of a resource's CRD: `<plural>.<group>`.
#[must_use]
pub fn definition_of(gvr: &Gvr) -> SmolStr {
    smol_str::format_smolstr!("{}.{}", gvr.resource, gvr.group)
}

/// Decides whether and in which API version the requested resource `written` is watched. `watched` is the resource that
/// this request watches now. `was_defined` is whether a CRD of the watched resource was ever seen.
///
/// If the request names no API group, the group of `watched` is kept, even if another group gets a resource of the same
/// name.
#[must_use]
pub fn decide_watch(
    written: &ResourceRef,
    watched: Option<&ApiResource>,
    was_defined: bool,
    seen: &DiscoveryResults,
) -> WatchDecision {
    let pinned = |watched: &ApiResource| ResourceRef {
        resource: watched.gvr.resource.clone(),
        version: written.version.clone(),
        group: Some(watched.gvr.group.clone()),
    };
    let asked = watched.map_or_else(|| written.clone(), pinned);
    let name = || without_version(&asked);
    match (seen.catalogue.find(&asked), watched) {
        (ResourceLookup::Unknown, _) => WatchDecision::Unknown,
        (ResourceLookup::Resource(found), None) => WatchDecision::Watch(found),
        (ResourceLookup::Resource(found), Some(watched)) => {
            let is_same = |one: &ApiResource, other: &ApiResource| {
                (&one.kind, one.namespaced, &one.gvr.resource) == (&other.kind, other.namespaced, &other.gvr.resource)
            };
            match is_same(watched, &found) {
                true if watched.gvr == found.gvr => WatchDecision::Watch(found),
                true => WatchDecision::Move(found),
                false => WatchDecision::Renew(found),
            }
        }
        (ResourceLookup::OtherVersions(versions), _) => {
            let version = asked.version.as_deref().unwrap_or_default();
            let served = versions.join(", ");
            let why = format!(
                "the cluster does not serve {} in {version}; it serves {served}: name one of these, or no version",
                name()
            );
            WatchDecision::Rest { gone: false, why }
        }
        (ResourceLookup::Nothing, watched) => nothing(written, &name(), watched, was_defined, seen),
    }
}

fn nothing(
    written: &ResourceRef,
    name: &str,
    watched: Option<&ApiResource>,
    was_defined: bool,
    seen: &DiscoveryResults,
) -> WatchDecision {
    let Some(watched) = watched else {
        let nearest = seen.catalogue.nearest(written);
        let suggestion = nearest.first().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        let why = format!("the cluster has no resource {written}{suggestion}");
        return WatchDecision::Rest { gone: false, why };
    };
    let (gone, more) = match &seen.definitions {
        Some(definitions) if definitions.contains_key(&definition_of(&watched.gvr)) => {
            (false, ": its definition exists, but no version of it is served")
        }
        Some(_) if was_defined => (true, ": its definition was deleted"),
        // An aggregated API, or another resource without a CRD: its deletion cannot be detected.
        Some(_) => {
            let why = format!("the cluster has no resource {name} now; its cached objects are kept");
            return WatchDecision::Rest { gone: false, why };
        }
        None => (
            false,
            "; its cached objects are kept, because a deletion cannot be confirmed without permission to list and watch \
             customresourcedefinitions",
        ),
    };
    WatchDecision::Rest { gone, why: format!("the cluster has no resource {name} any more{more}") }
}

/// Formats a reference with its group and without its version.
fn without_version(written: &ResourceRef) -> String {
    ResourceRef { version: None, ..written.clone() }.to_string()
}

/// A configured pattern of resources to watch, and the configuration entry that contains it.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c, U> {
    /// Configuration entry of the pattern, to which the resources of the pattern are assigned.
    pub user: &'c U,
    /// Pattern that selects resources of the cluster.
    pub pattern: &'c ResourcePattern,
}

/// Resources of a cluster that belong to one configured pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Resources to watch, sorted by name, at most the pattern's limit.
    pub watched: Vec<ApiResource>,
    /// Names of matching resources beyond the pattern's limit, sorted.
    pub left_out: Vec<String>,
}

/// Assigns the served resources to patterns, and returns them by configuration entry (`user`). A resource belongs to
/// the most specific pattern that matches it. If several are equally specific, it belongs to the one with the least
/// `user`. Resources in `taken` (API group, plural) are configured by name and belong to no pattern.
#[must_use]
pub fn share<'c, U: Ord + Clone + 'c>(
    claims: impl IntoIterator<Item = Claim<'c, U>>,
    taken: &BTreeSet<(SmolStr, SmolStr)>,
    catalogue: &Catalogue,
) -> BTreeMap<U, Share> {
    let mut claims: Vec<_> = claims.into_iter().collect();
    claims.sort_by_key(|claim| (claim.pattern.groups.breadth(), claim.user));
    let mut shares: BTreeMap<U, Share> = claims.iter().map(|claim| (claim.user.clone(), Share::default())).collect();
    let mut offers = catalogue.resources();
    offers.sort_by_cached_key(|(resource, _)| resource.gvr.to_string());
    for (resource, offer) in offers {
        let gvr = &resource.gvr;
        if taken.contains(&(gvr.group.clone(), gvr.resource.clone())) {
            continue;
        }
        let has = |claim: &&Claim<'c, U>| claim.pattern.has(&gvr.group, &gvr.resource, &offer.others());
        let Some(claim) = claims.iter().find(has) else { continue };
        let share = shares.entry(claim.user.clone()).or_default();
        if share.watched.len() < claim.pattern.limit.get() {
            share.watched.push(resource);
        } else {
            share.left_out.push(gvr.to_string());
        }
    }
    shares
}

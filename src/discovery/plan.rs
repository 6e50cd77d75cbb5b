//! From what is asked for and what is offered to what is watched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smol_str::SmolStr;

use informer_hub_types::{ApiResource, Catalogue, Found, Gvr, ResourcePattern, ResourceRef};

/// What is known of what a cluster offers.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What it offers now.
    pub catalogue: Arc<Catalogue>,
    /// The names of the definitions that there are; `None` where they cannot be watched.
    pub definitions: Option<Arc<BTreeSet<SmolStr>>>,
}

/// What is to become of a resource that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is there, and is watched as this.
    Watch(ApiResource),
    /// It is the same resource in another version: its informer goes on in that.
    Move(ApiResource),
    /// Its definition was deleted and made anew as another: what there was is gone, and this is watched.
    Renew(ApiResource),
    /// It is not there, so that nothing is asked of it.
    Rest {
        /// Whether its objects are gone with its definition.
        gone: bool,
        /// Why it is not there, for whoever asked for it.
        why: String,
    },
    /// Nobody knows: all stays as it is.
    Unknown,
}

/// The name that a definition has: `<plural>.<group>`.
#[must_use]
pub fn definition_of(gvr: &Gvr) -> SmolStr {
    smol_str::format_smolstr!("{}.{}", gvr.resource, gvr.group)
}

/// What is to become of what somebody has written, of which `watched` is watched now, and was defined by a definition that
/// was seen.
///
/// What has been found once stays in its group: a name without one does not move to another that comes to have it.
#[must_use]
pub fn fate(written: &ResourceRef, watched: Option<&ApiResource>, was_defined: bool, seen: &Seen) -> Fate {
    let pinned = |watched: &ApiResource| ResourceRef {
        resource: watched.gvr.resource.clone(),
        version: written.version.clone(),
        group: Some(watched.gvr.group.clone()),
    };
    let asked = watched.map_or_else(|| written.clone(), pinned);
    let name = || plain(&asked);
    match (seen.catalogue.find(&asked), watched) {
        (Found::Unknown, _) => Fate::Unknown,
        (Found::Resource(found), None) => Fate::Watch(found),
        (Found::Resource(found), Some(watched)) => {
            let is_same = |one: &ApiResource, other: &ApiResource| {
                (&one.kind, one.namespaced, &one.gvr.resource) == (&other.kind, other.namespaced, &other.gvr.resource)
            };
            match is_same(watched, &found) {
                true if watched.gvr == found.gvr => Fate::Watch(found),
                true => Fate::Move(found),
                false => Fate::Renew(found),
            }
        }
        (Found::OtherVersions(versions), _) => {
            let version = asked.version.as_deref().unwrap_or_default();
            let served = versions.join(", ");
            let why = format!(
                "the cluster does not serve {} in {version}; it serves {served}: name one of these, or no version",
                name()
            );
            Fate::Rest { gone: false, why }
        }
        (Found::Nothing, watched) => nothing(written, &name(), watched, was_defined, seen),
    }
}

fn nothing(written: &ResourceRef, name: &str, watched: Option<&ApiResource>, was_defined: bool, seen: &Seen) -> Fate {
    let Some(watched) = watched else {
        let nearest = seen.catalogue.nearest(written);
        let meant = nearest.first().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        let why = format!("the cluster has no resource {written}{meant}");
        return Fate::Rest { gone: false, why };
    };
    let (gone, more) = match &seen.definitions {
        Some(definitions) if definitions.contains(&definition_of(&watched.gvr)) => {
            (false, ": its definition is there, and no version of it is served")
        }
        Some(_) if was_defined => (true, ": its definition was deleted"),
        // Of an aggregated API, or never there.
        Some(_) => {
            let why =
                format!("the cluster has no resource {name} now; what was seen of it is kept as it was last seen");
            return Fate::Rest { gone: false, why };
        }
        None => (
            false,
            "; whether it was deleted cannot be told without the right to list and watch customresourcedefinitions, so \
             its objects are kept as they were last seen",
        ),
    };
    Fate::Rest { gone, why: format!("the cluster has no resource {name} any more{more}") }
}

/// With its group, without a version.
fn plain(written: &ResourceRef) -> String {
    ResourceRef { version: None, ..written.clone() }.to_string()
}

/// A pattern that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c, U> {
    /// Who.
    pub user: &'c U,
    /// What.
    pub pattern: &'c ResourcePattern,
}

/// What of a cluster belongs to one pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// What is watched: by name, and no more than the limit.
    pub watched: Vec<ApiResource>,
    /// What is not, for the limit: by name.
    pub left_out: Vec<String>,
}

/// Deals what a cluster offers out to patterns: each resource to the one that is most exact, among equals to the first by
/// user, and none that is `taken` by who names it (group, plural).
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

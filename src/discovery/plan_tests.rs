//! Tests of the decisions about resources: cases and properties.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use proptest::prelude::*;
use smol_str::SmolStr;

use super::{Claim, DiscoveryResults, WatchDecision, decide_watch, share};
use informer_hub_types::{ApiResource, Catalogue, GroupOffer, Gvr, Offer, ResourcePattern, ResourceRef, VersionOffer};

fn offer(plural: &str, kind: &str, namespaced: bool) -> Offer {
    let singular = kind.to_lowercase().into();
    Offer { plural: plural.into(), singular, short_names: Vec::new(), kind: kind.into(), namespaced }
}

/// Builds the discovery results of a cluster with `pods` and with these API versions of the group `example.com`, each
/// with its resources.
fn seen(versions: &[(&str, Vec<Offer>)], definitions: Option<&[&str]>) -> DiscoveryResults {
    let version = |name: &str, resources: Vec<Offer>| VersionOffer { name: name.into(), is_stale: false, resources };
    let core = GroupOffer { name: "".into(), versions: vec![version("v1", vec![offer("pods", "Pod", true)])] };
    let group = GroupOffer {
        name: "example.com".into(),
        versions: versions.iter().map(|(name, resources)| version(name, resources.clone())).collect(),
    };
    let groups = if versions.is_empty() { vec![core] } else { vec![core, group] };
    let definitions = definitions.map(|names| Arc::new(names.iter().map(|name| (SmolStr::from(*name), 1)).collect()));
    DiscoveryResults { catalogue: Arc::new(Catalogue { groups }), definitions }
}

fn widgets() -> Vec<Offer> {
    vec![offer("widgets", "Widget", true)]
}

fn widget(version: &str) -> ApiResource {
    ApiResource { gvr: Gvr::new("example.com", version, "widgets"), kind: "Widget".into(), namespaced: true }
}

fn decide(text: &str, watched: Option<&ApiResource>, was_defined: bool, seen: &DiscoveryResults) -> WatchDecision {
    decide_watch(&text.parse().unwrap(), watched, was_defined, seen)
}

const DEFINED: Option<&[&str]> = Some(&["widgets.example.com"]);

#[test]
fn decision_watches_a_served_version_and_moves_to_another() {
    let (v1, v1beta1) = (widget("v1"), widget("v1beta1"));
    let both = seen(&[("v1", widgets()), ("v1beta1", widgets())], DEFINED);
    assert_eq!(decide("widgets.example.com", None, false, &both), WatchDecision::Watch(v1.clone()));
    assert_eq!(decide("widgets.example.com", Some(&v1), true, &both), WatchDecision::Watch(v1.clone()));
    assert_eq!(decide("widgets.example.com", Some(&v1beta1), true, &both), WatchDecision::Move(v1.clone()));
    assert_eq!(
        decide("widgets.v1beta1.example.com", Some(&v1beta1), true, &both),
        WatchDecision::Watch(v1beta1.clone())
    );
    // A downgrade of the cluster moves the informer back.
    let old = seen(&[("v1beta1", widgets())], DEFINED);
    assert_eq!(decide("widgets.example.com", Some(&v1), true, &old), WatchDecision::Move(v1beta1));
}

#[test]
fn decision_renews_a_resource_of_another_kind_or_scope() {
    for other in [offer("widgets", "Gadget", true), offer("widgets", "Widget", false)] {
        let seen = seen(&[("v1", vec![other.clone()])], DEFINED);
        let found = other.resource("example.com", "v1");
        assert_eq!(decide("widgets.example.com", Some(&widget("v1")), true, &seen), WatchDecision::Renew(found));
    }
}

#[test]
fn decision_deletes_objects_only_if_their_definition_is_gone() {
    let watched = widget("v1");
    let gone = |was_defined: bool, definitions: Option<&[&str]>| match decide(
        "widgets.example.com",
        Some(&watched),
        was_defined,
        &seen(&[], definitions),
    ) {
        WatchDecision::Rest { gone, why } => (gone, why),
        other => panic!("{other:?}"),
    };
    let (is_gone, why) = gone(true, Some(&[]));
    assert!(is_gone && why.ends_with("its definition was deleted"), "{why}");
    for (was_defined, definitions, words) in [
        (true, None, "customresourcedefinitions"),
        (true, DEFINED, "no version of it is served"),
        (false, Some([].as_slice()), "cached objects are kept"),
    ] {
        let (is_gone, why) = gone(was_defined, definitions);
        assert!(!is_gone && why.contains(words), "{why}");
    }
}

#[test]
fn decision_names_the_served_versions_of_an_unserved_one() {
    let seen = seen(&[("v2", widgets()), ("v1", widgets())], DEFINED);
    for watched in [None, Some(widget("v1beta1"))] {
        let WatchDecision::Rest { gone, why } = decide("widgets.v1beta1.example.com", watched.as_ref(), true, &seen)
        else {
            panic!("it is not served")
        };
        assert!(!gone);
        let expected = "the cluster does not serve widgets.example.com in v1beta1; it serves v2, v1: name one of these, \
                        or no version";
        assert_eq!(why, expected);
    }
}

#[test]
fn decision_keeps_a_bare_name_in_its_first_group() {
    let mut seen = seen(&[("v1", widgets())], DEFINED);
    let mut catalogue = Catalogue::clone(&seen.catalogue);
    let earlier = VersionOffer { name: "v1".into(), is_stale: false, resources: widgets() };
    catalogue.groups.insert(1, GroupOffer { name: "a.com".into(), versions: vec![earlier] });
    seen.catalogue = Arc::new(catalogue);
    assert_eq!(decide("widgets", Some(&widget("v1")), true, &seen), WatchDecision::Watch(widget("v1")));
    let WatchDecision::Watch(found) = decide("widgets", None, false, &seen) else { panic!("it is there") };
    assert_eq!(found.gvr.group, "a.com");
}

#[test]
fn decision_is_unknown_while_a_group_does_not_answer() {
    let mut catalogue = Catalogue::clone(&seen(&[("v1", vec![])], None).catalogue);
    catalogue.groups[1].versions[0].is_stale = true;
    let seen = DiscoveryResults { catalogue: Arc::new(catalogue), definitions: Some(Arc::default()) };
    assert_eq!(decide("widgets.example.com", Some(&widget("v1")), true, &seen), WatchDecision::Unknown);
    assert_eq!(decide("widgets.example.com", None, false, &seen), WatchDecision::Unknown);
}

// === patterns ===

const GROUPS: [&str; 5] = ["", "apps", "example.com", "a.example.com", "b.example.com"];
const PLURALS: [&str; 6] = ["secrets", "events", "widgets", "gears", "pods", "deployments"];
const PATTERNS: [&str; 5] = ["*", "*.example.com", "*.*.example.com", "*.apps", "*.a.example.com"];

fn catalogue() -> impl Strategy<Value = Catalogue> {
    let resources = proptest::collection::btree_set(0..PLURALS.len(), 0..PLURALS.len());
    let versions = proptest::collection::vec(resources, 1..3);
    proptest::collection::btree_map(0..GROUPS.len(), versions, 0..GROUPS.len()).prop_map(|groups| {
        let version = |(at, plurals): (usize, &BTreeSet<usize>)| VersionOffer {
            name: ["v1", "v1beta1"][at].into(),
            is_stale: false,
            resources: plurals.iter().map(|plural| offer(PLURALS[*plural], "Kind", true)).collect(),
        };
        let group = |(group, versions): (&usize, &Vec<BTreeSet<usize>>)| GroupOffer {
            name: GROUPS[*group].into(),
            versions: versions.iter().enumerate().map(version).collect(),
        };
        Catalogue { groups: groups.iter().map(group).collect() }
    })
}

fn pattern() -> impl Strategy<Value = ResourcePattern> {
    let excluded = prop_oneof![Just("widgets"), Just("gears.a.example.com"), Just("*.apps"), Just("*.*.example.com")];
    (0..PATTERNS.len(), proptest::collection::vec(excluded, 0..3), 1..6_usize).prop_map(|(groups, exclude, limit)| {
        ResourcePattern {
            groups: PATTERNS[groups].parse().unwrap(),
            exclude: exclude.into_iter().map(|text| text.parse().unwrap()).collect(),
            limit: NonZeroUsize::new(limit).unwrap(),
        }
    })
}

fn deal<'p>(
    patterns: &'p BTreeMap<u8, ResourcePattern>,
    taken: &BTreeSet<(SmolStr, SmolStr)>,
    catalogue: &Catalogue,
) -> BTreeMap<u8, super::Share> {
    let claims = patterns.iter().map(|(user, pattern): (&'p u8, &'p ResourcePattern)| Claim { user, pattern });
    share(claims, taken, catalogue)
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(300))]

    #[test]
    fn share_assigns_each_resource_to_its_most_specific_pattern(
        catalogue in catalogue(),
        patterns in proptest::collection::btree_map(0..4_u8, pattern(), 0..4),
        named in proptest::collection::btree_set((0..GROUPS.len(), 0..PLURALS.len()), 0..4),
    ) {
        let taken: BTreeSet<(SmolStr, SmolStr)> =
            named.iter().map(|(group, plural)| (GROUPS[*group].into(), PLURALS[*plural].into())).collect();
        let shares = deal(&patterns, &taken, &catalogue);
        let means = |pattern: &ResourcePattern, gvr: &Gvr| pattern.may_have(gvr);
        for (resource, _) in catalogue.resources() {
            let gvr = &resource.gvr;
            let name = gvr.to_string();
            let has = |share: &super::Share| share.watched.contains(&resource) || share.left_out.contains(&name);
            let owners: Vec<_> = shares.iter().filter(|(_, share)| has(share)).map(|(user, _)| *user).collect();
            let is_taken = taken.contains(&(gvr.group.clone(), gvr.resource.clone()));
            let is_matched = !is_taken && patterns.values().any(|pattern| means(pattern, gvr));
            prop_assert_eq!(owners.len(), usize::from(is_matched), "{} has owners {:?}", name, owners);
            if let [owner] = owners[..] {
                let mine = &patterns[&owner];
                prop_assert!(means(mine, gvr));
                // No more specific pattern matches.
                let better = |(user, other): (&u8, &ResourcePattern)| {
                    means(other, gvr) && (other.groups.breadth(), user) < (mine.groups.breadth(), &owner)
                };
                prop_assert!(!patterns.iter().any(better), "{} belongs to a more specific pattern", name);
            }
            prop_assert!(!gvr.group.is_empty() || gvr.resource != "secrets" || owners.is_empty(), "secrets belong to no pattern");
        }
        for (user, share) in &shares {
            let limit = patterns[user].limit.get();
            prop_assert!(share.watched.len() <= limit);
            prop_assert!(share.left_out.is_empty() || share.watched.len() == limit);
            let names: Vec<_> = share.watched.iter().map(|it| it.gvr.to_string()).chain(share.left_out.clone()).collect();
            let mut sorted = names.clone();
            sorted.sort();
            prop_assert_eq!(&names, &sorted, "the first by name");
        }
    }

    #[test]
    fn share_of_other_resources_is_stable_within_the_limit(
        catalogue in catalogue(),
        patterns in proptest::collection::btree_map(0..4_u8, pattern(), 1..4),
    ) {
        let patterns: BTreeMap<_, _> = patterns
            .into_iter()
            .map(|(user, pattern)| (user, ResourcePattern { limit: ResourcePattern::LIMIT, ..pattern }))
            .collect();
        let before = deal(&patterns, &BTreeSet::new(), &catalogue);
        let mut more = catalogue;
        let new = VersionOffer { name: "v1".into(), is_stale: false, resources: vec![offer("news", "New", true)] };
        more.groups.push(GroupOffer { name: "new.example.com".into(), versions: vec![new] });
        let after = deal(&patterns, &BTreeSet::new(), &more);
        for (user, share) in &before {
            let kept: Vec<_> = after[user].watched.iter().filter(|it| it.gvr.group != "new.example.com").cloned().collect();
            prop_assert_eq!(&share.watched, &kept);
        }
    }

    #[test]
    fn decision_is_idempotent(
        versions in proptest::collection::vec(any::<bool>(), 0..3),
        written in prop_oneof![Just("widgets.example.com"), Just("widgets.v1.example.com"), Just("widgets")],
        watched in prop_oneof![Just(None), Just(Some("v1")), Just(Some("v1beta1"))],
    ) {
        let names = ["v1", "v1beta1", "v1alpha1"];
        let offered: Vec<_> = versions.iter().enumerate()
            .map(|(at, has)| (names[at], if *has { widgets() } else { Vec::new() }))
            .collect();
        let seen = seen(&offered, DEFINED);
        let written: ResourceRef = written.parse().unwrap();
        let watched = watched.map(widget);
        let next = match decide_watch(&written, watched.as_ref(), true, &seen) {
            WatchDecision::Watch(found) | WatchDecision::Move(found) | WatchDecision::Renew(found) => Some(found),
            WatchDecision::Rest { .. } | WatchDecision::Unknown => None,
        };
        if let Some(found) = next {
            prop_assert_eq!(decide_watch(&written, Some(&found), true, &seen), WatchDecision::Watch(found));
        }
    }
}

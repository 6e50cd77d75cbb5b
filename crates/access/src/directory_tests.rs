//! Tests of the directory of readers.

use super::*;
use crate::rule::ResourceMatch;
use informer_hub_types::{ClusterSelector, Groups};

fn rule(namespace: &str) -> Rule {
    Rule::new(ClusterSelector::All, [namespace], vec![ResourceMatch::Groups(Groups::All)], Vec::new())
}

fn entry(name: &str, identity: Identity) -> DirectoryEntry {
    let (rules, limits) = (vec![rule(name)], ReaderLimits { requests: Some(name.len()), ..ReaderLimits::default() });
    DirectoryEntry { name: name.into(), identity, rules, limits, may_change: false }
}

fn token(text: &str) -> Identity {
    Identity::Token(TokenMac::of(text.as_bytes()))
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|&group| group.into()).collect();
    User { name: name.into(), groups, uid: None, extra: BTreeMap::new() }
}

fn certificate(name: &str, organizations: &[&str]) -> ClientCertificate {
    let organizations = organizations.iter().map(|&name| name.into()).collect();
    ClientCertificate { common_name: name.into(), organizations }
}

fn later() -> Timestamp {
    Timestamp::from_second(4_000_000_000).unwrap()
}

fn rules(reader: &Reader) -> Vec<Rule> {
    reader.grants().rules.to_vec()
}

#[test]
fn token_finds_its_table_only() {
    let directory = Directory::new(vec![entry("a", token("one")), entry("b", token("two"))], true);
    let find = |text: &str| directory.by_token(&TokenMac::of(text.as_bytes()));
    let b = find("two").unwrap();
    assert_eq!((b.name().as_str(), b.origin()), ("b", &ReaderOrigin::Table("b".into())));
    assert_eq!(rules(&b), [rule("b")]);
    assert!(!b.may_change() && !b.grants().reviews && !b.sees_everything(), "a table is no user of a cluster");
    assert!(find("three").is_none() && find("").is_none());
}

#[test]
fn shared_token_is_found() {
    let shared = Directory::new(vec![entry("a", token("x")), entry("b", token("y")), entry("c", token("x"))], false);
    assert_eq!(shared.shared_token(), Some(("a", "c")));
    let group = || Identity::OidcGroup("sre".into());
    assert_eq!(Directory::new(vec![entry("a", group()), entry("b", group())], false).shared_token(), None);
}

#[test]
fn user_has_the_rules_of_all_matching_tables() {
    let mut changing = entry("ops", Identity::OidcGroup("ops".into()));
    changing.may_change = true;
    let tables = vec![
        entry("jane", Identity::OidcUser("jane".into())),
        changing,
        entry("sre", Identity::OidcGroup("sre".into())),
        entry("cert", Identity::CommonName("jane".into())),
        entry("token", token("jane")),
    ];
    let directory = Directory::new(tables, false);
    let jane = directory.by_oidc(user("jane", &["ops"]), later());
    assert_eq!(rules(&jane), [rule("jane"), rule("ops")]);
    assert!(jane.may_change() && jane.limits().requests == Some(4), "the most generous limit");
    assert_eq!(jane.groups(), ["ops", "system:authenticated"]);
    let john = directory.by_oidc(user("john", &["dev"]), later());
    assert!(rules(&john).is_empty() && !john.may_change() && !john.sees_everything());
    assert_eq!(rules(&directory.by_certificate(&certificate("jane", &["ops"]))), [rule("cert")]);
}

#[test]
fn certificate_without_a_table_keeps_all_rights_unless_clusters_are_asked() {
    let tables = || vec![entry("dev", Identity::Organization("dev".into()))];
    let plain = Directory::new(tables(), false);
    let dev = plain.by_certificate(&certificate("jane", &["qa", "dev"]));
    assert!(!dev.sees_everything() && !dev.may_change() && rules(&dev) == [rule("dev")]);
    let other = plain.by_certificate(&certificate("jane", &["ops"]));
    assert!(other.sees_everything() && other.may_change());
    let asking = Directory::new(tables(), true);
    let other = asking.by_certificate(&certificate("jane", &["ops"]));
    assert!(!other.sees_everything() && !other.may_change() && other.grants().reviews);
    assert!(!asking.by_certificate(&certificate("", &["ops"])).grants().reviews, "no user");
}

#[test]
fn service_account_is_of_its_cluster_only() {
    let [eu, us] = ["eu", "us"].map(|name| ClusterName::new(name).unwrap());
    let directory = Directory::new(vec![entry("g", Identity::service_account(eu.clone(), "tools", "grafana"))], true);
    let grafana = || user("system:serviceaccount:tools:grafana", &["system:serviceaccounts"]);
    let own = directory.by_service_account(eu, grafana(), None);
    assert_eq!(rules(&own), [rule("g")]);
    let foreign = directory.by_service_account(us.clone(), grafana(), None);
    assert!(rules(&foreign).is_empty());
    assert_eq!(foreign.origin(), &ReaderOrigin::ServiceAccount { cluster: us });
}

#[test]
fn current_follows_changed_tables() {
    let old = Directory::new(vec![entry("a", token("one")), entry("sre", Identity::OidcGroup("sre".into()))], false);
    let a = old.by_token(&TokenMac::of(b"one")).unwrap();
    let jane = old.by_oidc(user("jane", &["sre"]), later());
    assert_eq!(old.current(&a), Some(a.clone()));
    assert_eq!(old.current(&jane), Some(jane.clone()));
    let same = Directory::new(vec![entry("a", token("one"))], false).replacing(&old);
    assert_eq!(same.current(&a), Some(a.clone()), "unchanged");
    assert!(same.current(&jane).unwrap().grants().rules.is_empty(), "the group's table is gone");
    let replaced = Directory::new(vec![entry("a", token("two"))], false).replacing(&old);
    assert_eq!(replaced.current(&a), None, "another token");
    let again = Directory::new(vec![entry("a", token("two"))], false).replacing(&replaced);
    let a = again.by_token(&TokenMac::of(b"two")).unwrap();
    assert_eq!(again.current(&a), Some(a.clone()));
    assert_eq!(Directory::default().current(&a), None, "the table is gone");
    let removed = Directory::default().replacing(&again);
    let added = Directory::new(vec![entry("a", token("three"))], false).replacing(&removed);
    let first = old.by_token(&TokenMac::of(b"one")).unwrap();
    assert_eq!((added.current(&first), added.current(&a)), (None, None), "a table added again has a new credential");
    let administrator = Reader::administrator();
    assert_eq!(Directory::default().current(&administrator), Some(administrator.clone()));
}

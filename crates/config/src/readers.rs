//! Parser of `[readers.<name>]`: identities, rules and limits.

use std::ops::RangeInclusive;

use figment::value::Value;

use super::clusters::{KnownClusters, selector};
use super::listen::{REQUESTS, WATCHES};
use super::reader_config::{
    AuthorizationConfig, OidcConfig, ReaderConfig, ReaderIdentity, ReaderLimitsConfig, RuleConfig, ServiceAccountConfig,
};
use super::spans::KeyPath;
use super::table::{Checker, Table, kind};
use informer_hub_types::{
    ClusterName, Exclusion, Groups, ResourcePattern, ResourceRef, Selected, check_name, is_dns_label,
};

/// Bounds of `limits.scans`, a reader's number of queries in progress that scan a cache.
pub(super) const SCANS: RangeInclusive<usize> = 1..=64;

/// Bounds of `limits.bytes_per_second`. With less, the first part of a list takes seconds.
pub(super) const BYTES: RangeInclusive<u64> = 64 << 10..=16 << 30;

/// Keys that identify a reader; each reader has exactly one.
pub(super) const IDENTITIES: [&str; 5] = ["token", "certificate", "oidc_group", "oidc_user", "service_account"];

/// Sections of the configuration with which the hub verifies identities of readers. Each kind of identity requires its
/// own: `oidc_group` requires `oidc`, `certificate` requires `certificates`.
#[derive(Clone, Copy)]
pub(super) struct Issuers<'c> {
    pub(super) oidc: Option<&'c OidcConfig>,
    pub(super) authorization: &'c AuthorizationConfig,
    /// Whether the HTTP port requests client certificates.
    pub(super) certificates: bool,
}

/// Reads all readers, sorted by name.
pub(super) fn readers(table: Table<'_>, clusters: KnownClusters<'_>, issuers: Issuers<'_>) -> Vec<ReaderConfig> {
    let checker = table.checker;
    let mut found: Vec<ReaderConfig> = Vec::new();
    for (name, path, value) in table.entries() {
        if let Err(wrong) = check_name("reader name", &name) {
            checker.mistake(&path, format!("is not a valid reader name; use {}", wrong.rule));
        }
        let mut table = Table::new(checker, path.clone(), value);
        let identity = identity(&mut table);
        let allow = allow(&mut table, clusters);
        let change = table.boolean("change").unwrap_or_default();
        let limits = table.table("limits").map(limits).unwrap_or_default();
        table.finish();
        let Some((key, identity)) = identity else { continue };
        if let Some(same) = found.iter().find(|other| other.identity == identity) {
            checker
                .mistake(&path.key(key), format!("is also used by readers.{}; merge the rules of the two", same.name));
        }
        if checker.is_clean(&path) {
            check_issuer(checker, &path.key(key), &identity, issuers);
        }
        found.push(ReaderConfig { name, identity, allow, change, limits });
    }
    found
}

/// Reads the identity of a reader. Returns it with the key that contains it.
fn identity(table: &mut Table<'_>) -> Option<(&'static str, ReaderIdentity)> {
    let is_missing = table.lacks(&IDENTITIES);
    let given = table.chosen(&IDENTITIES);
    if is_missing && given.is_empty() {
        table.checker.mistake(
            &table.path,
            "has no identity; write token = { file = \"reader-token\" }, certificate = { organization = \"sre\" }, \
             oidc_group = \"sre\", oidc_user = \"jane\", or service_account = { cluster = \"…\", namespace = \"…\", \
             name = \"…\" }",
        );
    }
    let token = table.secret("token");
    table.probe_token("token", token.as_ref());
    let certificate = table.table("certificate").and_then(certificate);
    let group = table.text("oidc_group").map(ReaderIdentity::OidcGroup);
    let user = table.text("oidc_user").map(ReaderIdentity::OidcUser);
    let account = table.table("service_account").and_then(service_account);
    let found = [
        ("token", token.map(ReaderIdentity::Token)),
        ("certificate", certificate),
        ("oidc_group", group),
        ("oidc_user", user),
        ("service_account", account.map(ReaderIdentity::ServiceAccount)),
    ];
    found.into_iter().find_map(|(key, identity)| Some((key, identity?)))
}

fn certificate(mut table: Table<'_>) -> Option<ReaderIdentity> {
    const KEYS: [&str; 2] = ["organization", "common_name"];
    let is_missing = table.lacks(&KEYS);
    if table.chosen(&KEYS).is_empty() && is_missing {
        table.checker.mistake(
            &table.path,
            "names no certificate; write { organization = \"sre\" } or { common_name = \"jane\" }",
        );
    }
    let organization = table.text("organization").map(ReaderIdentity::Organization);
    let name = table.text("common_name").map(ReaderIdentity::CommonName);
    table.finish();
    organization.or(name)
}

fn service_account(mut table: Table<'_>) -> Option<ServiceAccountConfig> {
    for key in ["cluster", "namespace", "name"] {
        if table.lacks(&[key]) && !table.has(key) {
            let problem =
                format!("has no {key}; write {{ cluster = \"prod-eu\", namespace = \"tools\", name = \"grafana\" }}");
            table.checker.mistake(&table.path, problem);
            break;
        }
    }
    let cluster = table.parsed::<ClusterName>("cluster");
    let namespace = table.text("namespace");
    if let Some(wrong) = namespace.as_deref().filter(|text| !is_dns_label(text)) {
        table.mistake("namespace", format!("{wrong:?} is not the name of a namespace"));
    }
    let name = table.text("name");
    table.finish();
    Some(ServiceAccountConfig { cluster: cluster?, namespace: namespace?, name: name? })
}

/// Reports a reader's identity as a mistake if the table that would authenticate it is missing, such as `[oidc]`.
fn check_issuer(checker: &Checker<'_>, path: &KeyPath, identity: &ReaderIdentity, issuers: Issuers<'_>) {
    let reviewed = issuers.authorization.token_review.as_ref();
    match identity {
        ReaderIdentity::OidcGroup(_) | ReaderIdentity::OidcUser(_)
            if issuers.oidc.is_none() && checker.is_clean(&KeyPath::default().key("oidc")) =>
        {
            checker.mistake(path, "requires [oidc], which is missing");
        }
        ReaderIdentity::CommonName(_) | ReaderIdentity::Organization(_)
            if !issuers.certificates && checker.is_clean(&KeyPath::default().key("hub").key("tls")) =>
        {
            checker.mistake(path, "requires client_ca_file in [hub.tls], which is missing");
        }
        ReaderIdentity::ServiceAccount(account)
            if reviewed.is_none_or(|it| !it.clusters.contains(&account.cluster))
                && checker.is_clean(&KeyPath::default().key("hub").key("authorization")) =>
        {
            let cluster = &account.cluster;
            let example = format!("[hub.authorization] token_review = {{ clusters = [\"{cluster}\"] }}");
            checker.mistake(path, format!("requires the cluster in token_review; write {example}"));
        }
        _ => {}
    }
}

/// Reads `allow`, a list of rules.
fn allow(table: &mut Table<'_>, clusters: KnownClusters<'_>) -> Vec<RuleConfig> {
    let (checker, path) = (table.checker, table.path.key("allow"));
    let rules = match table.take("allow") {
        None => return Vec::new(),
        Some(Value::Array(_, rules)) => rules,
        Some(other) => {
            let example = "[{ namespaces = [\"shop\"], resources = [\"pods\"] }]";
            checker.mistake(&path, format!("expected a list of rules such as {example}, found {}", kind(&other)));
            return Vec::new();
        }
    };
    let rules = rules.into_iter().enumerate();
    rules.map(|(at, value)| rule(Table::new(checker, path.index(at), value), clusters)).collect()
}

fn rule(mut table: Table<'_>, clusters: KnownClusters<'_>) -> RuleConfig {
    let clusters = selector(&mut table, clusters);
    let namespaces = namespaces(&mut table);
    let resources = resources(&mut table);
    let except = except(&mut table);
    table.finish();
    RuleConfig { clusters, namespaces, resources, except }
}

/// Reads `namespaces`. Returns an empty list, which selects all namespaces, if the key is missing or has `*`.
fn namespaces(table: &mut Table<'_>) -> Vec<String> {
    let Some(texts) = table.texts("namespaces") else { return Vec::new() };
    let (checker, path) = (table.checker, table.path.key("namespaces"));
    if texts.is_empty() && checker.is_clean(&path) {
        checker.mistake(&path, "is empty; remove the key to select all namespaces");
    }
    let is_pattern = |text: &str| {
        text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'*'))
    };
    for (path, text) in texts.iter().filter(|(_, text)| !(is_dns_label(text) || text.contains('*') && is_pattern(text)))
    {
        let problem = format!("{text:?} is not a namespace or a pattern; write one such as \"shop\" or \"team-*\"");
        checker.mistake(path, problem);
    }
    if texts.iter().any(|(_, text)| text == "*") {
        return Vec::new();
    }
    texts.into_iter().map(|(_, text)| text).collect()
}

/// Reads `resources`; if missing, selects all resources except Secrets. Built-in resources get their plural name and
/// group.
fn resources(table: &mut Table<'_>) -> Vec<Selected> {
    let everything = || vec![Selected::Matching(ResourcePattern::new(Groups::All))];
    let (checker, path) = (table.checker, table.path.key("resources"));
    let Some(found) = table.parsed_list::<Selected>("resources") else { return everything() };
    if found.is_empty() && checker.is_clean(&path) {
        checker.mistake(&path, "is empty; remove the key to select all resources except Secrets, or remove the rule");
    }
    let each = found.into_iter().map(|(path, selected)| match selected {
        Selected::One(resource) => Selected::One(without_version(checker, &path, &resource)),
        pattern @ Selected::Matching(_) => pattern,
    });
    each.collect()
}

fn except(table: &mut Table<'_>) -> Vec<Exclusion> {
    let checker = table.checker;
    let found = table.parsed_list::<Exclusion>("except").unwrap_or_default();
    let each = found.into_iter().map(|(path, exclusion)| match exclusion {
        Exclusion::Groups(groups) => {
            if groups == Groups::All {
                checker.mistake(&path, "excludes everything; remove the rule instead");
            }
            Exclusion::Groups(groups)
        }
        Exclusion::Resource(resource) => Exclusion::Resource(without_version(checker, &path, &resource)),
    });
    each.collect()
}

/// Returns a resource with its plural name and group. Reports a version as a mistake, because rights apply to all versions.
fn without_version(checker: &Checker<'_>, path: &KeyPath, resource: &ResourceRef) -> ResourceRef {
    if resource.version.is_some() {
        checker.mistake(path, "has a version, but a right applies to all versions; remove the version");
    }
    resource.canonical()
}

fn limits(mut table: Table<'_>) -> ReaderLimitsConfig {
    let limits = ReaderLimitsConfig {
        requests: table.number("requests", REQUESTS),
        scans: table.number("scans", SCANS),
        watches: table.number("watches", WATCHES),
        bytes_per_second: table.size("bytes_per_second", BYTES),
    };
    table.finish();
    limits
}

//! Parser of `[oidc]` and `[hub.authorization]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::clusters::KnownClusters;
use super::error::suggestion;
use super::reader_config::{AccessReviewConfig, AuthorizationConfig, OidcConfig, TokenReviewConfig};
use super::rules::{is_loopback, url};
use super::spans::KeyPath;
use super::table::{Checker, Table};
use informer_hub_types::ClusterName;

/// Bounds of `cache`: how long a cluster's answer about a user is reused. A longer time delays the effect of a withdrawn
/// right.
pub(super) const CACHE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Accepted values of `mode` in `[hub.authorization.kubernetes]`.
pub(super) const MODES: [(&str, ()); 1] = [("subject-access-review", ())];

pub(super) fn authorization(mut table: Table<'_>) -> AuthorizationConfig {
    let kubernetes = table.table("kubernetes").and_then(kubernetes);
    let token_review = table.table("token_review").map(token_review);
    table.finish();
    AuthorizationConfig { kubernetes, token_review }
}

fn kubernetes(mut table: Table<'_>) -> Option<AccessReviewConfig> {
    if table.lacks(&["mode"]) && !table.has("mode") {
        table.checker.mistake(&table.path, "has no mode; write mode = \"subject-access-review\"");
    }
    let mode = table.choice("mode", "mode", &MODES);
    let cache = table.duration("cache", CACHE).unwrap_or(AccessReviewConfig::default().cache);
    table.finish();
    mode.map(|()| AccessReviewConfig { cache })
}

fn token_review(mut table: Table<'_>) -> TokenReviewConfig {
    let is_missing = table.lacks(&["clusters"]) && !table.has("clusters");
    let path = table.path.key("clusters");
    let clusters = table.parsed_list::<ClusterName>("clusters").unwrap_or_default();
    if is_missing {
        table.checker.mistake(&table.path, "has no clusters; write clusters = [\"prod-eu\"]");
    } else if clusters.is_empty() && table.checker.is_clean(&path) {
        table.checker.mistake(&path, "is empty; remove token_review, or write e.g. [\"prod-eu\"]");
    }
    let audience = table.text("audience");
    let cache = table.duration("cache", CACHE);
    table.finish();
    let review = TokenReviewConfig::new(clusters.into_iter().map(|(_, name)| name).collect());
    let cache = cache.unwrap_or(review.cache);
    TokenReviewConfig { audience, cache, ..review }
}

/// Reports clusters of `token_review` that do not exist. Does nothing if cluster sources may add clusters.
pub(super) fn check_reviewers(checker: &Checker<'_>, config: &AuthorizationConfig, known: KnownClusters<'_>) {
    let path =
        ["hub", "authorization", "token_review", "clusters"].iter().fold(KeyPath::default(), |path, key| path.key(key));
    if known.is_open || known.tables.is_empty() || !checker.is_clean(&path) {
        return;
    }
    let all = || known.tables.iter().map(|cluster| cluster.name.as_str());
    for (at, name) in config.token_review.iter().flat_map(|it| &it.clusters).enumerate() {
        if !known.tables.iter().any(|cluster| cluster.name == *name) {
            let problem = format!("there is no cluster {:?}{}", name.as_str(), suggestion(name.as_str(), all()));
            checker.mistake(&path.index(at), problem);
        }
    }
}

pub(super) fn oidc(mut table: Table<'_>) -> OidcConfig {
    for (key, example) in [("issuer", "https://login.example.com"), ("audience", "informer-hub")] {
        if table.lacks(&[key]) && !table.has(key) {
            table.checker.mistake(&table.path, format!("has no {key}; write {key} = \"{example}\""));
            break;
        }
    }
    let issuer = table.text("issuer");
    if let Some(issuer) = &issuer {
        match url(issuer) {
            Err(problem) => table.mistake("issuer", problem),
            Ok(uri) if uri.scheme_str() == Some("http") && !is_loopback(uri.host().unwrap_or_default()) => {
                table.mistake("issuer", "with http, an attacker can replace the issuer's keys; write https://");
            }
            Ok(uri) if uri.query().is_some() || issuer.contains('#') => {
                table.mistake("issuer", "an issuer has no query and no fragment; remove the text from ? or # on");
            }
            Ok(_) => {}
        }
    }
    let audience = table.text("audience");
    let ca_file = table.file("ca_file");
    table.probe_ca_file(ca_file.as_deref());
    let config = OidcConfig::new(issuer.unwrap_or_default(), audience.unwrap_or_default());
    let config = OidcConfig {
        ca_file,
        username_claim: table.text("username_claim").unwrap_or(config.username_claim),
        groups_claim: table.text("groups_claim").unwrap_or(config.groups_claim),
        username_prefix: table.text("username_prefix").unwrap_or_default(),
        groups_prefix: table.text("groups_prefix").unwrap_or_default(),
        issuer: config.issuer,
        audience: config.audience,
    };
    table.finish();
    // Returned even if a required key is missing, which has been reported: later checks only ask whether `[oidc]` is
    // present.
    config
}

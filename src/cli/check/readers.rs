//! Check of the configured readers: rules that match nothing, readers without rights, and the OIDC issuer.

use std::time::Duration;

use super::report::{Finding, Level};
use crate::app;
use informer_hub_access::Namespaces;
use informer_hub_config::{
    ClusterConfig, Config, HumanDuration, ReaderConfig, ReaderIdentity, ResourceConfig, RuleConfig,
};
use informer_hub_types::{ClusterSelector, Exclusion, Groups, ResourceRef, Selected, built_in};

/// Returns the findings about the `[readers]` tables. `clusters` are those of the configuration and of the cluster
/// sources.
pub(super) fn findings(config: &Config, clusters: &[ClusterConfig]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for reader in &config.readers {
        let mut find = |key: String, problem: String, advice: &str| {
            let about = format!("readers.{}{key}", reader.name);
            findings.push(Finding { level: Level::Warning, about, problem, advice: advice.to_owned() });
        };
        if reader.allow.is_empty() && !is_reviewed(config, reader) {
            let advice = "add a rule such as allow = [{ namespaces = [\"shop\"] }], or remove the reader";
            find(String::new(), "has no rule, so it reads nothing".to_owned(), advice);
        }
        for (at, rule) in reader.allow.iter().enumerate() {
            for (key, problem, advice) in problems(rule, config, clusters) {
                find(format!(".allow[{at}].{key}"), problem, advice);
            }
        }
    }
    findings
}

/// Returns a finding if Secrets are watched, but the hub's HTTP port serves them to no reader.
pub(super) fn unserved_secrets(config: &Config) -> Option<Finding> {
    let service = &config.hub.service;
    let names_secrets = |selected: &Selected| matches!(selected, Selected::One(one) if one.is_secrets());
    let entry = config.resources.iter().find(|entry| names_secrets(&entry.resource))?;
    let is_reader = |reader: &ReaderConfig| {
        is_reviewed(config, reader) || reader.allow.iter().any(|rule| rule.resources.iter().any(names_secrets))
    };
    if !service.read_api.enabled || service.read_api.serve_secrets || config.readers.iter().any(is_reader) {
        return None;
    }
    Some(Finding {
        level: Level::Fine,
        about: format!("resources.{}", entry.name),
        problem: "is not served to clients of the hub, because hub.read_api.serve_secrets is not set".to_owned(),
        advice: "set it, or allow secrets to readers; ignore this if only sinks need them".to_owned(),
    })
}

/// Returns whether a reader's rights are also decided by access reviews in clusters. False for a reader whose token is
/// in the configuration.
fn is_reviewed(config: &Config, reader: &ReaderConfig) -> bool {
    config.hub.service.authorization.kubernetes.is_some() && !matches!(reader.identity, ReaderIdentity::Token(_))
}

/// Returns key, problem and advice for each part (clusters, resources, namespaces) of a reader's rule that matches
/// nothing.
fn problems(
    rule: &RuleConfig,
    config: &Config,
    clusters: &[ClusterConfig],
) -> Vec<(&'static str, String, &'static str)> {
    let mut found = Vec::new();
    let is_selected = |cluster: &&ClusterConfig| rule.clusters.matches(&cluster.name, &cluster.labels);
    let selected: Vec<_> = clusters.iter().filter(is_selected).collect();
    if let ClusterSelector::Names(names) = &rule.clusters {
        for name in names.iter().filter(|name| !clusters.iter().any(|cluster| cluster.name == **name)) {
            let advice = "a source may add one later; otherwise correct the name";
            found.push(("clusters", format!("there is currently no cluster {name}"), advice));
        }
    } else if selected.is_empty() {
        let advice = "a source may add one later; otherwise correct the labels";
        found.push(("clusters", "currently selects no cluster".to_owned(), advice));
    }
    let is_watched =
        |entry: &&ResourceConfig| selected.iter().any(|cluster| entry.clusters.matches(&cluster.name, &cluster.labels));
    let watched: Vec<_> = config.resources.iter().filter(is_watched).collect();
    for one in rule.resources.iter().filter(|one| !watched.iter().any(|entry| may_be(one, entry))) {
        if !selected.is_empty() {
            let problem = format!("no entry of [resources] has {one} in the clusters of the rule");
            found.push(("resources", problem, "add it to [resources], or correct the name"));
        }
    }
    if rule.namespaces.is_empty() {
        return found;
    }
    let about = watched.iter().filter(|entry| rule.resources.iter().any(|one| may_be(one, entry)));
    let known: Option<Vec<_>> =
        about.map(|entry| (!entry.namespaces.is_empty()).then_some(&entry.namespaces)).collect();
    // An entry without namespaces watches all namespaces, including future ones.
    if let Some(known) = known.filter(|known| !known.is_empty()) {
        for written in &rule.namespaces {
            let namespaces = Namespaces::new([written]);
            if !known.iter().copied().flatten().any(|namespace| namespaces.has(namespace)) {
                let problem = format!("no entry of [resources] watches a namespace {written}");
                found.push(("namespaces", problem, "add it to the entry's namespaces, or correct the name"));
            }
        }
    }
    found
}

/// Returns whether a resource that a reader's rule allows may be one that an entry of `[resources]` watches. Also true
/// if this is unknown, because only a cluster could resolve a name.
fn may_be(rule: &Selected, entry: &ResourceConfig) -> bool {
    let named = |resource: &ResourceRef| resource.canonical();
    let is_known = |resource: &ResourceRef| built_in(resource).is_some();
    match (rule, &entry.resource) {
        (Selected::Matching(rule), Selected::One(resource)) => {
            named(resource).group.is_none_or(|group| rule.groups.has(&group))
        }
        (Selected::One(rule), Selected::One(resource)) => {
            // A name that is not built in may be a plural, a kind or a short name.
            let is_unknown = !is_known(rule) && !is_known(resource);
            let (rule, resource) = (named(rule), named(resource));
            (is_unknown || rule.resource == resource.resource)
                && (rule.group.is_none() || resource.group.is_none() || rule.group == resource.group)
        }
        (Selected::One(rule), Selected::Matching(pattern)) => {
            let is_excluded = |one: &Exclusion| *one == Exclusion::Resource(named(rule));
            named(rule).group.is_none_or(|group| pattern.groups.has(&group)) && !pattern.exclude.iter().any(is_excluded)
        }
        (Selected::Matching(rule), Selected::Matching(pattern)) => match (&rule.groups, &pattern.groups) {
            (Groups::One(one), other) | (other, Groups::One(one)) => other.has(one),
            _ => true,
        },
    }
}

/// Checks that the OIDC issuer publishes keys with which the hub can verify tokens. Returns a finding if it does not,
/// and `None` if it does or no issuer is configured.
pub(super) async fn issuer(config: &Config, timeout: Duration) -> Option<Finding> {
    let oidc = config.oidc.as_ref()?;
    let problem = match tokio::time::timeout(timeout, app::check_issuer(oidc)).await {
        Ok(Ok(())) => return None,
        Ok(Err(failure)) => failure.to_string(),
        Err(_) => format!("not finished within {}", HumanDuration(timeout)),
    };
    Some(Finding {
        level: Level::Error,
        about: "oidc.issuer".to_owned(),
        problem: format!("cannot use the keys of {}: {problem}", oidc.issuer),
        advice: "check the address, the CA (oidc.ca_file), and that it serves /.well-known/openid-configuration"
            .to_owned(),
    })
}

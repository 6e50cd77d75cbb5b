//! Parser of `[fleet.shards.<name>]`: rules that divide the informers of a cluster among collectors.

use super::ResourceConfig;
use super::resources::namespaces;
use super::rules::is_cluster_pattern;
use super::spans::KeyPath;
use super::table::{Checker, Table};
use informer_hub_types::{ResourceRef, Selected, ShardName, ShardRule};

/// Reads the shard rules (division of a cluster among collectors), sorted by name. Reports a rule for resources or
/// namespaces that no entry of `[resources]` watches.
pub(super) fn shards(table: Table<'_>, resources: &[ResourceConfig]) -> Vec<ShardRule> {
    let checker = table.checker;
    let mut rules = Vec::new();
    for (name, path, value) in table.entries() {
        let name = ShardName::new(&name).map_err(|wrong| checker.mistake(&path, wrong)).ok();
        let mut table = Table::new(checker, path.clone(), value);
        let clusters = clusters(&mut table);
        let wanted = wanted(&mut table);
        let namespaces = namespaces(&mut table);
        table.finish();
        for (path, resource) in &wanted {
            check(checker, path, resource, &namespaces, resources);
        }
        let wanted = wanted.into_iter().map(|(_, resource)| resource).collect();
        rules.extend(name.map(|name| ShardRule { name, clusters, resources: wanted, namespaces }));
    }
    rules
}

fn clusters(table: &mut Table<'_>) -> Vec<String> {
    let Some(texts) = table.texts("clusters") else { return Vec::new() };
    let checker = table.checker;
    let path = table.path.key("clusters");
    if texts.is_empty() && checker.is_clean(&path) {
        checker.mistake(&path, "selects no cluster; remove the key to select all clusters");
    }
    let is_valid = |(path, text): &(KeyPath, String)| {
        let is_valid = is_cluster_pattern(text);
        if !is_valid {
            checker.mistake(
                path,
                format!("{text:?} is not a cluster name or pattern; write e.g. \"prod-eu\" or \"prod-*\""),
            );
        }
        is_valid
    };
    texts.into_iter().filter(is_valid).map(|(_, text)| text).collect()
}

fn wanted(table: &mut Table<'_>) -> Vec<(KeyPath, ResourceRef)> {
    let is_given = table.has("resources");
    let path = table.path.key("resources");
    let wanted = table.parsed_list("resources").unwrap_or_default();
    if !is_given {
        table.checker.mistake(&table.path, "has no resources; write resources = [\"pods\"]");
    } else if wanted.is_empty() && table.checker.is_clean(&path) {
        table.checker.mistake(&path, "is empty; write a resource such as \"pods\"");
    }
    wanted
}

/// Reports a mistake if no entry of `[resources]` watches the resource `wanted` of a shard rule. Also reports a
/// namespace of the rule that no such entry lists.
fn check(
    checker: &Checker<'_>,
    path: &KeyPath,
    wanted: &ResourceRef,
    namespaces: &[String],
    resources: &[ResourceConfig],
) {
    let may_be = |selected: &Selected| match selected {
        Selected::One(one) => meet(&one.canonical(), &wanted.canonical()),
        Selected::Matching(_) => true,
    };
    let watching: Vec<_> = resources.iter().filter(|resource| may_be(&resource.resource)).collect();
    if watching.is_empty() && !resources.is_empty() {
        checker.mistake(path, format!("no entry of [resources] watches {wanted}"));
        return;
    }
    let is_listed = |namespace: &&String| watching.iter().any(|resource| resource.namespaces.contains(namespace));
    if let Some(missing) = namespaces.iter().find(|namespace| !is_listed(namespace)).filter(|_| !watching.is_empty()) {
        let problem = format!(
            "no entry of [resources] watches {wanted} in namespace {missing:?} by itself; list the namespace there, or \
             remove it here"
        );
        checker.mistake(path, problem);
    }
}

/// Returns whether two references may denote the same resource. A missing version or group matches every one.
fn meet(one: &ResourceRef, other: &ResourceRef) -> bool {
    let agree = |one: Option<&str>, other: Option<&str>| one.zip(other).is_none_or(|(one, other)| one == other);
    one.resource == other.resource
        && agree(one.version.as_deref(), other.version.as_deref())
        && agree(one.group.as_deref(), other.group.as_deref())
}

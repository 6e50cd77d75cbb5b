//! Parser of `[resources.<name>]`, and checks between resources.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::clusters::{KnownClusters, meet, selector};
use super::rules::{field_selector, in_metadata, is_identity};
use super::spans::KeyPath;
use super::table::{Checker, Table, text};
use super::{ClusterConfig, ClusterSelector, Projection, ResourceConfig};
use informer_hub_types::{
    ClusterName, Exclusion, FieldPath, Groups, ResourcePattern, ResourceRef, Selected, built_in, is_dns_label,
};

/// Shortest resync period, as in client-go.
pub(super) const SHORTEST_RESYNC: Duration = Duration::from_secs(1);
/// Longest resync period; a longer one most likely means none.
pub(super) const LONGEST_RESYNC: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bounds of `limit`: how many resources that match a pattern are watched per cluster.
pub(super) const LIMIT: RangeInclusive<usize> = 1..=1000;

/// Reads all resources, sorted by name.
pub(super) fn resources(table: Table<'_>, clusters: KnownClusters<'_>) -> Vec<ResourceConfig> {
    let checker = table.checker;
    let mut found: Vec<ResourceConfig> = Vec::new();
    for (name, path, value) in table.entries() {
        let resource = read_resource(name, Table::new(checker, path.clone(), value), clusters);
        if let Some(resource) = resource {
            check_overlap(checker, &path, &resource, &found, clusters.tables);
            found.push(resource);
        }
    }
    found
}

fn read_resource(name: String, mut table: Table<'_>, clusters: KnownClusters<'_>) -> Option<ResourceConfig> {
    let resource = selected(&name, &mut table);
    let clusters = selector(&mut table, clusters);
    let namespaces = namespaces(&mut table);
    let label_selector = table.parsed("label_selector");
    let field_selector = field(&mut table);
    let resync = table.duration("resync", SHORTEST_RESYNC..=LONGEST_RESYNC);
    let metadata_only = table.boolean("metadata_only").unwrap_or(false);
    let projection = projection(&mut table, metadata_only);
    let indexes = indexes(&mut table, metadata_only);
    table.finish();
    Some(ResourceConfig {
        name,
        resource: resource?,
        clusters,
        namespaces,
        label_selector,
        field_selector,
        resync,
        metadata_only,
        projection,
        indexes,
    })
}

/// Reads the watched resource or pattern from the key `resource`; without this key, from the table's name. For a
/// pattern, also reads the keys `exclude` and `limit`.
fn selected(name: &str, table: &mut Table<'_>) -> Option<Selected> {
    let selected = reference(name, table);
    let (has_exclude, has_limit) = (table.has("exclude"), table.has("limit"));
    let exclude = table.parsed_list::<Exclusion>("exclude");
    let limit = table.number("limit", LIMIT).and_then(NonZeroUsize::new);
    let pattern = match selected? {
        Selected::Matching(pattern) => pattern,
        one @ Selected::One(_) => {
            for (key, _) in [("exclude", has_exclude), ("limit", has_limit)].into_iter().filter(|(_, given)| *given) {
                table.mistake(key, "requires a pattern such as \"*.example.com\"; this is a single resource");
            }
            return Some(one);
        }
    };
    for (path, exclusion) in exclude.iter().flatten() {
        match exclusion {
            Exclusion::Groups(groups) if *groups == Groups::All || *groups == pattern.groups => {
                table.checker.mistake(path, format!("excludes all of {pattern}; remove the entry instead"));
            }
            Exclusion::Resource(resource) if resource.version.is_some() => {
                let problem = "has a version, but an exclusion applies to all versions; remove the version";
                table.checker.mistake(path, problem);
            }
            Exclusion::Groups(_) | Exclusion::Resource(_) => {}
        }
    }
    let exclude = exclude.into_iter().flatten().map(|(_, exclusion)| exclusion).collect();
    let limit = limit.unwrap_or(pattern.limit);
    Some(Selected::Matching(ResourcePattern { exclude, limit, ..pattern }))
}

fn reference(name: &str, table: &mut Table<'_>) -> Option<Selected> {
    if table.has("resource") {
        return table.parsed("resource");
    }
    table.take("resource");
    let wrong = |e| table.checker.mistake(&table.path, format!("{e}; or keep the name and add resource = \"…\""));
    name.parse().map_err(wrong).ok()
}

pub(super) fn namespaces(table: &mut Table<'_>) -> Vec<String> {
    let Some(texts) = table.texts("namespaces") else { return Vec::new() };
    let checker = table.checker;
    let path = table.path.key("namespaces");
    if texts.is_empty() && checker.is_clean(&path) {
        checker.mistake(&path, "is empty; remove the key to select all namespaces");
    }
    let mut found = Vec::new();
    for (path, namespace) in texts {
        if !is_dns_label(&namespace) {
            checker.mistake(
                &path,
                format!(
                    "{namespace:?} is not a namespace; use at most 63 characters out of a-z, 0-9 and '-', the first and \
                     the last a letter or a digit"
                ),
            );
        } else if found.contains(&namespace) {
            checker.mistake(&path, format!("{namespace:?} is in the list twice"));
        } else {
            found.push(namespace);
        }
    }
    found
}

fn field(table: &mut Table<'_>) -> Option<String> {
    let text = table.text("field_selector")?;
    field_selector(&text).map_err(|problem| table.mistake("field_selector", problem)).ok()?;
    Some(text)
}

/// Reads `drop` or `keep`, which exclude each other.
fn projection(table: &mut Table<'_>, metadata_only: bool) -> Projection {
    let both = table.has("drop") && table.has("keep");
    if both {
        table.mistake("keep", "keep and drop exclude each other; remove one of them");
    }
    let dropped = table.parsed_list::<FieldPath>("drop");
    let kept = table.parsed_list::<FieldPath>("keep");
    let checker = table.checker;
    for (at, path) in dropped.iter().flatten().filter(|(_, path)| is_identity(path)) {
        checker.mistake(at, format!("{path} identifies the object and cannot be dropped"));
    }
    for (at, path) in kept.iter().flatten().filter(|(_, path)| metadata_only && !in_metadata(path)) {
        let problem = format!("{path} is not in metadata, and metadata_only requests nothing else; remove the path");
        checker.mistake(at, problem);
    }
    let paths = |list: Vec<(KeyPath, FieldPath)>| list.into_iter().map(|(_, path)| path).collect();
    match (dropped, kept) {
        (_, Some(kept)) => Projection::Keep(paths(kept)),
        (Some(dropped), None) => Projection::Drop(paths(dropped)),
        (None, None) => Projection::default(),
    }
}

fn indexes(table: &mut Table<'_>, metadata_only: bool) -> BTreeMap<String, FieldPath> {
    let Some(indexes) = table.table("indexes") else { return BTreeMap::new() };
    let checker = table.checker;
    let mut found = BTreeMap::new();
    for (name, path, value) in indexes.entries() {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(legal) {
            checker.mistake(&path, "is not a valid index name; use A-Z, a-z, 0-9, '-', '_' and '.'");
        }
        let Some(text) = text(checker, &path, &value) else { continue };
        match text.parse::<FieldPath>() {
            Err(e) => checker.mistake(&path, e),
            Ok(field) if metadata_only && !in_metadata(&field) => checker.mistake(
                &path,
                format!(
                    "{text:?} is not in metadata, and metadata_only requests nothing else; index a path in metadata"
                ),
            ),
            Ok(field) => {
                found.insert(name, field);
            }
        }
    }
    found
}

/// Reports entries that watch the same objects but keep different parts of them. The cache stores each object once.
fn check_overlap(
    checker: &Checker<'_>,
    path: &KeyPath,
    resource: &ResourceConfig,
    earlier: &[ResourceConfig],
    clusters: &[ClusterConfig],
) {
    for other in earlier.iter().filter(|other| other.is_same_resource(resource)) {
        let other_path = KeyPath::default().key("resources").key(&other.name);
        if let Some(pattern) = resource.resource.pattern() {
            check_patterns(checker, path, (resource, pattern), (other, &other_path), clusters);
            continue;
        }
        check_indexes(checker, path, resource, other);
        if !checker.is_clean(path) || !checker.is_clean(&other_path) {
            continue;
        }
        if let Some(cluster) = resource.clash(other, clusters) {
            checker.mistake(
                path,
                format!(
                    "watches the same objects as {other_path} in cluster {cluster}, but keeps other parts of them; \
                     write the same drop, keep and metadata_only in both, or give them other clusters or namespaces",
                ),
            );
        }
    }
}

/// Reports two entries with the same pattern for a cluster. Each resource belongs to one pattern, so the second would match
/// nothing.
fn check_patterns(
    checker: &Checker<'_>,
    path: &KeyPath,
    (resource, pattern): (&ResourceConfig, &ResourcePattern),
    (other, other_path): (&ResourceConfig, &KeyPath),
    clusters: &[ClusterConfig],
) {
    if let Some(cluster) = meet(&resource.clusters, &other.clusters, clusters) {
        let problem = format!(
            "has the same pattern {pattern} for cluster {cluster} as {other_path}; merge both, or select other clusters"
        );
        checker.mistake(path, problem);
    }
}

/// Reports an index that entries of one resource define with different paths. The entries share their indices.
fn check_indexes(checker: &Checker<'_>, path: &KeyPath, resource: &ResourceConfig, other: &ResourceConfig) {
    for (name, field) in &resource.indexes {
        let differs = other.indexes.get(name).is_some_and(|theirs| theirs != field);
        if differs {
            let place = format!("resources.{}.indexes.{name}", other.name);
            let problem = format!("differs from {place} of the same resource; write the same path, or another name");
            checker.mistake(&path.key("indexes").key(name), problem);
        }
    }
}

impl Default for Projection {
    fn default() -> Self {
        Self::Drop("metadata.managedFields".parse().into_iter().collect())
    }
}

impl Projection {
    /// Returns the paths of the projection, which are either kept or dropped.
    #[must_use]
    pub fn paths(&self) -> &[FieldPath] {
        match self {
            Self::Drop(paths) | Self::Keep(paths) => paths,
        }
    }

    /// Returns true for [`Self::Keep`], false for [`Self::Drop`].
    #[must_use]
    pub fn keeps(&self) -> bool {
        matches!(self, Self::Keep(_))
    }
}

impl ResourceConfig {
    /// Creates an entry for a resource in all clusters and namespaces, with defaults for everything else.
    #[must_use]
    pub fn new(name: impl Into<String>, resource: Selected) -> Self {
        Self {
            name: name.into(),
            resource,
            clusters: ClusterSelector::All,
            namespaces: Vec::new(),
            label_selector: None,
            field_selector: None,
            resync: None,
            metadata_only: false,
            projection: Projection::default(),
            indexes: BTreeMap::new(),
        }
    }

    /// Returns a cluster in which both entries watch the same objects but keep different parts of them. The cache stores
    /// each object once, so the kept parts would depend on the order of the informers.
    #[must_use]
    pub fn clash(&self, other: &Self, clusters: &[ClusterConfig]) -> Option<ClusterName> {
        let differs = self.projection != other.projection || self.metadata_only != other.metadata_only;
        let is_clash = differs && self.is_same_resource(other) && overlap(self, other);
        is_clash.then(|| meet(&self.clusters, &other.clusters, clusters)).flatten()
    }

    /// Returns whether the resource may appear or disappear while its apiserver runs. Built-in resources do not.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.resource.one().is_none_or(|one| built_in(one).is_none())
    }

    /// Returns whether both entries have the same pattern, or name the same resource.
    ///
    /// All names of a built-in resource count as equal. For other resources, the names must be equal, and a missing
    /// group means the core group. A missing version matches every version.
    #[must_use]
    pub fn is_same_resource(&self, other: &Self) -> bool {
        let (one, other) = match (&self.resource, &other.resource) {
            (Selected::One(one), Selected::One(other)) => (one.canonical(), other.canonical()),
            (Selected::Matching(one), Selected::Matching(other)) => return one.groups == other.groups,
            _ => return false,
        };
        let group = |r: &ResourceRef| r.group.clone().unwrap_or_default();
        let versions = (one.version.as_ref(), other.version.as_ref());
        let same_version = if let (Some(one), Some(other)) = versions { one == other } else { true };
        one.resource == other.resource && group(&one) == group(&other) && same_version
    }
}

/// Returns whether two entries certainly have objects in common: they have equal selectors, and at least one namespace
/// that both select. Returns false for different selectors, since only the apiserver knows whether they select common
/// objects.
fn overlap(one: &ResourceConfig, other: &ResourceConfig) -> bool {
    let spaces = |r: &ResourceConfig| r.namespaces.iter().cloned().collect::<BTreeSet<_>>();
    let (a, b) = (spaces(one), spaces(other));
    let meets = a.is_empty() || b.is_empty() || !a.is_disjoint(&b);
    meets && one.label_selector == other.label_selector && one.field_selector == other.field_selector
}

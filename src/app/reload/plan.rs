//! Difference between two configurations, by name.

use serde::Serialize;

use informer_hub_config::{Config, ResourceConfig, SinkConfig, fleet_keys_to_restart};
use informer_hub_types::first_names;

/// Names of added, changed and removed entries of one kind; each name is in at most one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Added entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Changed entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Removed entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// Changes that a new configuration makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Clusters added, changed and removed.
    pub clusters: Difference,
    /// Cluster sources added, changed and removed. The known clusters of these sources count as added, changed or
    /// removed in `clusters`. The clusters of a new source are added later, once the source has reported them.
    #[serde(skip_serializing_if = "Difference::is_empty")]
    pub cluster_sources: Difference,
    /// Resource entries added, changed and removed.
    pub resources: Difference,
    /// Sinks added, changed and removed.
    pub sinks: Difference,
    /// Readers of the HTTP port added, changed and removed.
    #[serde(skip_serializing_if = "Difference::is_empty")]
    pub readers: Difference,
    /// Whether `hub.memory_limit` changed.
    pub memory_limit: bool,
    /// Whether `oidc` changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oidc: bool,
    /// Whether `hub.authorization` changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub authorization: bool,
    /// Changed keys that take effect only after a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<String>,
}

impl Difference {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    fn between<'c, T: 'c>(
        old: &'c [T],
        new: &'c [T],
        name: impl Fn(&T) -> &str,
        same: impl Fn(&T, &T) -> bool,
    ) -> Self {
        let find = |all: &'c [T], wanted: &T| all.iter().find(|one| name(one) == name(wanted));
        let mut difference = Self::default();
        for one in new {
            match find(old, one) {
                None => difference.added.push(name(one).to_owned()),
                Some(before) if !same(before, one) => difference.changed.push(name(one).to_owned()),
                Some(_) => {}
            }
        }
        let gone = old.iter().filter(|one| find(new, one).is_none());
        difference.removed = gone.map(|one| name(one).to_owned()).collect();
        difference
    }
}

impl Changes {
    /// Compares the clusters of two configurations.
    #[must_use]
    pub fn of_clusters(old: &Config, new: &Config) -> Difference {
        Difference::between(&old.clusters, &new.clusters, |one| one.name.as_str(), |one, other| one == other)
    }

    /// Compares two configurations.
    #[must_use]
    pub fn between(old: &Config, new: &Config) -> Self {
        let resource = |one: &ResourceConfig, other: &ResourceConfig| {
            // Entries of one resource share their indexes, so an index of another entry changes this one.
            one == other && indexes_of(one, &old.resources) == indexes_of(other, &new.resources)
        };
        let resources = Difference::between(&old.resources, &new.resources, |one| &one.name, resource);
        Self {
            clusters: Self::of_clusters(old, new),
            cluster_sources: Difference::between(
                &old.sources,
                &new.sources,
                |one| &one.name,
                |one, other| one == other,
            ),
            resources,
            sinks: Difference::between(&old.sinks, &new.sinks, |one| &one.name, |one, other| one == other),
            readers: Difference::between(&old.readers, &new.readers, |one| &one.name, |one, other| one == other),
            memory_limit: old.hub.memory_limit != new.hub.memory_limit,
            oidc: old.oidc != new.oidc,
            authorization: old.hub.service.authorization != new.hub.service.authorization,
            needs_restart: needs_restart(old, new),
        }
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Logs the names of the changed entries.
    pub(in crate::app) fn log(&self) {
        let (added, removed) = (self.words(|it| &it.added), self.words(|it| &it.removed));
        let keys =
            [(self.memory_limit, "hub.memory_limit"), (self.oidc, "oidc"), (self.authorization, "hub.authorization")];
        let keys = keys.into_iter().filter(|(is_changed, _)| *is_changed).map(|(_, key)| Some(key.to_owned()));
        let changed = std::iter::once(self.words(|it| &it.changed)).chain(keys);
        let changed = changed.flatten().reduce(|one, other| format!("{one}; {other}"));
        tracing::info!(added, changed, removed, "the configuration is applied");
        if !self.needs_restart.is_empty() {
            let keys = first_names(&self.needs_restart);
            tracing::warn!(keys, "changed keys take effect only after a restart of the process");
        }
    }

    /// Lists the added, the changed or the removed entries (`of` selects which) as text: `clusters a, b; sinks audit`.
    /// `None` if there are none.
    fn words(&self, of: fn(&Difference) -> &[String]) -> Option<String> {
        let kinds = [
            ("clusters", &self.clusters),
            ("cluster sources", &self.cluster_sources),
            ("resources", &self.resources),
            ("sinks", &self.sinks),
            ("readers", &self.readers),
        ];
        let words = kinds.into_iter().map(|(kind, names)| (kind, of(names))).filter(|(_, names)| !names.is_empty());
        words.map(|(kind, names)| format!("{kind} {}", first_names(names))).reduce(|one, more| format!("{one}; {more}"))
    }
}

fn indexes_of<'c>(resource: &ResourceConfig, all: &'c [ResourceConfig]) -> Vec<(&'c String, String)> {
    let same = all.iter().filter(|other| other.is_same_resource(resource));
    let mut indexes: Vec<_> =
        same.flat_map(|other| &other.indexes).map(|(name, path)| (name, path.to_string())).collect();
    indexes.sort();
    indexes.dedup();
    indexes
}

fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let mut keys: Vec<_> = old.hub.keys_to_restart(&new.hub).into_iter().map(str::to_owned).collect();
    if old.ha != new.ha {
        keys.push("ha".to_owned());
    }
    let fleet = fleet_keys_to_restart(old.fleet.as_ref(), new.fleet.as_ref());
    keys.extend(fleet.into_iter().map(str::to_owned));
    let pairs = old.sinks.iter().filter_map(|sink| Some((sink, new.sinks.iter().find(|new| new.name == sink.name)?)));
    for (before, now) in pairs {
        let SinkConfig { journal_limit, dead_letter_limit, .. } = before;
        let name = before.table();
        let limits = [
            ("journal_limit", *journal_limit != now.journal_limit),
            ("dead_letter_limit", *dead_letter_limit != now.dead_letter_limit),
        ];
        keys.extend(limits.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| format!("sinks.{name}.{key}")));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_config::schema::reference::{Effect, keys};
    use informer_hub_config::schema::samples::{another, around, load};

    const BASE: &str = r#"
        [clusters.a]
        server = "http://127.0.0.1:1"
        [clusters.b]
        server = "http://127.0.0.1:2"
        labels = { tier = "prod" }
        [resources.pods]
        [resources.some-pods]
        resource = "pods"
        namespaces = ["shop"]
        [sinks.s]
        type = "stdout"
    "#;

    fn changes(edit: impl Fn(String) -> String) -> Changes {
        let read = |text: &str| Config::from_toml(text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        Changes::between(&read(BASE), &read(&edit(BASE.to_owned())))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_reformatted_configuration_has_no_changes() {
        let changes = changes(|text| text.replace("labels = { tier = \"prod\" }", "labels.tier = 'prod' # as before"));
        assert!(changes.is_empty(), "{changes:?}");
    }

    #[test]
    fn changes_name_added_changed_and_removed_entries() {
        let changes = changes(|text| {
            let text = text.replace("clusters.a", "clusters.c").replace("127.0.0.1:2", "127.0.0.1:3");
            text.replace("[sinks.s]", "[resources.nodes]\n[sinks.t]")
        });
        assert_eq!(
            changes.clusters,
            Difference { added: names(&["c"]), changed: names(&["b"]), removed: names(&["a"]) }
        );
        assert_eq!(changes.resources, Difference { added: names(&["nodes"]), ..Difference::default() });
        assert_eq!(changes.sinks, Difference { added: names(&["t"]), removed: names(&["s"]), ..Difference::default() });
        assert!(changes.needs_restart.is_empty());
        assert_eq!(changes.words(|it| &it.added).as_deref(), Some("clusters c; resources nodes; sinks t"));
        assert_eq!(changes.words(|it| &it.changed).as_deref(), Some("clusters b"));
        assert_eq!(Changes::default().words(|it| &it.added), None);
    }

    #[test]
    fn an_index_changes_every_entry_of_its_resource() {
        let changes = changes(|text| {
            text.replace("[resources.some-pods]", "indexes = { n = \"spec.nodeName\" }\n[resources.some-pods]")
        });
        assert_eq!(changes.resources.changed, names(&["pods", "some-pods"]));
        assert!(changes.clusters.is_empty() && changes.sinks.is_empty());
    }

    #[test]
    fn keys_that_need_a_restart_are_named() {
        let changes = changes(|text| {
            let text = text.replace("type = \"stdout\"", "type = \"stdout\"\njournal_limit = \"8MiB\"");
            format!("[hub]\nlisten = \"127.0.0.1:1\"\nmemory_limit = \"1GiB\"\nfsync = \"1s\"\n{text}")
        });
        assert_eq!(changes.needs_restart, names(&["hub.listen", "hub.fsync", "sinks.s.journal_limit"]));
        assert!(changes.memory_limit);
    }

    #[test]
    fn the_reference_states_the_effect_of_changing_each_key() {
        let mut count = 0;
        for (key, of) in keys() {
            let of = of.as_deref();
            // The sample of the roles is also the value that every sample configuration has, so it changes nothing.
            let Some(value) = another(&key).filter(|_| key.path != "fleet.roles") else { continue };
            count += 1;
            let (before, after) = (load(&around(&key, of, None)), load(&around(&key, of, Some(&value))));
            let mut changes = Changes::between(&before, &after);
            if key.path.starts_with("readers.*.certificate.") {
                // Both configurations have a certificate for the port, each in a folder of its own, which changes
                // `hub.tls`.
                changes.needs_restart.retain(|key| key != "hub.tls");
            }
            let (path, effect) = (&key.path, key.effect.expect("the reference has an effect for each key"));
            assert_eq!(!changes.needs_restart.is_empty(), effect == Effect::NextStart, "{path}: {changes:?}");
            let is_listed = !changes.clusters.is_empty() || !changes.resources.is_empty();
            let is_of_readers = ["readers.", "oidc.", "hub.authorization."].iter().any(|top| path.starts_with(top));
            assert!(!is_of_readers || !changes.is_empty(), "{path} = {value} changes nothing");
            assert!(effect != Effect::ListsAgain || is_listed, "{path} = {value}: {changes:?}");
        }
        assert!(count > 50, "{count} keys");
    }
}

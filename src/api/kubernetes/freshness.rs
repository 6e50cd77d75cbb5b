//! Warnings in an answer: clusters that are outdated or missing, and objects that are only partly kept.

use std::collections::BTreeMap;

use axum::http::header::WARNING;
use axum::http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::cache::Partition;
use informer_hub_access::Visibility;
use informer_hub_types::{ClusterName, Freshness, first_names, printable};

/// Maximum length of the text of a warning, in characters; kubectl prints each on one line.
const MAX_TEXT: usize = 1024;

/// Text for clusters whose objects have lost their bodies under a memory limit.
pub(in crate::api) const WITHOUT_BODIES: &str = "only names, versions, labels and index values, for lack of memory";

/// Clusters of an answer whose data is outdated, missing or incomplete.
#[derive(Clone, Debug, Default)]
pub(in crate::api) struct Coverage {
    /// Clusters whose objects may be outdated, each with a text that says since when.
    stale: BTreeMap<ClusterName, String>,
    /// Clusters without objects in this answer, because their first list is not complete.
    missing: Vec<ClusterName>,
    /// Clusters with incomplete data, each with a text that says what is kept or unknown.
    partial: BTreeMap<ClusterName, String>,
}

impl Coverage {
    /// Adds the freshness of a partition (objects of one informer) that contributes to the answer.
    pub(in crate::api) fn add(&mut self, partition: &Partition) {
        let origin = partition.origin();
        match partition.freshness() {
            Freshness::Synced => {}
            Freshness::StaleSince { since } => {
                self.stale.insert(origin.cluster.clone(), format!("since {since}"));
            }
            Freshness::Missing => {
                self.stale.insert(origin.cluster.clone(), "since the start".to_owned());
            }
        }
        let parts = [partition.part(), (!partition.memory().keeps_bodies()).then(|| WITHOUT_BODIES.to_owned())];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            let text = parts.join(", ");
            self.partial
                .entry(origin.cluster.clone())
                .and_modify(|known| *known = format!("{known}; {text}"))
                .or_insert(text);
        }
    }

    /// Adds a cluster whose objects may be outdated; `since` is a text that says since when.
    pub(in crate::api) fn stale(&mut self, cluster: &ClusterName, since: String) {
        self.stale.insert(cluster.clone(), since);
    }

    /// Adds a cluster with incomplete data; `part` says what is kept or unknown.
    pub(in crate::api) fn partial(&mut self, cluster: &ClusterName, part: String) {
        self.partial.insert(cluster.clone(), part);
    }

    /// Adds the clusters that have not answered the access reviews of the reader.
    pub(in crate::api) fn add_unanswered(&mut self, visibility: &Visibility) {
        for (cluster, failure) in visibility.unanswered() {
            self.partial(cluster, format!("rights unknown: {failure}"));
        }
    }

    /// Adds a cluster to the missing ones: it has the resource, but its first list is not complete.
    pub(in crate::api) fn add_missing(&mut self, cluster: &ClusterName) {
        if !self.missing.contains(cluster) {
            self.missing.push(cluster.clone());
        }
    }

    /// Adds `Warning` headers, as kube-apiserver sends them and kubectl prints them.
    pub(in crate::api) fn warn(&self, headers: &mut HeaderMap) {
        let describe = |of: &BTreeMap<ClusterName, String>| {
            let lines: Vec<_> = of.iter().map(|(name, why)| format!("{name} ({why})")).collect();
            first_names(&lines)
        };
        let texts = [
            (!self.stale.is_empty()).then(|| format!("stale: {}", describe(&self.stale))),
            (!self.missing.is_empty()).then(|| {
                let names: Vec<_> = self.missing.iter().map(ClusterName::as_str).collect();
                format!("missing, first list not complete: {}", first_names(&names))
            }),
            (!self.partial.is_empty()).then(|| format!("cached in part: {}", describe(&self.partial))),
        ];
        for text in texts.into_iter().flatten() {
            let text: String = printable(&text).chars().filter(char::is_ascii).take(MAX_TEXT).collect();
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"informer-hub: {quoted}\"")) {
                headers.append(WARNING, value);
            }
        }
    }

    /// Returns the outdated and missing clusters as JSON; `None` if there are none. A list of several clusters has this
    /// in its metadata, where typed clients ignore it.
    pub(super) fn summary(&self) -> Option<Value> {
        if self.stale.is_empty() && self.missing.is_empty() {
            return None;
        }
        let stale: serde_json::Map<_, _> =
            self.stale.iter().map(|(name, since)| (name.to_string(), json!(since))).collect();
        let missing: Vec<_> = self.missing.iter().map(ClusterName::as_str).collect();
        Some(json!({ "staleClusters": stale, "missingClusters": missing }))
    }
}

//! Progress of the leader's sinks, published in the lease for the standby replicas. In a fleet, each sink has a lease
//! with its own progress.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use informer_hub_sink::SourceVersions;
#[cfg(feature = "fleet")]
use informer_hub_sink::resource_key;
#[cfg(feature = "fleet")]
use informer_hub_types::Gvr;

/// Progress of sinks that a leader publishes in its lease, so that its successor continues there. Unknown fields are
/// ignored, because later program versions may add some.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delivered {
    /// For each sink, the resource versions up to which the receiver of the sink has acknowledged every change.
    #[serde(default)]
    pub(super) sinks: BTreeMap<String, SourceVersions>,
    /// In a fleet, the process that is to take the released lease; `None` if any process may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Delivered {
    /// Parses a note, the text in a lease. An unreadable note counts as no progress, so events are delivered again.
    pub(super) fn parse(note: &str) -> Self {
        serde_json::from_str(note).unwrap_or_default()
    }

    /// Returns the resource version up to which all sinks have delivered the changes of a resource of a cluster. Sinks
    /// without a version for that resource do not count; `None` if no sink has one.
    #[cfg(feature = "fleet")]
    pub(super) fn version_of(&self, cluster: &str, resource: &Gvr) -> Option<u64> {
        let resource = resource_key(&resource.group, &resource.resource);
        self.sinks.values().filter_map(|clusters| clusters.get(cluster)?.get(&resource).copied()).min()
    }

    /// Formats the progress as a note of at most `max_size` bytes. Also returns how many entries, each one cluster of
    /// one sink, were left out because they did not fit.
    pub(super) fn note(&self, max_size: usize) -> (String, usize) {
        let next = self.next.clone();
        let (mut kept, mut left_out, mut size) = (Self { next, sinks: BTreeMap::new() }, 0, 128);
        for (sink, clusters) in &self.sinks {
            size += sink.len() + 8;
            for (cluster, versions) in clusters {
                let own: usize = versions.keys().map(|resource| resource.len() + 24).sum();
                if size + cluster.len() + 8 + own > max_size {
                    left_out += 1;
                    continue;
                }
                size += cluster.len() + 8 + own;
                kept.sinks.entry(sink.clone()).or_default().insert(cluster.clone(), versions.clone());
            }
        }
        (serde_json::to_string(&kept).unwrap_or_default(), left_out)
    }
}

/// Returns, by cluster and resource, the version up to which the receiver of a sink has acknowledged every change.
///
/// `accepted` has the versions up to which the sink has accepted changes. `lowest` has the lowest version that is not
/// delivered yet, for resources with undelivered changes. The result is the version in `accepted`, lowered below the
/// version in `lowest` if necessary.
pub(super) fn acknowledged(accepted: SourceVersions, lowest: &SourceVersions) -> SourceVersions {
    let below = |cluster: &str, resource: &str, accepted: u64| match lowest.get(cluster).and_then(|of| of.get(resource))
    {
        Some(lowest) => accepted.min(lowest.saturating_sub(1)),
        None => accepted,
    };
    let of_cluster = |(cluster, versions): (String, BTreeMap<String, u64>)| {
        let versions = versions.into_iter().map(|(resource, accepted)| {
            let version = below(&cluster, &resource, accepted);
            (resource, version)
        });
        let versions = versions.collect();
        (cluster, versions)
    };
    accepted.into_iter().map(of_cluster).collect()
}

/// Adds the resource versions `earlier`, which the previous lease holder published, to `own`. Leaves out resources that
/// have a version in `own`, and those for which `is_obsolete` returns true.
pub(super) fn keep_unread(own: &mut SourceVersions, earlier: SourceVersions, is_obsolete: impl Fn(&str, &str) -> bool) {
    for (cluster, versions) in earlier {
        let unread = versions.into_iter().filter(|(resource, _)| !is_obsolete(&cluster, resource));
        for (resource, version) in unread {
            own.entry(cluster.clone()).or_default().entry(resource).or_insert(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(entries: &[(&str, &str, u64)]) -> SourceVersions {
        let mut all = SourceVersions::new();
        for (cluster, resource, version) in entries {
            all.entry((*cluster).to_owned()).or_default().insert((*resource).to_owned(), *version);
        }
        all
    }

    #[test]
    fn acknowledged_versions_are_below_everything_undelivered() {
        let accepted = versions(&[("a", "pods.", 9), ("a", "nodes.", 7), ("b", "pods.", 5)]);
        let lowest = versions(&[("a", "pods.", 8), ("b", "pods.", 6), ("c", "pods.", 1)]);
        let expected = versions(&[("a", "pods.", 7), ("a", "nodes.", 7), ("b", "pods.", 5)]);
        assert_eq!(acknowledged(accepted.clone(), &lowest), expected);
        assert_eq!(acknowledged(accepted.clone(), &SourceVersions::new()), accepted);
        let unknown = versions(&[("a", "nodes.", 0)]);
        assert_eq!(acknowledged(accepted, &unknown)["a"]["nodes."], 0);
    }

    #[test]
    fn progress_of_resources_that_were_not_read_is_kept() {
        let mut own = versions(&[("a", "pods.", 9)]);
        let earlier = versions(&[("a", "pods.", 5), ("a", "nodes.", 6), ("b", "pods.", 7), ("removed", "pods.", 8)]);
        keep_unread(&mut own, earlier, |cluster, _| cluster == "removed");
        assert_eq!(own, versions(&[("a", "pods.", 9), ("a", "nodes.", 6), ("b", "pods.", 7)]));
    }

    #[test]
    fn note_is_read_back_and_another_text_covers_nothing() {
        let sinks = BTreeMap::from([("audit".to_owned(), versions(&[("a", "pods.", 9)]))]);
        let delivered = Delivered { sinks, ..Delivered::default() };
        let (note, left_out) = delivered.note(128 << 10);
        assert_eq!((Delivered::parse(&note), left_out), (delivered, 0));
        for text in ["", "{", "[]", r#"{"sinks":3}"#, r#"{"later":1}"#] {
            assert_eq!(Delivered::parse(text), Delivered::default(), "{text}");
        }
    }

    #[cfg(feature = "fleet")]
    #[test]
    fn resource_was_delivered_up_to_the_version_of_the_slowest_sink() {
        let sinks = [("a", versions(&[("x", "pods.", 9), ("y", "pods.", 4)])), ("b", versions(&[("x", "pods.", 7)]))];
        let delivered =
            Delivered { sinks: sinks.map(|(name, all)| (name.to_owned(), all)).into(), ..Delivered::default() };
        let of = |cluster, resource| delivered.version_of(cluster, &Gvr::new("", "v1", resource));
        assert_eq!(
            [of("x", "pods"), of("y", "pods"), of("z", "pods"), of("x", "nodes")],
            [Some(7), Some(4), None, None]
        );
    }

    #[test]
    fn note_stays_within_its_limit() {
        let mut sinks = BTreeMap::new();
        for sink in ["first", "second"] {
            let all: Vec<_> = (0..1000).map(|cluster| format!("cluster-{cluster:04}")).collect();
            let entries: Vec<_> =
                all.iter().flat_map(|name| [(&**name, "pods.", u64::MAX), (&**name, "b.c", 1)]).collect();
            sinks.insert(sink.to_owned(), versions(&entries));
        }
        let delivered = Delivered { sinks, ..Delivered::default() };
        let max = 128 << 10;
        let (note, left_out) = delivered.note(max);
        assert!(note.len() <= max && note.len() > max / 2, "{}", note.len());
        let kept = Delivered::parse(&note);
        assert_eq!(left_out + kept.sinks.values().map(BTreeMap::len).sum::<usize>(), 2000);
        assert_eq!(kept.sinks["first"]["cluster-0000"], delivered.sinks["first"]["cluster-0000"]);
    }
}

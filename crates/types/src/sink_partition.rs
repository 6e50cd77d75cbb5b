//! Partitions of a sink, which divide the objects it delivers.

use std::fmt;
use std::num::NonZeroU16;

use crate::fingerprint::Fingerprint;
use crate::{ClusterName, Notification};

/// One partition of a sink: a fixed part of the objects, by a hash of cluster, resource, namespace and name. So all
/// events of an object, even if it is deleted and created again, are in one partition and stay in order. The hash is
/// the same in every process and release of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkPartition {
    /// Number of the partition within its sink, from 0.
    index: u16,
    count: NonZeroU16,
}

impl SinkPartition {
    /// Returns all partitions of a sink that has `count` partitions.
    pub fn all(count: NonZeroU16) -> impl Iterator<Item = Self> {
        (0..count.get()).map(move |index| Self { index, count })
    }

    /// Returns whether this is the first partition of its sink.
    #[must_use]
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// Returns whether a notification is in this partition. A notification without an object is in the first partition.
    #[must_use]
    pub fn contains<K>(self, notification: &Notification<K>) -> bool {
        let Some(object) = notification.object() else { return self.is_first() };
        let gvr = &object.origin().resource.gvr;
        self.contains_object(object.cluster(), (&gvr.group, &gvr.resource), object.namespace(), object.name())
    }

    fn contains_object(
        self,
        cluster: &ClusterName,
        (group, resource): (&str, &str),
        namespace: Option<&str>,
        name: &str,
    ) -> bool {
        let parts = [cluster.as_str(), group, resource, namespace.unwrap_or_default(), name];
        let fingerprint = parts.into_iter().fold(Fingerprint::default(), Fingerprint::text).finish();
        fingerprint % u64::from(self.count.get()) == u64::from(self.index)
    }
}

/// Writes the partition as `2-of-4`, counted from 1.
impl fmt::Display for SinkPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-of-{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u16) -> Vec<SinkPartition> {
        SinkPartition::all(NonZeroU16::new(count).unwrap()).collect()
    }

    #[test]
    fn each_object_is_in_one_partition_and_all_partitions_have_a_fair_share() {
        let cluster: ClusterName = "prod-eu".parse().unwrap();
        for count in [1, 2, 3, 8, 64] {
            let partitions = of(count);
            let mut sizes = vec![0; usize::from(count)];
            for at in 0..6400 {
                let name = format!("web-7d4b9c6f5-{at}");
                let contains = |it: &SinkPartition| it.contains_object(&cluster, ("", "pods"), Some("shop"), &name);
                let found: Vec<_> = (0..partitions.len()).filter(|at| contains(&partitions[*at])).collect();
                assert_eq!(found.len(), 1, "{name}");
                sizes[found[0]] += 1;
            }
            let (fair, least, most) = (6400 / usize::from(count), sizes.iter().min(), sizes.iter().max());
            assert!(*least.unwrap() * 2 > fair && *most.unwrap() < fair * 2, "{count}: {sizes:?}");
        }
    }

    #[test]
    fn partition_of_an_object_never_changes() {
        let (cluster, partitions) = ("prod-eu".parse().unwrap(), of(8));
        let find = |resource, namespace, name| {
            partitions.iter().position(|it| it.contains_object(&cluster, resource, namespace, name)).unwrap()
        };
        // Deliverers of different versions share a sink.
        let found = [
            find(("", "pods"), Some("shop"), "web-1"),
            find(("apps", "deployments"), Some("shop"), "web"),
            find(("", "nodes"), None, "n1"),
        ];
        assert_eq!(found, [7, 0, 5]);
    }

    #[test]
    fn partition_is_written_as_a_suffix_of_the_name() {
        assert_eq!(of(4).iter().map(ToString::to_string).collect::<Vec<_>>(), ["1-of-4", "2-of-4", "3-of-4", "4-of-4"]);
    }
}

//! Labels of the clusters of an open stream, to detect changes that make other namespaces visible to the reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer_hub_access::Visibility;
use informer_hub_types::{ClusterName, Origin};

/// Informers of a stream with the cluster labels that they had at the last check.
///
/// If new labels add a cluster to a stream or remove it, the stream reports its objects as added or deleted. If they
/// only make other namespaces of the cluster visible, no events report this, so the caller must end the stream.
#[derive(Debug, Default)]
pub(in crate::api) struct SeenLabels(Vec<Arc<Origin>>);

impl SeenLabels {
    /// Returns whether the stream must end, because new labels of a cluster have changed which of its namespaces the
    /// reader sees. Stores the informers in `present` for the next call.
    ///
    /// `is_followed` returns whether the stream includes an informer with these cluster labels. If new labels add or
    /// remove an informer, the stream gets an event about each of its objects and need not end.
    pub(in crate::api) fn changed<'o>(
        &mut self,
        visibility: &Visibility,
        is_followed: impl Fn(&Origin) -> bool,
        present: impl Iterator<Item = &'o Arc<Origin>>,
    ) -> bool {
        if visibility.is_everything() {
            return false;
        }
        let present: Vec<_> = present.cloned().collect();
        let before: BTreeMap<&ClusterName, &Arc<Origin>> =
            self.0.iter().map(|origin| (&origin.cluster, origin)).collect();
        let has_changed = present.iter().any(|now| {
            let Some(old) = before.get(&now.cluster) else { return false };
            if old.cluster_labels == now.cluster_labels {
                return false;
            }
            let seen = |origin: &Origin| visibility.visible(&origin.cluster, &origin.cluster_labels);
            seen(old) != seen(now) && is_followed(old) && is_followed(now)
        });
        self.0 = present;
        has_changed
    }
}

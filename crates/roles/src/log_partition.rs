//! Partition of the fleet's log for the objects of an informer, and the decoder of these objects. Processes with the
//! same configuration use the same partition.

use std::collections::BTreeMap;

use informer_hub_codec::Decoder;
use informer_hub_fleet::Partition;
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{ApiResource, ClusterName, Scope};
use sha2::{Digest, Sha256};

/// Returns the partition that holds the objects of an informer.
pub(crate) fn partition(
    cluster: &ClusterName,
    resource: &ApiResource,
    scope: &Scope,
    options: &InformerOptions,
) -> Partition {
    Partition { cluster: cluster.clone(), resource: resource.gvr.clone(), selection: selection(scope, options) }
}

/// Returns the decoder of the objects in the log.
pub(crate) fn decoder(resource: &ApiResource, options: &InformerOptions) -> Decoder {
    let indexes = options.declared().into_iter().filter_map(|(name, path)| Some((name, path?))).collect();
    Decoder::new(resource.clone(), &options.projection, indexes)
}

/// Returns a fingerprint of the options by which an informer selects objects and the fields that it stores. Indices are
/// not part of it, because each hub builds its own.
fn selection(scope: &Scope, options: &InformerOptions) -> u64 {
    let stored = InformerOptions { indexes: BTreeMap::default(), transform: None, ..options.clone() };
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let parts = [
        text(scope.namespace.as_deref()),
        text(scope.label_selector.as_deref()),
        text(scope.field_selector.as_deref()),
        scope.view.to_string(),
    ];
    fingerprint(&stored.fingerprint().unwrap_or_default().to_le_bytes(), parts)
}

/// Returns a hash of `head` and `texts` that is equal in all processes. Two hashes may be compared only if their
/// `head`s have the same length, since the hash does not include that length.
pub(crate) fn fingerprint(head: &[u8], texts: impl IntoIterator<Item = impl AsRef<str>>) -> u64 {
    let mut hash = Sha256::new();
    hash.update(head);
    for text in texts {
        let text = text.as_ref();
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    let hash: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes(hash.first_chunk().copied().unwrap_or_default())
}

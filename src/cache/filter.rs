//! Which objects a subscription is about.

use smol_str::SmolStr;

use informer_hub_types::{LabelSelector, StoredObject};

/// Namespace and labels, read from an object's head: costs no decoding.
#[derive(Clone, Debug, Default)]
pub struct ObjectFilter {
    /// Only this namespace.
    pub namespace: Option<SmolStr>,
    /// Only objects whose labels match.
    pub labels: Option<LabelSelector>,
}

impl ObjectFilter {
    /// Whether the subscription is about this object.
    #[must_use]
    pub fn matches(&self, object: &StoredObject) -> bool {
        let namespace = self.namespace.is_none() || self.namespace.as_deref() == object.key().namespace();
        namespace && self.labels.as_ref().is_none_or(|labels| labels.matches(|key| object.labels().get(key)))
    }
}

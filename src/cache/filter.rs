//! Filter of the objects of a subscription.

use smol_str::SmolStr;

use informer_hub_types::{LabelSelector, StoredObject};

/// Filter by namespace and labels, evaluated on an object's head (parsed metadata) without decoding its JSON.
#[derive(Clone, Debug, Default)]
pub struct ObjectFilter {
    /// Accept only this namespace.
    pub namespace: Option<SmolStr>,
    /// Accept only matching labels.
    pub labels: Option<LabelSelector>,
}

impl ObjectFilter {
    /// Returns whether the filter accepts an object.
    #[must_use]
    pub fn matches(&self, object: &StoredObject) -> bool {
        let namespace = self.namespace.is_none() || self.namespace.as_deref() == object.key().namespace();
        namespace && self.labels.as_ref().is_none_or(|labels| labels.matches(|key| object.labels().get(key)))
    }
}

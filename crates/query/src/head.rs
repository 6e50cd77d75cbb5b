//! What a store keeps decoded of an object, and which paths it answers.

use smol_str::SmolStr;

use informer_hub_types::{ClusterLabels, ClusterName, FieldPath, LabelSelector, Segment, Uid};

/// What is known of an object without a look at its bytes.
pub trait Head {
    /// The cluster that it is in.
    fn cluster(&self) -> &ClusterName;
    /// The labels of that cluster.
    fn cluster_labels(&self) -> &ClusterLabels;
    /// `metadata.namespace`; empty for an object without one.
    fn namespace(&self) -> &str;
    /// `metadata.name`.
    fn name(&self) -> &str;
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// Whether the labels match. For a store that remembers it: most objects share their labels with others.
    fn matches_labels(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }
    /// `metadata.uid`.
    fn uid(&self) -> &Uid;
    /// Whether the object carries any of `values` in `index`; of an index that does not exist it carries none.
    fn in_index(&self, index: &str, values: &[SmolStr]) -> bool;
    /// Whether one of the object's owners has this UID; `None` where only the bytes can tell.
    fn owned_by(&self, owner: &Uid) -> Option<bool> {
        let _ = owner;
        None
    }
}

/// A path whose value every head has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeadPath {
    Name,
    Namespace,
    Uid,
}

impl HeadPath {
    pub(super) fn of(path: &FieldPath) -> Option<Self> {
        let [Segment::Field(metadata), Segment::Field(field)] = path.segments() else { return None };
        match (metadata.as_str(), field.as_str()) {
            ("metadata", "name") => Some(Self::Name),
            ("metadata", "namespace") => Some(Self::Namespace),
            ("metadata", "uid") => Some(Self::Uid),
            _ => None,
        }
    }

    /// The value; `None` where it is empty, which the bytes may say in several ways.
    pub(super) fn value<'h>(self, head: &'h impl Head) -> Option<std::borrow::Cow<'h, str>> {
        let text: std::borrow::Cow<'h, str> = match self {
            Self::Name => head.name().into(),
            Self::Namespace => head.namespace().into(),
            Self::Uid => head.uid().to_string().into(),
        };
        (!text.is_empty()).then_some(text)
    }
}

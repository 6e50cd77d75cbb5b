//! The decoded head of a stored object, and the paths whose values it contains.

use smol_str::SmolStr;

use informer_hub_types::{ClusterLabels, ClusterName, FieldPath, LabelSelector, Segment, Uid};

/// The part of an object that is available without decompressing its bytes.
pub trait Head {
    /// The object's cluster.
    fn cluster(&self) -> &ClusterName;
    /// Labels of the object's cluster.
    fn cluster_labels(&self) -> &ClusterLabels;
    /// `metadata.namespace`; empty for a cluster-scoped object.
    fn namespace(&self) -> &str;
    /// `metadata.name`.
    fn name(&self) -> &str;
    /// Returns the value of a label; `None` if the object lacks the label.
    fn label(&self, key: &str) -> Option<&str>;
    /// Returns whether the labels match. A store may override this with a cache, since most objects share their label
    /// sets.
    fn matches_labels(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }
    /// `metadata.uid`.
    fn uid(&self) -> &Uid;
    /// Returns whether the object has any of `values` in `index`; `false` if the index does not exist.
    fn in_index(&self, index: &str, values: &[SmolStr]) -> bool;
    /// Returns whether an owner of the object has this UID; `None` if only the object's bytes can decide.
    fn owned_by(&self, owner: &Uid) -> Option<bool> {
        let _ = owner;
        None
    }
}

/// A path whose value is in every head.
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

    /// Returns the value at this path; `None` if the head stores an empty text. A missing field is stored as an empty
    /// text too, so only the JSON shows whether the field is missing.
    pub(super) fn value<'h>(self, head: &'h impl Head) -> Option<std::borrow::Cow<'h, str>> {
        let text: std::borrow::Cow<'h, str> = match self {
            Self::Name => head.name().into(),
            Self::Namespace => head.namespace().into(),
            Self::Uid => head.uid().to_string().into(),
        };
        (!text.is_empty()).then_some(text)
    }
}

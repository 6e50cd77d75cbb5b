//! A path into an object, as `kubectl -o jsonpath` users write it.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

/// One step of a path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// A field of an object.
    Field(SmolStr),
    /// Every element of an array.
    Each,
}

/// A path such as `spec.nodeName`, `spec.containers[*].image` or `metadata.labels['app.kubernetes.io/name']`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldPath(Vec<Segment>);

/// A text that is not a path; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a path: {problem} at position {at}")]
pub struct InvalidPath {
    /// The text that was given.
    pub text: String,
    /// Byte offset of the mistake.
    pub at: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

impl FieldPath {
    /// The steps of the path; never empty.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The values that the path leads to in `value`, in document order.
    #[must_use]
    pub fn select<'v>(&self, value: &'v serde_json::Value) -> Vec<&'v serde_json::Value> {
        let mut found = vec![value];
        for segment in &self.0 {
            found = match segment {
                Segment::Field(name) => found.into_iter().filter_map(|v| v.get(name.as_str())).collect(),
                Segment::Each => found.into_iter().filter_map(|v| v.as_array()).flatten().collect(),
            };
        }
        found
    }
}

impl FromStr for FieldPath {
    type Err = InvalidPath;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // STUB: to be replaced by the full grammar.
        Ok(Self(text.split('.').map(|s| Segment::Field(s.into())).collect()))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

//! Objects of one informer whose newest state could not be decoded, so that the store does not have it.

use informer_hub_types::ObjectKey;

/// Maximum number of skipped objects that are remembered. Beyond it, the oldest is forgotten, which matters little: the
/// status names only the latest.
const MAX_KEYS: usize = 256;

/// Skipped objects, each with its key, if readable, and its status message. The latest is last.
#[derive(Debug, Default)]
pub(super) struct SkippedObjects(Vec<(Option<ObjectKey>, String)>);

impl SkippedObjects {
    /// Adds a skipped object. Of objects without a readable key only the latest is kept.
    pub(super) fn add(&mut self, key: Option<ObjectKey>, message: String) {
        self.0.retain(|(known, _)| *known != key);
        if self.0.len() >= MAX_KEYS {
            self.0.remove(0);
        }
        self.0.push((key, message));
    }

    /// Removes an object from the skipped ones, because it was accepted or deleted. Returns whether it was among them.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> bool {
        let before = self.0.len();
        self.0.retain(|(skipped, _)| skipped.as_ref() != Some(key));
        self.0.len() < before
    }

    /// Returns the message of the object that was skipped last; `None` if none is skipped.
    pub(super) fn last(&self) -> Option<String> {
        self.0.last().map(|(_, message)| message.clone())
    }

    /// Removes all skipped objects, because a list returns every object again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_objects_report_the_previous_one_once_the_latest_is_accepted() {
        let key = |name: &str| ObjectKey::new("shop", name);
        let mut skipped = SkippedObjects::default();
        for name in ["a", "b"] {
            skipped.add(Some(key(name)), name.to_owned());
        }
        assert!(skipped.remove(&key("b")) && !skipped.remove(&key("b")));
        assert_eq!(skipped.last().as_deref(), Some("a"));
        assert!(skipped.remove(&key("a")));
        assert_eq!(skipped.last(), None);
    }

    #[test]
    fn skipped_objects_are_bounded() {
        let mut skipped = SkippedObjects::default();
        for number in 0..2 * MAX_KEYS {
            skipped.add(Some(ObjectKey::new("shop", &number.to_string())), String::new());
            skipped.add(None, number.to_string());
        }
        assert_eq!((skipped.0.len(), skipped.last()), (MAX_KEYS, Some((2 * MAX_KEYS - 1).to_string())));
    }
}

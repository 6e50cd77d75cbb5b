//! Pages of lists, and events of watches.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Metadata of a page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PageMeta {
    /// `resourceVersion` of the list, from which a watch may start.
    #[serde(default)]
    pub resource_version: String,
    /// Continue token of the next page; empty on the last page.
    #[serde(default, rename = "continue")]
    pub continuation: String,
    /// Number of objects on later pages; `None` if the hub does not know it.
    pub remaining_item_count: Option<u64>,
}

/// A page of objects, each as its JSON.
#[derive(Debug, Deserialize)]
pub struct ListPage {
    /// `resourceVersion` and continue token of the page.
    #[serde(default)]
    pub metadata: PageMeta,
    /// Objects of the page as JSON. Objects of built-in kinds lack `kind` and `apiVersion`.
    #[serde(default)]
    pub items: Vec<Box<RawValue>>,
}

/// An event of a watch.
#[derive(Debug, Deserialize)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub kind: String,
    /// An object, a table, or the `Status` of an error.
    pub object: Box<RawValue>,
}

impl ListPage {
    /// Parses a page of a list from its JSON.
    ///
    /// # Errors
    /// The text is not a list.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

impl WatchEvent {
    /// Parses a watch event from a line of the response.
    ///
    /// # Errors
    /// The line is not a watch event.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Returns the `resourceVersion` of the event's object, from which a later watch may continue. Returns `None` if
    /// the object has no `resourceVersion`.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Object {
            metadata: PageMeta,
        }
        let object: Object = serde_json::from_str(self.object.get()).ok()?;
        Some(object.metadata.resource_version).filter(|version| !version.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_items_and_the_token_of_the_next() {
        let text = br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t","remainingItemCount":3},"items":[{"a": 1}]}"#;
        let page = ListPage::parse(text).unwrap();
        assert_eq!(
            (page.metadata.continuation.as_str(), page.metadata.remaining_item_count, page.items[0].get()),
            ("t", Some(3), "{\"a\": 1}")
        );
        assert!(ListPage::parse(b"{\"items\":3}").is_err());
    }

    #[test]
    fn events_have_the_version_of_their_object() {
        let event = WatchEvent::parse(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#).unwrap();
        assert_eq!((event.kind.as_str(), event.version().as_deref()), ("BOOKMARK", Some("9")));
        let event = WatchEvent::parse(br#"{"type":"ERROR","object":{"code":410}}"#).unwrap();
        assert_eq!(event.version(), None);
    }
}

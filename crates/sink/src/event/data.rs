//! An event's JSON, read.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Event;
use informer_hub_types::ClusterLabels;

/// What an event tells, with objects read as `K`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound = "K: DeserializeOwned")]
pub struct EventData<K> {
    /// The cluster.
    pub cluster: String,
    /// The cluster's labels when the event was made.
    pub cluster_labels: ClusterLabels,
    /// The resource.
    pub resource: EventResource,
    /// The object's namespace, if it is in one.
    pub namespace: Option<String>,
    /// The object's name; `None` for `synced`.
    pub name: Option<String>,
    /// The object's UID.
    pub uid: Option<String>,
    /// The version of its state.
    pub resource_version: Option<String>,
    /// Whether it was there already when the sink began.
    pub initial: bool,
    /// Whether it is a deletion that was not seen.
    pub tombstone: bool,
    /// The object; `None` for `synced`, and where its body is not kept.
    pub object: Option<K>,
    /// The state before, of an update.
    pub old_object: Option<K>,
}

/// A resource, as events name it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EventResource {
    /// Its group; empty for the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its plural.
    pub resource: String,
    /// Its kind.
    pub kind: String,
}

impl Event {
    /// What it tells. Costs a decode of its objects: keep the result.
    ///
    /// # Errors
    /// The object does not fit the type.
    pub fn data<K: DeserializeOwned>(&self) -> Result<EventData<K>, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(bound = "K: DeserializeOwned")]
        struct Wire<K> {
            data: EventData<K>,
        }
        serde_json::from_str(self.json()).map(|Wire { data }| data)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::super::EventOptions;
    use super::super::tests::{pod, updated};
    use super::*;

    #[test]
    fn an_event_is_read_as_its_type() {
        let update = updated(pod("web", "1", "Pending"), pod("web", "2", "Running"));
        let event = Event::new(&update, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap();
        let data = event.data::<Pod>().unwrap();
        assert_eq!((data.cluster.as_str(), data.name.as_deref()), ("prod-eu", Some("web")));
        let phase = |pod: Option<Pod>| pod.unwrap().status.unwrap().phase.unwrap();
        assert_eq!((phase(data.old_object), phase(data.object)), ("Pending".to_owned(), "Running".to_owned()));
        assert!(event.data::<u64>().is_err());
    }
}

//! Typed view of an event's JSON.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Event;
use informer_hub_types::ClusterLabels;

/// Data of an event, with objects decoded as `K`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound = "K: DeserializeOwned")]
pub struct EventData<K> {
    /// Name of the cluster.
    pub cluster: String,
    /// Labels of the cluster when the event was created.
    pub cluster_labels: ClusterLabels,
    /// Resource of the object.
    pub resource: EventResource,
    /// Namespace of the object. For `synced`, the namespace to which the informer is limited. `None` if there is none.
    pub namespace: Option<String>,
    /// Name of the object; `None` for `synced`.
    pub name: Option<String>,
    /// UID of the object; `None` for `synced`.
    pub uid: Option<String>,
    /// resourceVersion of the object's state; `None` for `synced`.
    pub resource_version: Option<String>,
    /// Whether the object already existed when the sink subscribed, or when the informer made its first list.
    pub initial: bool,
    /// Whether a list detected the deletion, because the watch did not report it. Changes shortly before the deletion
    /// may then be missing too.
    pub tombstone: bool,
    /// The object. `None` for `synced`, or if the hub was short of memory and had dropped the object's JSON.
    pub object: Option<K>,
    /// Previous state of an updated object. `None` for other event types, if the sink omits previous states, or if the
    /// hub had dropped the JSON for lack of memory.
    pub old_object: Option<K>,
}

/// Resource of an event's object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EventResource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, such as `pods`.
    pub resource: String,
    /// Kind of the object.
    pub kind: String,
}

impl Event {
    /// Decodes the member `data` of the event's JSON. Each call decodes it again.
    ///
    /// # Errors
    /// The object does not fit the type `K`.
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
    fn event_data_decodes_into_typed_objects() {
        let update = updated(pod("web", "1", "Pending"), pod("web", "2", "Running"));
        let event = Event::new(&update, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap();
        let data = event.data::<Pod>().unwrap();
        assert_eq!((data.cluster.as_str(), data.name.as_deref()), ("prod-eu", Some("web")));
        let phase = |pod: Option<Pod>| pod.unwrap().status.unwrap().phase.unwrap();
        assert_eq!((phase(data.old_object), phase(data.object)), ("Pending".to_owned(), "Running".to_owned()));
        assert!(event.data::<u64>().is_err());
    }
}

//! Encoded watch events of recent changes, shared by all watches that read these changes soon enough.
//!
//! All watches of a resource wake at the same change. The first one encodes its event, the others copy the bytes. A
//! watch that reads an older change, whose event is no longer kept, encodes the event itself. If there is only one
//! watch, no events are kept.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::frames::Encoding;
use informer_hub_types::StoredObject;

/// Maximum total bytes of the kept events of all resources. A watch sends up to 64 KiB at once, so there is room for 64
/// such chunks.
const BYTES: usize = 4 << 20;

/// Address of the object in memory, and the encoding of its event.
type Key = (usize, Encoding);

/// An encoded event. It keeps the object in memory, so that no other object can have the same address.
struct Event {
    bytes: Bytes,
    #[expect(dead_code, reason = "keeps the address")]
    object: Arc<StoredObject>,
}

/// Events in the order in which they were encoded. The oldest are dropped first.
#[derive(Default)]
struct Events {
    by_key: HashMap<Key, Event>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// Encoded events that watches share. Cloning increments a reference count.
#[derive(Clone, Default)]
pub(super) struct SharedFrames(Arc<Mutex<Events>>);

impl SharedFrames {
    /// Appends the event of an object to `out`. Calls `encode` if the encoded bytes are not kept here.
    pub(super) fn append(
        &self,
        object: &Arc<StoredObject>,
        encoding: Encoding,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.has_several_users() {
            return encode(out);
        }
        let key = (Arc::as_ptr(object) as usize, encoding);
        if let Some(bytes) = self.find(&key) {
            return out.extend_from_slice(&bytes);
        }
        let start = out.len();
        encode(out);
        if out.len() == start {
            // The object cannot be encoded. Nothing is kept, so that the next watch gets the failure too.
            return;
        }
        let event = Event { bytes: Bytes::copy_from_slice(&out[start..]), object: Arc::clone(object) };
        self.0.lock().keep(key, event);
    }

    /// Returns whether there are at least two watches. Each watch holds a reference to the events, and the API holds
    /// another one.
    fn has_several_users(&self) -> bool {
        Arc::strong_count(&self.0) > 2
    }

    fn find(&self, key: &Key) -> Option<Bytes> {
        self.0.lock().by_key.get(key).map(|event| event.bytes.clone())
    }
}

impl Events {
    fn keep(&mut self, key: Key, event: Event) {
        let bytes = event.bytes.len();
        if bytes > BYTES / 4 || self.by_key.contains_key(&key) {
            return;
        }
        self.bytes += bytes;
        self.order.push_back(key.clone());
        self.by_key.insert(key, event);
        while self.bytes > BYTES
            && let Some(oldest) = self.order.pop_front()
            && let Some(dropped) = self.by_key.remove(&oldest)
        {
            self.bytes -= dropped.bytes.len();
        }
    }
}

impl fmt::Debug for SharedFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.0.lock();
        let (count, bytes) = (events.order.len(), events.bytes);
        f.debug_struct("SharedFrames").field("events", &count).field("bytes", &bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_kubeapi::{Form, Media};
    use informer_hub_types::ClusterName;

    use super::super::encode::Naming;
    use super::super::frames::EventType;
    use super::super::tests::pod;
    use super::*;

    fn object() -> Arc<StoredObject> {
        Arc::new(pod("shop", "x", 1, "web", "n1"))
    }

    fn encoding(form: Form) -> Encoding {
        let cluster = ClusterName::new("a").unwrap();
        let (event, naming, media) = (EventType::Modified, Naming::Fleet, Media::Json);
        Encoding { event, naming, media, form, cluster, version: Some(7) }
    }

    /// Appends an event of `length` bytes. Returns true if the event had to be encoded, false if kept bytes were
    /// copied.
    fn is_encoded(frames: &SharedFrames, object: &Arc<StoredObject>, encoding: &Encoding, length: usize) -> bool {
        let (mut out, mut is_encoded) = (b"before".to_vec(), false);
        frames.append(object, encoding.clone(), &mut out, |out| {
            is_encoded = true;
            out.resize(out.len() + length, b'e');
        });
        assert_eq!(out, [b"before".as_slice(), &vec![b'e'; length]].concat());
        is_encoded
    }

    #[test]
    fn event_is_encoded_once_for_all_watches() {
        let api = SharedFrames::default();
        let watches = [api.clone(), api.clone(), api.clone()];
        let (object, whole) = (object(), encoding(Form::Object));
        let encoded: Vec<_> = watches.iter().map(|watch| is_encoded(watch, &object, &whole, 10)).collect();
        assert_eq!(encoded, [true, false, false]);
    }

    #[test]
    fn other_object_form_version_or_cluster_has_other_bytes() {
        let api = SharedFrames::default();
        let _watches = [api.clone(), api.clone()];
        let (one, whole) = (object(), encoding(Form::Object));
        assert!(is_encoded(&api, &one, &whole, 10));
        assert!(is_encoded(&api, &object(), &whole, 11), "another object");
        assert!(is_encoded(&api, &one, &encoding(Form::Metadata), 12));
        assert!(is_encoded(&api, &one, &Encoding { version: None, ..whole.clone() }, 13));
        assert!(is_encoded(&api, &one, &Encoding { naming: Naming::Unique, ..whole.clone() }, 14));
        assert!(is_encoded(&api, &one, &Encoding { event: EventType::Added, ..whole.clone() }, 15));
        let protobuf = Encoding { media: Media::Protobuf, ..whole.clone() };
        assert!(is_encoded(&api, &one, &protobuf, 0), "it fails");
        assert!(is_encoded(&api, &one, &protobuf, 17) && !is_encoded(&api, &one, &protobuf, 17));
        let other = Encoding { cluster: ClusterName::new("b").unwrap(), ..whole.clone() };
        assert!(is_encoded(&api, &one, &other, 16));
        assert!(!is_encoded(&api, &one, &whole, 10));
    }

    #[test]
    fn only_watch_keeps_nothing() {
        let api = SharedFrames::default();
        let watch = api.clone();
        assert!(is_encoded(&watch, &object(), &encoding(Form::Object), 10));
        assert_eq!(api.0.lock().order.len(), 0);
    }

    #[test]
    fn oldest_events_make_room() {
        let api = SharedFrames::default();
        let _watches = [api.clone(), api.clone()];
        let (objects, whole) = ([object(), object(), object(), object(), object()], encoding(Form::Object));
        for object in &objects {
            assert!(is_encoded(&api, object, &whole, BYTES / 4));
        }
        assert_eq!(api.0.lock().bytes, BYTES);
        assert!(is_encoded(&api, &objects[0], &whole, BYTES / 4), "the oldest was dropped");
        assert!(!is_encoded(&api, &objects[4], &whole, BYTES / 4));
        assert!(is_encoded(&api, &object(), &whole, BYTES), "too long to be kept");
        let events = api.0.lock();
        assert_eq!((events.bytes, events.by_key.len(), events.order.len()), (BYTES, 4, 4));
    }
}

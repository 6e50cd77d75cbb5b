//! A stored object: its body (JSON or protobuf), plain or compressed, and its head, the decoded key, version and
//! labels.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use triomphe::ThinArc;

use super::body::{Body, Converted, Loaded};
use super::identifier_encoding::{KnownTexts, encode_identifiers};
use super::protobuf_body::{self, is_protobuf};
use super::{DecodeError, Dictionary, FieldPath, Members, ObjectKey, ResourceVersion, SharedStr, Uid};

/// Labels of an object, sorted by key. When interned, each distinct set and each distinct label has one allocation.
#[derive(Clone, Default)]
pub struct Labels(Option<ThinArc<(), Label>>);

/// One label as the text `key=value`: one pointer instead of two. A key contains no `=`.
pub(super) type Label = SharedStr;

fn key_and_value(label: &Label) -> (&str, &str) {
    // Labels are short: starting a vectorized search would cost more than it saves.
    let at = label.bytes().position(|byte| byte == b'=');
    at.map_or((label, ""), |at| (&label[..at], &label[at + 1..]))
}

impl Labels {
    /// Creates a label set. The last value of a repeated key wins. Pairs whose key contains `=` are not valid labels
    /// and are dropped.
    #[must_use]
    pub fn new(pairs: Vec<(SharedStr, SharedStr)>) -> Self {
        let legal = pairs.into_iter().filter(|(key, _)| !key.contains('='));
        Self::of(legal.map(|(key, value)| format!("{key}={value}").into()).collect())
    }

    /// Creates a label set from `key=value` texts.
    pub(super) fn of(mut labels: Vec<Label>) -> Self {
        fn key(label: &Label) -> &str {
            key_and_value(label).0
        }
        if labels.is_empty() {
            return Self(None);
        }
        // Servers send labels sorted by key.
        if !labels.is_sorted_by(|a, b| key(a) < key(b)) {
            labels.reverse();
            labels.sort_by(|a, b| key(a).cmp(key(b)));
            labels.dedup_by(|later, earlier| key(later) == key(earlier));
        }
        Self(Some(ThinArc::from_header_and_iter((), labels.into_iter())))
    }

    fn labels(&self) -> &[Label] {
        self.0.as_ref().map_or(&[], |labels| &labels.slice)
    }

    /// Returns the value of the label `key`; `None` if it is missing.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let labels = self.labels();
        let at = labels.binary_search_by(|label| key_and_value(label).0.cmp(key)).ok()?;
        Some(key_and_value(&labels[at]).1)
    }

    /// Returns all pairs, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels().iter().map(key_and_value)
    }

    /// Returns whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether both label sets share one allocation, as equal sets from one [`Interner`](super::Interner) do.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    /// Returns an identifier of this set, unique among all sets alive at the same time; zero for the empty set.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.as_ref().map_or(0, |labels| labels.as_ptr().addr())
    }

    /// Returns whether other references to this set exist.
    pub(super) fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|labels| ThinArc::strong_count(labels) > 1)
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || self.labels() == other.labels()
    }
}

impl Eq for Labels {}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.labels().hash(state);
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// One value of a declared index. An object can have several values for one index.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexEntry {
    /// Name of the index, e.g. `by-node`.
    pub index: SharedStr,
    /// Value, e.g. `node-7`.
    pub value: SharedStr,
}

/// Parts of a [`StoredObject`], as produced by a decoder.
#[derive(Debug)]
pub struct StoredObjectParts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Values of the declared indices.
    pub index_values: Vec<IndexEntry>,
    /// Body of the object: JSON without the fields that the informer drops, or protobuf in its envelope.
    pub json: Vec<u8>,
}

/// One object at one resourceVersion. Immutable for readers and shared by reference.
pub struct StoredObject {
    key: ObjectKey,
    uid: Uid,
    resource_version: ResourceVersion,
    labels: Labels,
    /// `None` without index values. This pointer takes 8 bytes; a boxed slice would take 16, even if empty.
    index_values: Option<ThinArc<(), IndexEntry>>,
    fleet_version: AtomicU64,
    body: Mutex<Body>,
}

impl StoredObject {
    /// Creates an object with a plain body.
    #[must_use]
    pub fn new(mut parts: StoredObjectParts) -> Self {
        let body = std::mem::take(&mut parts.json);
        Self::of(parts, body.into())
    }

    /// Creates an object with a shared plain body, without copying it. A body that starts with the four bytes `k8s\0`
    /// is a protobuf envelope; any other is JSON. `parts.json` is ignored.
    #[must_use]
    pub fn of(parts: StoredObjectParts, body: Arc<[u8]>) -> Self {
        Self {
            key: parts.key,
            uid: parts.uid,
            resource_version: parts.resource_version,
            labels: parts.labels,
            index_values: thin(parts.index_values),
            fleet_version: AtomicU64::new(0),
            body: Mutex::new(Body::Plain(body)),
        }
    }

    /// Creates an object without a body, which may be added later. `parts.json` is ignored.
    #[must_use]
    pub fn bare(parts: StoredObjectParts) -> Self {
        let object = Self::new(StoredObjectParts { json: Vec::new(), ..parts });
        object.exchange(Body::Unkept);
        object
    }

    /// Creates a placeholder for an object whose last state cannot be decoded, so that its deletion can be delivered.
    /// It is never stored.
    #[must_use]
    pub fn head_only(key: ObjectKey, uid: Uid, resource_version: ResourceVersion) -> Self {
        let (labels, index_values, json) = (Labels::default(), Vec::new(), Vec::new());
        Self::new(StoredObjectParts { key, uid, resource_version, labels, index_values, json })
    }

    /// Returns a copy without the body, for a store under a memory limit.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self {
            key: self.key.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            labels: self.labels.clone(),
            index_values: self.index_values.clone(),
            fleet_version: AtomicU64::new(self.fleet_version()),
            body: Mutex::new(Body::Unkept),
        }
    }

    /// Returns whether the body is in memory. If not, reading it fails with [`DecodeError::NotKept`].
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !matches!(&*self.body.lock(), Body::Unkept)
    }

    /// Returns the uncompressed length of the stored JSON or protobuf in bytes, also if the body is packed; zero if it
    /// is not in memory.
    #[must_use]
    pub fn plain_size(&self) -> usize {
        self.body.lock().plain_size()
    }

    /// Returns whether the body is empty, as in an object created by [`Self::head_only`].
    #[must_use]
    pub fn is_head_only(&self) -> bool {
        matches!(&*self.body.lock(), Body::Plain(bytes) if bytes.is_empty())
    }

    /// Returns namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Replaces the key with an equal one to share its allocation with the maps and indices of the store. Does nothing
    /// if the keys differ.
    pub fn share_key(&mut self, key: &ObjectKey) {
        if self.key == *key {
            self.key.clone_from(key);
        }
    }

    /// Returns `metadata.uid`, the object's identity.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Returns `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    /// Returns `metadata.labels`.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the values of the declared indices.
    #[must_use]
    pub fn index_values(&self) -> &[IndexEntry] {
        self.index_values.as_ref().map_or(&[], |values| &values.slice)
    }

    /// Returns the number of the change that brought this state, among all changes of the store. Zero if the store does
    /// not number its changes. This is not the resourceVersion.
    #[must_use]
    pub fn fleet_version(&self) -> u64 {
        self.fleet_version.load(Relaxed)
    }

    /// Sets the sequence number of the store's change that stores this state. Call it before the change is published.
    pub fn set_fleet_version(&self, version: u64) {
        self.fleet_version.store(version, Relaxed);
    }

    /// Returns the whole object as JSON. Free for plain JSON; a packed body is decompressed (about 3 µs for a pod).
    ///
    /// Protobuf is converted (about 10 µs for a pod). For a plain body, the result is kept until the body is packed.
    /// For a packed body, each call converts again.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is not in memory or its bytes are damaged.
    pub fn json(&self) -> Result<Arc<[u8]>, DecodeError> {
        if let Body::Converted(converted) = &*self.body.lock() {
            return Ok(Arc::clone(&converted.json));
        }
        let stored = self.stored()?;
        if !is_protobuf(&stored) {
            return Ok(stored);
        }
        let json = protobuf_body::json(&stored)?.into();
        Ok(self.keep_converted(stored, json))
    }

    /// Returns JSON that has at least the given members, and `kind` and `apiVersion`. A JSON body is returned whole. Of
    /// a protobuf body, only these members are converted (about 2 µs instead of 10 for a pod). The result is not
    /// cached.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is not in memory or its bytes are damaged.
    pub fn json_with(&self, wanted: &Members) -> Result<Arc<[u8]>, DecodeError> {
        let stored = self.stored()?;
        Ok(if is_protobuf(&stored) { protobuf_body::members(&stored, wanted)?.into() } else { stored })
    }

    /// Drops the body if it cannot be decompressed or converted to JSON. Returns whether it was dropped.
    #[must_use]
    pub fn drop_unreadable(&self) -> bool {
        let is_unreadable = matches!(self.json(), Err(DecodeError::Damaged(_)));
        if is_unreadable {
            self.exchange(Body::Unkept);
        }
        is_unreadable
    }

    /// Returns how many bytes the body counts against a limit on uncompressed bodies. Plain protobuf counts twice,
    /// because its JSON would be about twice as large. Once a reader has converted it, the actual sizes of the protobuf
    /// and the JSON count.
    #[must_use]
    pub fn weight(&self) -> usize {
        match &*self.body.lock() {
            Body::Plain(bytes) if is_protobuf(bytes) => bytes.len() * 2,
            body => body.size(),
        }
    }

    /// Returns the object in its protobuf envelope, as it is stored; `None` if it is stored as JSON. A packed body is
    /// decompressed.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is not in memory or its bytes are damaged.
    pub fn protobuf(&self) -> Result<Option<Arc<[u8]>>, DecodeError> {
        Ok(Some(self.stored()?).filter(|stored| is_protobuf(stored)))
    }

    /// Returns the body as it is stored, JSON or protobuf. A packed body is decompressed.
    fn stored(&self) -> Result<Arc<[u8]>, DecodeError> {
        match self.load() {
            Loaded::Plain(bytes) => Ok(bytes),
            Loaded::Packed(view) => Ok(self.with_known_texts(|known| view.stored(known))?.into()),
            Loaded::Unkept => Err(DecodeError::NotKept { key: self.key.clone() }),
        }
    }

    /// Stores `json`, converted from the body `protobuf`, beside that body. Does nothing if the body was replaced
    /// meanwhile. Returns `json`, or the equal JSON that another reader has stored first.
    fn keep_converted(&self, protobuf: Arc<[u8]>, json: Arc<[u8]>) -> Arc<[u8]> {
        let converted = Box::new(Converted { protobuf, json: Arc::clone(&json) });
        let mut body = self.body.lock();
        match &*body {
            Body::Plain(current) if Arc::ptr_eq(current, &converted.protobuf) => *body = Body::Converted(converted),
            Body::Converted(current) if Arc::ptr_eq(&current.protobuf, &converted.protobuf) => {
                return Arc::clone(&current.json);
            }
            _ => {}
        }
        json
    }

    /// Drops the JSON that [`Self::json`] has kept beside a protobuf body.
    pub(super) fn drop_converted(&self) {
        let mut body = self.body.lock();
        if let Body::Converted(converted) = &*body {
            let plain = Body::Plain(Arc::clone(&converted.protobuf));
            let before = std::mem::replace(&mut *body, plain);
            drop(body);
            drop(before);
        }
    }

    /// Returns the values at `path` as JSON, scalar or composite; empty if there are none.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is not in memory or its bytes are damaged.
    pub fn path(&self, path: &FieldPath) -> Result<Vec<serde_json::Value>, DecodeError> {
        let value: serde_json::Value = self.typed()?;
        Ok(path.select(&value).into_iter().cloned().collect())
    }

    /// Decodes the object into a Rust type (a `k8s_openapi` struct, a `kube::CustomResource`, a `serde_json::Value`).
    ///
    /// # Errors
    /// [`DecodeError`] if the body is not in memory, is damaged, or does not fit the type.
    pub fn typed<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        serde_json::from_slice(&self.json()?).map_err(|source| DecodeError::Mismatch { key: self.key.clone(), source })
    }

    /// Returns how many bytes the body currently occupies, in its own allocation or in a chunk that it shares with
    /// others; zero if it is not in memory. The first [`Self::json`] of a plain protobuf body adds the size of the
    /// JSON.
    #[must_use]
    pub fn body_size(&self) -> usize {
        self.body.lock().size()
    }

    /// Returns the body's plain bytes, JSON or protobuf; `None` if the body is packed (compressed) or not in memory.
    #[must_use]
    pub fn plain(&self) -> Option<Arc<[u8]>> {
        match self.load() {
            Loaded::Plain(bytes) => Some(bytes),
            Loaded::Packed(_) | Loaded::Unkept => None,
        }
    }

    /// Returns the body in the form in which it is compressed (with encoded identifiers), to train a dictionary with
    /// it; empty if the body cannot be read.
    #[must_use]
    pub fn sample(&self) -> Vec<u8> {
        let Ok(stored) = self.stored() else { return Vec::new() };
        let mut encoded = Vec::new();
        if self.with_known_texts(|known| encode_identifiers(&stored, known, &mut encoded)) {
            encoded
        } else {
            stored.to_vec()
        }
    }

    /// Returns whether a [`Packer`](super::Packer) may save memory by packing the packed (compressed) body again. This
    /// is so if the body's chunk has much unused space, or if the body is not compressed with `dictionary`. If
    /// `dictionary` is `None`, only the chunk is checked. Returns `false` if the body is not packed.
    #[must_use]
    pub fn wants_packing(&self, dictionary: Option<&Arc<Dictionary>>) -> bool {
        match &*self.body.lock() {
            Body::Packed(packed) => packed.wants_packing(dictionary),
            Body::Plain(_) | Body::Converted(_) | Body::Unkept => false,
        }
    }

    /// Returns the current body as it is stored. The result stays readable after the object's body is replaced.
    pub(super) fn load(&self) -> Loaded {
        self.body.lock().load()
    }

    /// Replaces the body with another form of the same content. A reader keeps the form that it has loaded.
    pub(super) fn exchange(&self, body: Body) {
        let before = std::mem::replace(&mut *self.body.lock(), body);
        // Dropped after the lock is released, since this may free a whole chunk.
        drop(before);
    }

    /// Calls `read` with UID, name and resourceVersion, which the encoding leaves out of the body.
    pub(super) fn with_known_texts<T>(&self, read: impl FnOnce(&KnownTexts<'_>) -> T) -> T {
        let (uid, version) = (self.uid.to_string(), self.resource_version.to_string());
        read(&[&uid, self.key.name(), &version])
    }

    /// Returns the JSON as text, lossily, for messages.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is not in memory or its bytes are damaged.
    pub fn json_text(&self) -> Result<String, DecodeError> {
        let json = self.json()?;
        Ok(match String::from_utf8_lossy(&json) {
            Cow::Borrowed(text) => text.to_owned(),
            Cow::Owned(text) => text,
        })
    }
}

/// Returns index values in one allocation behind a thin pointer.
fn thin(values: Vec<IndexEntry>) -> Option<ThinArc<(), IndexEntry>> {
    (!values.is_empty()).then(|| ThinArc::from_header_and_iter((), values.into_iter()))
}

impl fmt::Debug for StoredObject {
    /// Prints the head only: a body may contain a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredObject")
            .field("key", &self.key)
            .field("uid", &self.uid)
            .field("resource_version", &self.resource_version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn object(name: &str) -> StoredObject {
        StoredObject::new(parts(name))
    }

    fn parts(name: &str) -> StoredObjectParts {
        StoredObjectParts {
            key: ObjectKey::new("ns", name),
            uid: Uid::new(name),
            resource_version: ResourceVersion::new("1"),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"data":"{}"}}}}"#, "x".repeat(200)).into_bytes(),
        }
    }

    #[test]
    fn object_fits_its_size_class() {
        let sizes = [size_of::<Uid>(), size_of::<Labels>(), size_of::<Mutex<Body>>(), size_of::<StoredObject>()];
        // With the two reference counts of an `Arc` it fits into a size class of 112 bytes.
        assert_eq!(sizes, [16, 8, 32, 96]);
    }

    #[test]
    fn object_without_body_keeps_index_values_and_fleet_version() {
        let index_values = vec![IndexEntry { index: "by-node".into(), value: "n1".into() }];
        let parts = StoredObjectParts { index_values: index_values.clone(), ..parts("a") };
        let object = StoredObject::new(parts);
        assert_eq!(object.fleet_version(), 0);
        object.set_fleet_version(7);
        let bare = object.without_body();
        assert_eq!((bare.fleet_version(), bare.index_values()), (7, &*index_values));
        assert!(self::object("b").without_body().index_values().is_empty());
    }

    #[test]
    fn converted_json_is_kept_only_beside_the_body_that_it_was_converted_from() {
        let protobuf: Arc<[u8]> = Arc::from(&b"k8s\0"[..]);
        let (object, json): (_, Arc<[u8]>) =
            (StoredObject::of(parts("a"), Arc::clone(&protobuf)), Arc::from(&b"{}"[..]));
        let kept = |protobuf: &Arc<[u8]>| object.keep_converted(Arc::clone(protobuf), Arc::from(&b"{}"[..]));
        // Equal bytes in another allocation are another body.
        kept(&Arc::from(&*protobuf));
        assert_eq!(object.body_size(), 4);
        object.keep_converted(Arc::clone(&protobuf), Arc::clone(&json));
        assert_eq!(object.body_size(), 6);
        assert!(Arc::ptr_eq(&kept(&protobuf), &json), "a slower reader gets the JSON of the first");
        object.exchange(Body::Unkept);
        kept(&protobuf);
        assert!(!object.is_kept());
    }

    #[test]
    fn last_value_of_a_repeated_label_wins() {
        let labels = Labels::new(vec![("b".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), "3".into())]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!((labels.get("b"), labels.get("c")), (Some("3"), None));
    }

    #[test]
    fn debug_output_omits_the_body() {
        assert!(!format!("{:?}", object("web-1")).contains("xxx"));
    }
}

//! A stored object: its bytes in an encoding, plus the head that is worth keeping decoded.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::de::DeserializeOwned;

use super::{Codec, CodecError, DecodeError, Dictionary, FieldPath, ObjectKey, ResourceVersion, SharedStr};

/// The encoding of an object's bytes. JSON today; the accessors of [`StoredObject`] are the only readers, so that
/// another one (Kubernetes protobuf) touches nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// UTF-8 JSON, complete with `apiVersion` and `kind`.
    Json,
}

/// An object's bytes as they lie in memory. How they lie changes (young ones plain, aged ones compressed); what
/// they say never does.
#[derive(Clone, Debug)]
pub enum Body {
    /// As received, without what the projection dropped.
    Plain(Arc<[u8]>),
    /// Compressed against a dictionary of the resource.
    Packed {
        /// The compressed bytes.
        bytes: Box<[u8]>,
        /// Length before compression.
        len: u32,
        /// What it was compressed with.
        dictionary: Arc<Dictionary>,
    },
}

impl Body {
    /// Bytes on the heap, without the dictionary.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Packed { bytes, .. } => bytes.len(),
        }
    }
}

/// `metadata.uid`: sixteen bytes where it is a UUID, else the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(UidRepr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum UidRepr {
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Uid {
    /// Takes the UID over, whatever it looks like; empty where an object has none.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(parse_uuid(text).map_or_else(|| UidRepr::Text(text.into()), UidRepr::Uuid))
    }

    /// Whether the object had no UID.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, UidRepr::Text(text) if text.is_empty())
    }
}

/// The bytes of a lower-case, hyphenated UUID; `None` for anything that would not print back the same.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let nibble = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut out = [0_u8; 16];
    let mut at = 0;
    for (i, slot) in out.iter_mut().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            if bytes[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *slot = nibble(bytes[at])? << 4 | nibble(bytes[at + 1])?;
        at += 2;
    }
    Some(out)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidRepr::Text(text) => f.write_str(text),
            UidRepr::Uuid(bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// An object's labels, sorted by key; one allocation per distinct set when interned.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Labels(Option<Arc<[Label]>>);

/// Key and value.
type Label = (SharedStr, SharedStr);

impl Labels {
    /// Sorts `pairs` by key and takes them over; of a repeated key the last one counts.
    #[must_use]
    pub fn new(mut pairs: Vec<Label>) -> Self {
        if pairs.is_empty() {
            return Self(None);
        }
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        Self(Some(pairs.into()))
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let pairs = self.0.as_deref()?;
        let at = pairs.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        Some(&pairs[at].1)
    }

    /// All pairs, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.as_deref().unwrap_or_default().iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Whether there is no label.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Where the set lies: the same for clones of one set, different for sets that are held at the same time. Zero for
    /// the empty one.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.as_ref().map_or(0, |pairs| Arc::as_ptr(pairs).cast::<Label>() as usize)
    }

    /// Whether somebody besides the caller holds this set.
    pub(super) fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|pairs| Arc::strong_count(pairs) > 1)
    }
}

/// One value of one declared index. An object has any number of them, several for one index too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexEntry {
    /// The index, e.g. `by-node`.
    pub index: SharedStr,
    /// The value, e.g. `node-7`.
    pub value: SharedStr,
}

/// What a decoder hands over to make a [`StoredObject`].
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
    /// The projected JSON.
    pub json: Vec<u8>,
}

/// One object at one resourceVersion. Immutable to every reader; shared by reference.
pub struct StoredObject {
    key: ObjectKey,
    uid: Uid,
    resource_version: ResourceVersion,
    labels: Labels,
    index_values: Box<[IndexEntry]>,
    body: ArcSwap<Body>,
}

impl StoredObject {
    /// Makes an object, its body plain.
    #[must_use]
    pub fn new(parts: StoredObjectParts) -> Self {
        Self {
            key: parts.key,
            uid: parts.uid,
            resource_version: parts.resource_version,
            labels: parts.labels,
            index_values: parts.index_values.into(),
            body: ArcSwap::from_pointee(Body::Plain(parts.json.into())),
        }
    }

    /// What is known of an object whose last state cannot be taken in: its deletion can be told, nothing else. The store
    /// never holds one.
    #[must_use]
    pub fn head_only(key: ObjectKey, uid: Uid, resource_version: ResourceVersion) -> Self {
        let (labels, index_values, json) = (Labels::default(), Vec::new(), Vec::new());
        Self::new(StoredObjectParts { key, uid, resource_version, labels, index_values, json })
    }

    /// Whether it is one of those: it has no bytes.
    #[must_use]
    pub fn is_head_only(&self) -> bool {
        matches!(&**self.body.load(), Body::Plain(bytes) if bytes.is_empty())
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.uid`, the object's identity.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    /// `metadata.labels`.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Values of the declared indices.
    #[must_use]
    pub fn index_values(&self) -> &[IndexEntry] {
        &self.index_values
    }

    /// How the bytes are encoded.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        Encoding::Json
    }

    /// The whole object as JSON. Free for a young object, a decompression (about 2 µs for a pod) for an aged one.
    ///
    /// # Errors
    /// [`DecodeError`] when the stored bytes are damaged.
    pub fn json(&self) -> Result<Arc<[u8]>, DecodeError> {
        match &**self.body.load() {
            Body::Plain(bytes) => Ok(Arc::clone(bytes)),
            Body::Packed { bytes, len, dictionary } => Ok(Codec::decompress(bytes, *len as usize, dictionary)?.into()),
        }
    }

    /// The scalar or composite values at `path`, as JSON texts; empty where the path leads nowhere.
    ///
    /// # Errors
    /// [`DecodeError`] when the stored bytes are damaged.
    pub fn path(&self, path: &FieldPath) -> Result<Vec<serde_json::Value>, DecodeError> {
        let value: serde_json::Value = self.typed()?;
        Ok(path.select(&value).into_iter().cloned().collect())
    }

    /// The object as a Rust type (a `k8s_openapi` struct, a `kube::CustomResource`, a `serde_json::Value`).
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes do not fit the type, naming the object.
    pub fn typed<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        serde_json::from_slice(&self.json()?).map_err(|source| DecodeError::Mismatch { key: self.key.clone(), source })
    }

    /// Bytes that the body takes on the heap now.
    #[must_use]
    pub fn body_size(&self) -> usize {
        self.body.load().size()
    }

    /// The plain bytes, where they are still plain.
    #[must_use]
    pub fn plain(&self) -> Option<Arc<[u8]>> {
        match &**self.body.load() {
            Body::Plain(bytes) => Some(Arc::clone(bytes)),
            Body::Packed { .. } => None,
        }
    }

    /// Compresses the body in place, off anyone's way: readers keep what they have loaded.
    ///
    /// Returns the bytes that this freed; zero when it was packed before or does not get smaller.
    pub fn pack(&self, dictionary: &Arc<Dictionary>) -> usize {
        let Some(plain) = self.plain() else { return 0 };
        let Ok(len) = u32::try_from(plain.len()) else { return 0 };
        let Some(bytes) = Codec::compress(&plain, dictionary) else { return 0 };
        let freed = plain.len() - bytes.len();
        self.body.store(Arc::new(Body::Packed { bytes, len, dictionary: Arc::clone(dictionary) }));
        freed
    }

    /// The JSON as text, for messages to people; lossy.
    ///
    /// # Errors
    /// [`DecodeError`] when the stored bytes are damaged.
    pub fn json_text(&self) -> Result<String, DecodeError> {
        let json = self.json()?;
        Ok(match String::from_utf8_lossy(&json) {
            Cow::Borrowed(text) => text.to_owned(),
            Cow::Owned(text) => text,
        })
    }
}

impl From<CodecError> for DecodeError {
    fn from(source: CodecError) -> Self {
        Self::Damaged(source)
    }
}

impl fmt::Debug for StoredObject {
    /// The head alone: a body may hold a Secret.
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
        StoredObject::new(StoredObjectParts {
            key: ObjectKey::new("ns", name),
            uid: Uid::new(name),
            resource_version: ResourceVersion::new("1"),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"data":"{}"}}}}"#, "x".repeat(200)).into_bytes(),
        })
    }

    #[test]
    fn packing_changes_the_size_and_nothing_else() {
        let samples: Vec<_> = (0..300).map(|i| object(&format!("web-{i}")).json().unwrap()).collect();
        let dictionary = Arc::new(Dictionary::train(&samples).unwrap());
        let object = object("web-77");
        let before = object.json().unwrap();
        let freed = object.pack(&dictionary);
        assert!(freed > 0 && object.body_size() + freed == before.len());
        assert_eq!(object.json().unwrap(), before);
        assert_eq!(object.pack(&dictionary), 0);
        let path: FieldPath = "metadata.name".parse().unwrap();
        assert_eq!(object.path(&path).unwrap(), vec![serde_json::json!("web-77")]);
    }

    #[test]
    fn a_uid_comes_back_as_it_was() {
        for text in [
            "",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
            "x",
            "é".repeat(18).as_str(),
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
    }

    #[test]
    fn the_last_of_a_repeated_label_counts() {
        let labels = Labels::new(vec![("b".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), "3".into())]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!((labels.get("b"), labels.get("c")), (Some("3"), None));
    }

    #[test]
    fn debug_output_shows_no_body() {
        assert!(!format!("{:?}", object("web-1")).contains("xxx"));
    }
}

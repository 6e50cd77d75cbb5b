//! Decoder of objects and watch events: one pass over borrowed bytes.
//!
//! The body of a decoded object is syntactically valid JSON with `apiVersion` and `kind`, or protobuf that can be
//! converted to such JSON. A JSON value that is not a valid object becomes [`Skipped`]. Bytes that are not JSON become
//! [`ErrorClass::Malformed`](super::ErrorClass::Malformed). No message quotes object data.

use std::ops::Range;
use std::sync::Arc;

use super::KEPT_CAPACITY;
use super::envelope::Envelope;
use super::error::{SourceError, malformed};
use super::event::{Skipped, WatchItem};
use super::paths::Paths;
use super::projection::Projection;
use super::protobuf_state::Protobuf;
use super::scan::{self, Scanned};
use super::status::{bounded, classify_status};
use super::transform::Transform;
use super::trie::Trie;
use super::walk::{Head, Walk};
use informer_hub_protobuf::{Excerpt, TypeMeta};
use informer_hub_types::{
    ApiResource, FieldPath, IndexEntry, Interner, Labels, ObjectKey, ResourceVersion, SharedStr, StoredObject,
    StoredObjectParts, Uid,
};

/// Decoder for the objects of one resource. Keeps its scratch buffers and the interned strings of its objects.
#[derive(Debug)]
pub struct Decoder {
    resource: ApiResource,
    paths: Arc<Paths>,
    pub(super) index_names: Vec<SharedStr>,
    pub(super) interner: Interner,
    cuts: Vec<Range<usize>>,
    kept: Vec<u8>,
    /// Scratch buffer of the projected JSON.
    output: Vec<u8>,
    /// The JSON members `"apiVersion":"…",` and `"kind":"…",`, which are inserted into objects that lack them.
    default_members: [String; 2],
    /// `apiVersion` of the resource's objects, such as `apps/v1`.
    pub(super) api_version: SharedStr,
    pub(super) transform: Option<Transform>,
    pub(super) protobuf: Protobuf,
}

/// A decoded object, or the reason why there is none.
#[derive(Debug)]
pub enum Decoded {
    /// A valid object.
    Object(Arc<StoredObject>),
    /// An object that cannot be stored: it is not a valid object of the resource, not UTF-8 or too large, or its
    /// transform failed.
    Skipped(Skipped),
}

/// Result of decoding the start of a buffer.
#[derive(Debug)]
pub enum Next {
    /// A whole value, and its length in bytes.
    Value(Decoded, usize),
    /// The buffer ends inside the value.
    Incomplete,
}

/// Result of reading an object: the fields that identify it, its labels, and its index values.
pub(super) struct WalkResult<'de> {
    pub(super) head: Head<'de>,
    pub(super) labels: Labels,
    pub(super) index_values: Vec<IndexEntry>,
}

/// Bytes of a received object, as JSON or as protobuf.
pub(super) enum Bytes<'b> {
    /// A buffer, and the range of bytes in it that is the object's JSON.
    Json(&'b [u8], Range<usize>),
    /// An object that stays protobuf: the [`Excerpt`] that encodes it for the store, its `apiVersion` and `kind`, and
    /// its protobuf message.
    Protobuf(&'b Excerpt, TypeMeta<'b>, &'b [u8]),
}

/// Result of a transform: labels, index values and JSON.
type TransformResult = (Labels, Vec<IndexEntry>, Arc<[u8]>);

impl Decoder {
    /// Creates a decoder for one resource. `indexes` are pairs of an index name and the path of its values. If indexes
    /// have the same path, their values are listed in the order of `indexes`.
    #[must_use]
    pub fn new(resource: ApiResource, projection: &Projection, indexes: Vec<(SharedStr, FieldPath)>) -> Self {
        let paths = Paths::shared(projection, &indexes);
        let protobuf = Protobuf::new(&resource, Arc::clone(&paths));
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let api_version = resource.gvr.api_version();
        let default_members =
            [format!("\"apiVersion\":{},", quoted(&api_version)), format!("\"kind\":{},", quoted(&resource.kind))];
        let index_names = indexes.into_iter().map(|(name, _)| name).collect();
        let (interner, cuts, kept, output) = (Interner::default(), Vec::new(), Vec::new(), Vec::new());
        Self {
            resource,
            paths,
            index_names,
            interner,
            cuts,
            kept,
            output,
            default_members,
            api_version: api_version.into(),
            transform: None,
            protobuf,
        }
    }

    /// Sets the transform, which changes each object before it is stored.
    #[must_use]
    pub fn with_transform(self, transform: Option<Transform>) -> Self {
        Self { transform, ..self }
    }

    /// Drops interned strings that no object uses.
    pub fn trim(&mut self) {
        self.interner.trim();
    }

    /// Frees the scratch buffers, which would otherwise stay allocated while the watch is idle.
    fn rest(&mut self) {
        self.interner.rest();
        (self.cuts, self.kept, self.output) = (Vec::new(), Vec::new(), Vec::new());
        self.protobuf.free();
    }

    /// Returns the resource whose objects this decodes.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Decodes one whole object.
    ///
    /// # Errors
    /// [`ErrorClass::Malformed`](super::ErrorClass::Malformed) if the bytes are not JSON.
    pub fn decode_object(&mut self, json: &[u8]) -> Result<Decoded, SourceError> {
        match self.decode_next(json)? {
            Next::Value(decoded, used) if json[used..].trim_ascii().is_empty() => Ok(decoded),
            Next::Value(..) => Err(malformed("object: trailing bytes")),
            Next::Incomplete => Err(malformed("object: truncated")),
        }
    }

    /// Decodes the object at the start of `bytes`. Other bytes may follow it. If the object is incomplete, returns
    /// [`Next::Incomplete`].
    ///
    /// # Errors
    /// [`ErrorClass::Malformed`](super::ErrorClass::Malformed) if the bytes are invalid JSON, which further bytes
    /// cannot complete.
    pub fn decode_next(&mut self, bytes: &[u8]) -> Result<Next, SourceError> {
        let (found, result) = self.walk_object(bytes);
        let used = match result {
            Ok(used) => used,
            Err(at) if at >= bytes.len() => return Ok(Next::Incomplete),
            Err(at) => return Err(invalid_json("object", bytes, at)),
        };
        if used == bytes.len() && !matches!(bytes.last(), Some(b'}' | b']' | b'"')) {
            // A number or a word may continue in the next bytes.
            return Ok(Next::Incomplete);
        }
        let start = bytes.len() - bytes.trim_ascii_start().len();
        Ok(Next::Value(self.build(found, Bytes::Json(bytes, start..used)), used))
    }

    /// Decodes one line of a watch.
    ///
    /// # Errors
    /// For an ERROR event, the error that it reports. [`ErrorClass::Malformed`](super::ErrorClass::Malformed) if the
    /// line is not an event.
    pub fn decode_event(&mut self, line: &[u8]) -> Result<WatchItem, SourceError> {
        let (mut envelope, input) = (Envelope::default(), line);
        let (found, result) = self.walk(line, false, |walk| match envelope.read(input, walk)? {
            end if scan::is_over(input, end) => Ok(end),
            end => Err(end),
        });
        if let Err(at) = result {
            return Err(invalid_json("watch event", line, at));
        }
        let Some(kind) = envelope.kind else { return Err(malformed("watch event: no type")) };
        let Some(span) = envelope.object else { return Err(malformed("watch event: no object")) };
        if kind == "ERROR" {
            return Err(classify_status(500, &line[span], None));
        }
        Ok(self.event(&kind, found, Bytes::Json(line, span)))
    }

    /// Returns the watch event of type `kind` for an object. The caller has already handled the type `ERROR`.
    pub(super) fn event(&mut self, kind: &str, found: WalkResult<'_>, bytes: Bytes<'_>) -> WatchItem {
        if kind == "BOOKMARK" {
            // Free the buffers now and then: apiservers send a bookmark about once a minute, and at the end of a
            // streaming list.
            self.rest();
            let version = ResourceVersion::new(found.head.version.as_deref().unwrap_or_default());
            return WatchItem::Bookmark { version, initial_events_end: found.head.initial_events_end };
        }
        let event = match kind {
            "ADDED" => WatchItem::Added,
            "MODIFIED" => WatchItem::Modified,
            "DELETED" => WatchItem::Deleted,
            other => {
                let reason = format!("unknown event type {:?}", bounded(other));
                return WatchItem::Skipped(self.skipped(&found.head, true, reason));
            }
        };
        let (uid, is_own) = (found.head.uid.clone(), self.kind_mismatch(&found.head).is_none());
        match self.build(found, bytes) {
            Decoded::Object(object) => event(object),
            Decoded::Skipped(skipped) if is_own => skipped_event(kind, uid.as_deref(), skipped),
            // The deletion of an object of another kind does not delete the stored object of that name.
            Decoded::Skipped(skipped) => WatchItem::Skipped(skipped),
        }
    }

    /// Returns the [`Skipped`] for an oversized object, with the key and version found in its first bytes, `head`.
    /// `reason` says why the object is skipped.
    #[must_use]
    pub fn skip_object(&mut self, head: &[u8], reason: String) -> Skipped {
        let (found, result) = self.walk_object(head);
        self.skipped(&found.head, result.is_ok(), reason)
    }

    /// Returns the watch event for an object that is too large to decode. `head` is the object's metadata as JSON,
    /// `{"metadata":{…}}`, or `{}` if the metadata is unknown.
    pub(super) fn skip_event_of(&mut self, kind: &str, head: &[u8], reason: String) -> WatchItem {
        let (found, result) = self.walk_object(head);
        let skipped = self.skipped(&found.head, result.is_ok(), reason);
        skipped_event(kind, found.head.uid.as_deref(), skipped)
    }

    /// Returns the watch event for an oversized line. Type and key are found in its first bytes, `head`.
    #[must_use]
    pub fn skip_event(&mut self, head: &[u8], reason: String) -> WatchItem {
        let mut envelope = Envelope::default();
        let (found, result) = self.walk(head, false, |walk| envelope.read(head, walk));
        let skipped = self.skipped(&found.head, result.is_ok(), reason);
        skipped_event(envelope.kind.as_deref().unwrap_or_default(), found.head.uid.as_deref(), skipped)
    }

    /// Reads identity, labels and index values of an object in JSON. Also records the spans that the projection keeps
    /// or drops.
    pub(super) fn walk_object<'de>(&mut self, json: &'de [u8]) -> (WalkResult<'de>, Scanned) {
        self.walk(json, false, |walk| walk.value(Trie::ROOT, 0))
    }

    /// Does the same as [`Self::walk_object`] for JSON that was just converted from protobuf. The converter has
    /// recorded where members end, so unneeded members are skipped without being read.
    pub(super) fn walk_converted<'de>(&mut self, json: &'de [u8]) -> (WalkResult<'de>, Scanned) {
        self.walk(json, true, |walk| walk.value(Trie::ROOT, 0))
    }

    /// Walks over `input`: creates a [`Walk`] and calls `run` with it. Returns the values that the walk has found, and
    /// the result of `run`. `is_converted` is true if `input` is the JSON that was converted from protobuf last.
    fn walk<'de>(
        &mut self,
        input: &'de [u8],
        is_converted: bool,
        run: impl FnOnce(&mut Walk<'_, 'de>) -> Scanned,
    ) -> (WalkResult<'de>, Scanned) {
        self.cuts.clear();
        self.kept.clear();
        let mut walk = Walk {
            trie: &self.paths.trie,
            names: &self.index_names,
            interner: &mut self.interner,
            input,
            extents: if is_converted { self.protobuf.extents() } else { &[] },
            head: Head::default(),
            labels: Labels::default(),
            index_values: Vec::new(),
            cuts: &mut self.cuts,
            kept: &mut self.kept,
            projecting: true,
        };
        let result = run(&mut walk);
        (WalkResult { head: walk.head, labels: walk.labels, index_values: walk.index_values }, result)
    }

    /// Builds the stored object from its bytes and the result of a walk over them.
    pub(super) fn build(&mut self, found: WalkResult<'_>, bytes: Bytes<'_>) -> Decoded {
        let WalkResult { head, labels, index_values } = found;
        // The walk does not check UTF-8. The end of the object is known, so skipping this object is enough. An error
        // would fail the whole list, again at each retry.
        if let Bytes::Json(input, span) = &bytes
            && simdutf8::basic::from_utf8(&input[span.clone()]).is_err()
        {
            return Decoded::Skipped(self.skipped(&head, true, "not UTF-8".to_owned()));
        }
        if let Some(skipped) = self.invalid_reason(&head) {
            return Decoded::Skipped(skipped);
        }
        let name = head.name.as_deref().unwrap_or_default();
        let namespace = head.namespace.as_deref().unwrap_or_default();
        let body = match bytes {
            Bytes::Json(input, span) => self.json(&head, input, span),
            Bytes::Protobuf(excerpt, type_meta, message) => {
                self.output.clear();
                if let Err(error) = excerpt.write(type_meta, message, &mut self.output) {
                    return Decoded::Skipped(self.skipped(&head, true, error.to_string()));
                }
                copy_scratch(&mut self.output)
            }
        };
        let parts = StoredObjectParts {
            key: ObjectKey::new(namespace, name),
            uid: Uid::new(head.uid.as_deref().unwrap_or_default()),
            resource_version: ResourceVersion::new(head.version.as_deref().unwrap_or_default()),
            labels,
            index_values,
            json: Vec::new(),
        };
        match self.transform.clone() {
            None => Decoded::Object(Arc::new(StoredObject::of(parts, body))),
            Some(transform) => match self.transformed(&transform, &parts.key, &body) {
                Ok((labels, index_values, json)) => {
                    let parts = StoredObjectParts { labels, index_values, ..parts };
                    Decoded::Object(Arc::new(StoredObject::of(parts, json)))
                }
                Err(problem) => Decoded::Skipped(Skipped {
                    key: Some(parts.key),
                    version: Some(parts.resource_version),
                    reason: format!("transform failed: {}", bounded(&problem)),
                }),
            },
        }
    }

    /// Returns why a JSON value is not a valid object of this resource; `None` if it is valid.
    fn invalid_reason(&self, head: &Head<'_>) -> Option<Skipped> {
        let name = head.name.as_deref().unwrap_or_default();
        let namespace = head.namespace.as_deref().unwrap_or_default();
        let reason = if !head.is_object {
            "not an object".to_owned()
        } else if name.is_empty() {
            let kind = head.kind.as_deref().unwrap_or(&self.resource.kind);
            format!("an object of kind {:?} without metadata.name", bounded(kind))
        } else if name.contains('/') || namespace.contains('/') {
            "metadata.name or metadata.namespace has a slash".to_owned()
        } else {
            return self.kind_mismatch(head).map(|reason| self.skipped(head, true, reason));
        };
        Some(Skipped { key: None, version: None, reason })
    }

    /// Runs the transform on an object's JSON, and reads labels and index values from the result. Fails if the result
    /// is not an object, or its key is not `own`, the key of the original object.
    fn transformed(&mut self, transform: &Transform, own: &ObjectKey, json: &[u8]) -> Result<TransformResult, String> {
        let json = transform.apply(json)?;
        let (found, result) = self.walk_object(&json);
        let WalkResult { head, labels, index_values } = found;
        if result.is_err() || !head.is_object {
            return Err("the result is not an object".to_owned());
        }
        let name = head.name.as_deref().unwrap_or_default();
        let key = ObjectKey::new(head.namespace.as_deref().unwrap_or_default(), name);
        if key != *own {
            return Err(format!(
                "the result has another key, {:?}; a transform must not change name or namespace",
                key.as_str()
            ));
        }
        let json = self.json(&head, &json, 0..json.len());
        Ok((labels, index_values, json))
    }

    /// Returns an error text if the object's kind or apiVersion differs from the resource's. Accepts a missing kind or
    /// apiVersion, as in list items, and the kind `PartialObjectMetadata`.
    fn kind_mismatch(&self, head: &Head<'_>) -> Option<String> {
        let api_version = head.api_version.as_deref().filter(|text| !text.is_empty()).unwrap_or(&self.api_version);
        let kind = head.kind.as_deref().filter(|text| !text.is_empty()).unwrap_or(&self.resource.kind);
        self.type_mismatch(kind, api_version)
    }

    /// Returns an error text if `kind` and `api_version` are neither the resource's nor those of
    /// `PartialObjectMetadata`.
    pub(super) fn type_mismatch(&self, kind: &str, api_version: &str) -> Option<String> {
        let is_own = kind == self.resource.kind && api_version == self.api_version;
        let is_metadata = kind == "PartialObjectMetadata" && api_version.starts_with("meta.k8s.io/");
        (!is_own && !is_metadata).then(|| self.unexpected_type(kind, api_version, &self.resource.kind))
    }

    /// Returns the text of an error: an object has this `kind` and `api_version`, but the kind `expected` and the
    /// `apiVersion` of the resource were expected.
    pub(super) fn unexpected_type(&self, kind: &str, api_version: &str, expected: &str) -> String {
        let (kind, api_version) = (bounded(kind), bounded(api_version));
        format!("unexpected kind {kind:?} of {api_version:?}, expected {expected:?} of {:?}", self.api_version)
    }

    /// Returns an object's JSON after the projection, which either keeps or drops spans of it. A missing `apiVersion`
    /// or `kind` is inserted at the start.
    fn json(&mut self, head: &Head<'_>, input: &[u8], span: Range<usize>) -> Arc<[u8]> {
        let api_version = if head.api_version.is_none() { self.default_members[0].as_str() } else { "" };
        let kind = if head.kind.is_none() { self.default_members[1].as_str() } else { "" };
        // Build it in the scratch buffer, then copy it once to its final place.
        let out = &mut self.output;
        out.clear();
        out.push(b'{');
        out.extend_from_slice(api_version.as_bytes());
        out.extend_from_slice(kind.as_bytes());
        if self.paths.trie.keep_mode {
            out.extend_from_slice(&self.kept[1..]);
            return copy_scratch(out);
        }
        let mut at = span.start + 1;
        for cut in &self.cuts {
            out.extend_from_slice(&input[at..cut.start]);
            let rest = input[cut.end..span.end].trim_ascii_start();
            if rest.first() == Some(&b',') {
                at = span.end - rest.len() + 1;
            } else {
                // The last member or element was cut: remove the comma before it.
                out.truncate(out.trim_ascii_end().len());
                if out.last() == Some(&b',') {
                    out.pop();
                }
                at = cut.end;
            }
        }
        out.extend_from_slice(&input[at..span.end]);
        copy_scratch(out)
    }

    /// Returns the [`Skipped`] for an object with this head. `whole` is false if only the object's first bytes were
    /// read. The namespace may then be unknown, and the result has no key.
    fn skipped(&self, head: &Head<'_>, whole: bool, reason: String) -> Skipped {
        let name = head.name.as_deref().filter(|name| !name.is_empty() && !name.contains('/'));
        let namespace = head.namespace.as_deref().filter(|namespace| !namespace.contains('/'));
        let certain = whole || namespace.is_some() || !self.resource.namespaced;
        let key = name.filter(|_| certain).map(|name| ObjectKey::new(namespace.unwrap_or_default(), name));
        Skipped { key, version: head.version.as_deref().map(ResourceVersion::new), reason }
    }
}

/// Returns the event for an object that cannot be decoded: a deletion if `kind` is `DELETED` and the object's key is
/// known, otherwise a skipped event.
fn skipped_event(kind: &str, uid: Option<&str>, skipped: Skipped) -> WatchItem {
    match skipped.key {
        Some(key) if kind == "DELETED" => {
            let version = skipped.version.unwrap_or_else(|| ResourceVersion::new(""));
            WatchItem::Deleted(Arc::new(StoredObject::head_only(key, Uid::new(uid.unwrap_or_default()), version)))
        }
        key => WatchItem::Skipped(Skipped { key, ..skipped }),
    }
}

/// Copies a scratch buffer, and frees it if it is large.
fn copy_scratch(scratch: &mut Vec<u8>) -> Arc<[u8]> {
    let copy = Arc::from(scratch.as_slice());
    if scratch.capacity() > KEPT_CAPACITY {
        *scratch = Vec::new();
    }
    copy
}

/// Returns the error for invalid JSON at offset `at`, with line and column. Does not quote the bytes.
fn invalid_json(what: &str, bytes: &[u8], at: usize) -> SourceError {
    let before = &bytes[..at.min(bytes.len())];
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1) + 1;
    malformed(format!("{what}: invalid JSON at line {line} column {column}"))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;

//! Decoder of objects and watch events in Kubernetes protobuf.
//!
//! An object of a built-in type usually stays protobuf: one pass checks it and finds the identity, labels and index
//! values.
//!
//! An object is converted to JSON at arrival in these cases: a transform is set; the projection or an index needs JSON;
//! the object is large or has a rare form.

use super::decode::{Bytes, Decoded, Decoder, WalkResult};
use super::error::{ErrorClass, SourceError, malformed};
use super::event::{Skipped, WatchItem};
use super::paths::READ;
use super::protobuf_state::Items;
use super::status::{bounded, classify_status};
use super::walk::Head;
use informer_hub_protobuf::{ConvertError, Envelope, Excerpt, Found, MessageId, Schema, TypeMeta, WatchEvent};
use informer_hub_types::{EncodingInUse, IndexEntry, JsonReason};

/// Kind of the objects in an answer to a metadata-only request.
const PARTIAL: &str = "PartialObjectMetadata";

impl Decoder {
    /// Returns whether to request protobuf: for built-in types, and for all types if only metadata is requested.
    ///
    /// Returns `false` for a while after the server refused protobuf, or after several answers or an object could not
    /// be decoded.
    #[must_use]
    pub fn wants_protobuf(&self, metadata_only: bool) -> bool {
        (self.protobuf.is_builtin || metadata_only) && !self.protobuf.is_refused()
    }

    /// Returns the encoding in use, and why it is JSON if [`Self::wants_protobuf`] is false.
    #[must_use]
    pub fn encoding(&self, metadata_only: bool) -> EncodingInUse {
        self.protobuf.in_use(metadata_only)
    }

    /// Requests JSON instead of protobuf, for a time that depends on `reason`: ten minutes to six hours.
    pub fn refuse_protobuf(&mut self, reason: JsonReason, message: &str) {
        self.protobuf.refuse(reason, bounded(message));
    }

    /// Counts `error` as a failure of protobuf if it is [`ErrorClass::Malformed`], and returns it unchanged.
    ///
    /// After three failures in a row, the decoder requests JSON for ten minutes. Then it tries protobuf again. The next
    /// failure leads to JSON immediately, unless an event or a whole list was decoded before.
    pub(super) fn not_protobuf(&mut self, error: SourceError) -> SourceError {
        if error.class == ErrorClass::Malformed {
            self.protobuf.failed(bounded(&error.message));
        }
        error
    }

    /// Returns how to decode the items of a list: their protobuf message type and, for a list of partial metadata, the
    /// `apiVersion` and `kind` of the items.
    pub(super) fn items(&self, list: &Envelope<'_>) -> Result<Items, SourceError> {
        let Envelope { api_version, kind, .. } = list;
        let resource = self.resource();
        let is_own = *api_version == resource.gvr.api_version() && kind.strip_suffix("List") == Some(&resource.kind);
        let is_partial = kind.strip_suffix("List") == Some(PARTIAL) && api_version.starts_with("meta.k8s.io/");
        let schema = Schema::builtin();
        let message = schema.kind(api_version, kind).and_then(|list| schema.items(list));
        match message.filter(|_| is_own || is_partial) {
            Some(message) => {
                // Items of a list of partial metadata have a kind of their own in JSON.
                let type_meta = is_partial.then_some(TypeMeta { api_version: "meta.k8s.io/v1", kind: PARTIAL });
                Ok(Items { message, type_meta })
            }
            None if *kind == "Status" => {
                Err(malformed("list: the server answered 200 with a Status instead of a list"))
            }
            None => {
                let expected = format!("{}List", resource.kind);
                Err(malformed(format!("list: {}", self.unexpected_type(kind, api_version, &expected))))
            }
        }
    }

    pub(super) fn decode_item(&mut self, items: Items, bytes: &[u8], limit: usize) -> Result<Decoded, SourceError> {
        if items.type_meta.is_none() {
            let (api_version, kind) = (self.api_version.clone(), self.resource().kind.clone());
            let type_meta = TypeMeta { api_version: &api_version, kind: &kind };
            let decoded = self.excerpt(items.message, type_meta, bytes, limit, Self::build);
            if let Some(decoded) = decoded {
                return Ok(decoded);
            }
        }
        match self.protobuf.object(items.message, items.type_meta, bytes, limit) {
            Ok(()) => {
                let json = std::mem::take(&mut self.protobuf.json);
                let (found, result) = self.walk_converted(&json);
                let decoded = match result {
                    Ok(end) => Ok(self.build(found, Bytes::Json(&json, 0..end))),
                    Err(_) => Err(malformed("object: invalid JSON after conversion")),
                };
                self.protobuf.keep(json);
                decoded
            }
            Err(ConvertError::TooLarge) => Ok(Decoded::Skipped(self.skip_item(items, bytes, limit, too_large(limit)))),
            Err(error) => Err(self.needs_json(&error)),
        }
    }

    /// Reads an object that is to be stored as protobuf, and returns the result of `build`. Returns `None` if the
    /// object must be converted to JSON instead.
    fn excerpt<T>(
        &mut self,
        message: MessageId,
        type_meta: TypeMeta<'_>,
        bytes: &[u8],
        limit: usize,
        build: impl FnOnce(&mut Self, WalkResult<'_>, Bytes<'_>) -> T,
    ) -> Option<T> {
        if self.transform.is_some() {
            return None;
        }
        let excerpt = self.protobuf.excerpt(message, bytes, limit)?;
        let found = self.read_excerpt(&excerpt, type_meta, bytes);
        let object = found.map(|found| build(self, found, Bytes::Protobuf(&excerpt, type_meta, bytes)));
        self.protobuf.keep_excerpt(excerpt);
        object
    }

    /// Reads the identity, labels and index values of an object. Returns `None` if it must be converted to JSON
    /// instead.
    fn read_excerpt<'b>(
        &mut self,
        excerpt: &Excerpt,
        type_meta: TypeMeta<'b>,
        bytes: &'b [u8],
    ) -> Option<WalkResult<'b>> {
        let mut head = Head {
            api_version: Some(type_meta.api_version.into()),
            kind: Some(type_meta.kind.into()),
            is_object: true,
            ..Head::default()
        };
        let (mut labels, mut index_values) = (Vec::new(), Vec::new());
        let mut take = |path: usize, found| match (path.checked_sub(READ.len()), found) {
            (None, Found::Entry(key, value)) => labels.push((key, value)),
            (None, Found::Scalar(text)) => {
                // In the order of `READ`.
                let slots = [&mut head.name, &mut head.namespace, &mut head.uid, &mut head.version];
                if let Some(slot) = slots.into_iter().nth(path) {
                    *slot = Some(text);
                }
            }
            (Some(number), Found::Scalar(text)) => {
                if let Some(index) = self.index_names.get(number) {
                    index_values.push(IndexEntry { index: index.clone(), value: self.interner.string(&text) });
                }
            }
            // The value of a map is not a scalar, so it has no index.
            (Some(_), Found::Entry(..)) => {}
        };
        excerpt.read(bytes, &mut take).ok()?;
        Some(WalkResult { head, labels: self.interner.labels(labels), index_values })
    }

    /// Records that a whole list was read. Resets the count of failures.
    pub(super) fn list_worked(&mut self) {
        self.protobuf.worked();
    }

    /// Returns the [`Skipped`] for an oversized list item, with the key and version found in its first bytes, `bytes`.
    pub(super) fn skip_item(&mut self, items: Items, bytes: &[u8], limit: usize, reason: String) -> Skipped {
        let head = self.protobuf.head(items.message, bytes, limit);
        self.skip_object(&head, reason)
    }

    /// Decodes one frame of a watch in protobuf, given without its length prefix. An object may have at most `limit`
    /// bytes of JSON.
    ///
    /// # Errors
    /// The error of an ERROR event; [`ErrorClass::Malformed`] if the frame is not an event. [`ErrorClass::Transient`]
    /// if the object cannot be converted: [`Self::wants_protobuf`] is then false for a while.
    pub fn decode_frame(&mut self, frame: &[u8], limit: usize) -> Result<WatchItem, SourceError> {
        let event = WatchEvent::read(frame).map_err(|error| self.bad_frame(&error))?;
        if event.kind == "ERROR" {
            return Err(classify_status(500, event.object, None));
        }
        if event.kind.is_empty() || event.object.is_empty() {
            let missing = if event.kind.is_empty() { "no type" } else { "no object" };
            return Err(self.not_protobuf(malformed(format!("watch event: {missing}"))));
        }
        let object = Envelope::read(event.object).map_err(|error| self.bad_frame(&error))?;
        let Envelope { api_version, kind, raw } = object;
        let Some(message) = Schema::builtin().kind(api_version, kind) else {
            let (kind, api_version) = (bounded(kind), bounded(api_version));
            let reason = format!("unexpected kind {kind:?} of {api_version:?}");
            return Ok(WatchItem::Skipped(Skipped { key: None, version: None, reason }));
        };
        if let Some(reason) = self.type_mismatch(kind, api_version) {
            return Ok(WatchItem::Skipped(Skipped { key: None, version: None, reason }));
        }
        let type_meta = TypeMeta { api_version, kind };
        if event.kind != "BOOKMARK" && kind != PARTIAL {
            let item = self.excerpt(message, type_meta, raw, limit, |decoder, found, bytes| {
                decoder.event(event.kind, found, bytes)
            });
            if let Some(item) = item {
                self.protobuf.worked();
                return Ok(item);
            }
        }
        match self.protobuf.object(message, Some(type_meta), raw, limit) {
            Ok(()) => {
                self.protobuf.worked();
                let json = std::mem::take(&mut self.protobuf.json);
                let (found, result) = self.walk_converted(&json);
                let item = match result {
                    Ok(end) => Ok(self.event(event.kind, found, Bytes::Json(&json, 0..end))),
                    Err(_) => Err(malformed("watch event: invalid JSON after conversion")),
                };
                if !matches!(item, Ok(WatchItem::Bookmark { .. })) {
                    self.protobuf.keep(json);
                }
                item
            }
            Err(ConvertError::TooLarge) => {
                let head = self.protobuf.head(message, raw, limit);
                Ok(self.skip_event_of(event.kind, &head, too_large(limit)))
            }
            Err(error) => Err(self.needs_json(&error)),
        }
    }

    /// Returns the event for a frame that is too large to decode. Its object is identified by the frame's first bytes,
    /// `head`.
    #[must_use]
    pub fn skip_frame(&mut self, head: &[u8], reason: String) -> WatchItem {
        // The frame is cut off, so the lengths of its outer messages exceed the available bytes. Each message is read
        // up to the cut.
        let skipped = WatchItem::Skipped(Skipped { key: None, version: None, reason: reason.clone() });
        let Some((kind, object)) = truncated_event(head) else { return skipped };
        let Some(message) = Schema::builtin().kind(object.api_version, object.kind) else { return skipped };
        let head = self.protobuf.head(message, object.raw, head.len().saturating_mul(8));
        self.skip_event_of(kind, &head, reason)
    }

    fn bad_frame(&mut self, error: &ConvertError) -> SourceError {
        self.not_protobuf(malformed(format!("watch event: {error}")))
    }

    /// Returns the error for an object that cannot be converted in full. The reflector then repeats the request and
    /// asks for JSON.
    ///
    /// A malformed object is not skipped: if its length is wrong, the next object does not start where the decoder
    /// would look for it.
    fn needs_json(&mut self, error: &ConvertError) -> SourceError {
        let version = Schema::builtin().version();
        let (reason, message) = if error.needs_json() {
            let message =
                format!("{error} (schema of Kubernetes {version}); reading the resource as JSON for six hours");
            (JsonReason::Schema, message)
        } else {
            (JsonReason::Faulty, format!("{error}; reading the resource as JSON for ten minutes"))
        };
        self.protobuf.refuse(reason, message.clone());
        SourceError { class: ErrorClass::Transient, message }
    }
}

fn too_large(limit: usize) -> String {
    format!("larger than the limit of {limit} bytes")
}

/// Reads the type and the object of a truncated watch event; `None` if the event is cut before its object.
fn truncated_event(head: &[u8]) -> Option<(&str, Envelope<'_>)> {
    let (kind, rest) = field(head, 1)?;
    let (extension, _) = field(rest, 2)?;
    let (unknown, _) = field(extension, 1)?;
    let (type_meta, rest) = field(unknown.strip_prefix(informer_hub_protobuf::MAGIC)?, 1)?;
    let (raw, _) = field(rest, 2)?;
    let mut envelope = Envelope { raw, ..Envelope::default() };
    envelope.type_meta(type_meta).ok()?;
    Some((std::str::from_utf8(kind).ok()?, envelope))
}

/// Returns the content of field `number` at the start of `bytes`, cut if `bytes` end within it, and the bytes after it.
fn field(bytes: &[u8], number: u8) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(&[number << 3 | 2])?;
    let (length, at) = informer_hub_protobuf::varint(rest, 0).ok()??;
    let rest = &rest[at..];
    Some(rest.split_at(usize::try_from(length).ok()?.min(rest.len())))
}

#[cfg(test)]
#[path = "protobuf_tests.rs"]
pub(super) mod tests;

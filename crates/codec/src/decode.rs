//! From an apiserver's bytes to stored objects and watch items, in one pass over borrowed bytes.
//!
//! What a decoder hands on is always a whole, syntactically valid JSON object with `apiVersion` and `kind`. Whatever
//! else a server sends becomes [`Skipped`] (an object that is not one) or [`ErrorClass::Malformed`](super::ErrorClass::Malformed) (bytes that are
//! not JSON). No message quotes object data.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::KEPT_CAPACITY;
use super::error::{SourceError, malformed};
use super::event::{Skipped, WatchItem};
use super::projection::Projection;
use super::scan::{self, Scanned};
use super::status::{bounded, classify_status};
use super::transform::Transform;
use super::trie::Trie;
use super::walk::{Head, Walk};
use informer_hub_types::{
    ApiResource, FieldPath, IndexEntry, Interner, Labels, ObjectKey, ResourceVersion, SharedStr, StoredObject,
    StoredObjectParts, Uid,
};

/// Turns bytes into objects of one resource. Keeps the shared strings of all that it has decoded, and its scratch
/// buffers.
#[derive(Debug)]
pub struct Decoder {
    resource: ApiResource,
    trie: Trie,
    index_names: Vec<SharedStr>,
    interner: Interner,
    cuts: Vec<Range<usize>>,
    kept: Vec<u8>,
    /// What is kept of an object that something is cut out of.
    cut: Vec<u8>,
    /// Members that list items lack, with their commas: `apiVersion`, `kind`.
    missing: [String; 2],
    api_version: String,
    transform: Option<Transform>,
}

/// One decoded object, or why it is not one.
#[derive(Debug)]
pub enum Decoded {
    /// An object.
    Object(Arc<StoredObject>),
    /// JSON, but not an object that can be taken in.
    Skipped(Skipped),
}

/// What is at the start of a buffer.
#[derive(Debug)]
pub enum Next {
    /// A whole value, and how many bytes it took.
    Value(Decoded, usize),
    /// The buffer ends inside the value.
    Incomplete,
}

/// What one walk found, apart from the spans.
struct Found<'de> {
    head: Head<'de>,
    labels: Labels,
    index_values: Vec<IndexEntry>,
}

/// What a transform left of an object: labels, index values and JSON.
type Transformed = (Labels, Vec<IndexEntry>, Arc<[u8]>);

impl Decoder {
    /// A decoder for one resource. The order of `indexes` is the order of an object's index values, within one place
    /// of the document.
    #[must_use]
    pub fn new(resource: ApiResource, projection: &Projection, indexes: Vec<(SharedStr, FieldPath)>) -> Self {
        let trie = Trie::new(projection, &indexes);
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let api_version = resource.gvr.api_version();
        let missing =
            [format!("\"apiVersion\":{},", quoted(&api_version)), format!("\"kind\":{},", quoted(&resource.kind))];
        let index_names = indexes.into_iter().map(|(name, _)| name).collect();
        let (interner, cuts, kept, cut) = (Interner::default(), Vec::new(), Vec::new(), Vec::new());
        Self { resource, trie, index_names, interner, cuts, kept, cut, missing, api_version, transform: None }
    }

    /// The same, with something made of each object.
    #[must_use]
    pub fn with_transform(self, transform: Option<Transform>) -> Self {
        Self { transform, ..self }
    }

    /// Forgets texts that no object has any more.
    pub fn trim(&mut self) {
        self.interner.trim();
    }

    /// Which resource this decodes.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Decodes one whole object.
    ///
    /// # Errors
    /// [`ErrorClass::Malformed`](super::ErrorClass::Malformed) when the bytes are not JSON.
    pub fn decode_object(&mut self, json: &[u8]) -> Result<Decoded, SourceError> {
        match self.decode_next(json)? {
            Next::Value(decoded, used) if json[used..].trim_ascii().is_empty() => Ok(decoded),
            Next::Value(..) => Err(malformed("object: more bytes follow it")),
            Next::Incomplete => Err(malformed("object: the bytes end inside it")),
        }
    }

    /// Decodes the object at the start of `bytes`, where more bytes may follow and more may be still to come.
    ///
    /// # Errors
    /// [`ErrorClass::Malformed`](super::ErrorClass::Malformed) when no further bytes could make it JSON.
    pub fn decode_next(&mut self, bytes: &[u8]) -> Result<Next, SourceError> {
        let (found, result) = self.walk(bytes, |walk| walk.value(Trie::ROOT, 0));
        let used = match result {
            Ok(used) => used,
            Err(at) if at >= bytes.len() => return Ok(Next::Incomplete),
            Err(at) => return Err(broken("object", bytes, at)),
        };
        if used == bytes.len() && !matches!(bytes.last(), Some(b'}' | b']' | b'"')) {
            // A number, or a word, that may go on.
            return Ok(Next::Incomplete);
        }
        let start = bytes.len() - bytes.trim_ascii_start().len();
        Ok(Next::Value(self.build(found, bytes, start..used), used))
    }

    /// Decodes one line of a watch.
    ///
    /// # Errors
    /// What an ERROR event says, or [`ErrorClass::Malformed`](super::ErrorClass::Malformed) when the line is not an event.
    pub fn decode_event(&mut self, line: &[u8]) -> Result<WatchItem, SourceError> {
        let (mut envelope, input) = (Envelope::default(), line);
        let (found, result) = self.walk(line, |walk| match envelope.read(input, walk)? {
            end if scan::is_over(input, end) => Ok(end),
            end => Err(end),
        });
        if let Err(at) = result {
            return Err(broken("watch event", line, at));
        }
        let Some(kind) = envelope.kind else { return Err(malformed("watch event: it has no type")) };
        let Some(span) = envelope.object else { return Err(malformed("watch event: it has no object")) };
        if kind == "ERROR" {
            return Err(classify_status(500, &line[span], None));
        }
        if kind == "BOOKMARK" {
            // About once a minute, and at the end of a list.
            self.interner.rest();
            let version = ResourceVersion::new(found.head.version.as_deref().unwrap_or_default());
            return Ok(WatchItem::Bookmark { version, initial_events_end: found.head.initial_events_end });
        }
        let event = match kind.as_ref() {
            "ADDED" => WatchItem::Added,
            "MODIFIED" => WatchItem::Modified,
            "DELETED" => WatchItem::Deleted,
            other => {
                let reason = format!("unknown event type {:?}", bounded(other));
                return Ok(WatchItem::Skipped(self.skipped(&found.head, true, reason)));
            }
        };
        let (uid, is_own) = (found.head.uid.clone(), self.foreign(&found.head).is_none());
        Ok(match self.build(found, line, span) {
            Decoded::Object(object) => event(object),
            Decoded::Skipped(skipped) if is_own => skipped_event(&kind, uid.as_deref(), skipped),
            // The end of something else is not the end of what is stored under its name.
            Decoded::Skipped(skipped) => WatchItem::Skipped(skipped),
        })
    }

    /// What can be told of an object of which only the first bytes are there.
    #[must_use]
    pub fn skip_object(&mut self, head: &[u8], reason: String) -> Skipped {
        let (found, result) = self.walk(head, |walk| walk.value(Trie::ROOT, 0));
        self.skipped(&found.head, result.is_ok(), reason)
    }

    /// What can be told of a watch event of which only the first bytes are there.
    #[must_use]
    pub fn skip_event(&mut self, head: &[u8], reason: String) -> WatchItem {
        let mut envelope = Envelope::default();
        let (found, result) = self.walk(head, |walk| envelope.read(head, walk));
        let skipped = self.skipped(&found.head, result.is_ok(), reason);
        skipped_event(envelope.kind.as_deref().unwrap_or_default(), found.head.uid.as_deref(), skipped)
    }

    fn walk<'de>(
        &mut self,
        input: &'de [u8],
        run: impl FnOnce(&mut Walk<'_, 'de>) -> Scanned,
    ) -> (Found<'de>, Scanned) {
        self.cuts.clear();
        self.kept.clear();
        let mut walk = Walk {
            trie: &self.trie,
            names: &self.index_names,
            interner: &mut self.interner,
            input,
            head: Head::default(),
            labels: Labels::default(),
            index_values: Vec::new(),
            cuts: &mut self.cuts,
            kept: &mut self.kept,
            projecting: true,
        };
        let result = run(&mut walk);
        (Found { head: walk.head, labels: walk.labels, index_values: walk.index_values }, result)
    }

    /// Makes the stored object out of what a walk over `input` found in `span`.
    fn build(&mut self, found: Found<'_>, input: &[u8], span: Range<usize>) -> Decoded {
        let Found { head, labels, index_values } = found;
        // What is stepped over is not looked at for that. Where the object ends is certain all the same, so it
        // alone is lost: as an error it would keep its informer from ever completing a list.
        if simdutf8::basic::from_utf8(&input[span.clone()]).is_err() {
            return Decoded::Skipped(self.skipped(&head, true, "it is not UTF-8".to_owned()));
        }
        if let Some(skipped) = self.refused(&head) {
            return Decoded::Skipped(skipped);
        }
        let name = head.name.as_deref().unwrap_or_default();
        let namespace = head.namespace.as_deref().unwrap_or_default();
        let json = self.json(&head, input, span);
        let parts = StoredObjectParts {
            key: ObjectKey::new(namespace, name),
            uid: Uid::new(head.uid.as_deref().unwrap_or_default()),
            resource_version: ResourceVersion::new(head.version.as_deref().unwrap_or_default()),
            labels,
            index_values,
            json: Vec::new(),
        };
        match self.transform.clone() {
            None => Decoded::Object(Arc::new(StoredObject::of(parts, json))),
            Some(transform) => match self.transformed(&transform, &parts.key, &json) {
                Ok((labels, index_values, json)) => {
                    let parts = StoredObjectParts { labels, index_values, ..parts };
                    Decoded::Object(Arc::new(StoredObject::of(parts, json)))
                }
                Err(problem) => Decoded::Skipped(Skipped {
                    key: Some(parts.key),
                    version: Some(parts.resource_version),
                    reason: format!("its transform failed: {}", bounded(&problem)),
                }),
            },
        }
    }

    /// Why a value that is JSON is no object that can be taken in.
    fn refused(&self, head: &Head<'_>) -> Option<Skipped> {
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
            return self.foreign(head).map(|reason| self.skipped(head, true, reason));
        };
        Some(Skipped { key: None, version: None, reason })
    }

    /// What a transform makes of an object.
    fn transformed(&mut self, transform: &Transform, own: &ObjectKey, json: &[u8]) -> Result<Transformed, String> {
        let json = transform.apply(json)?;
        let (found, result) = self.walk(&json, |walk| walk.value(Trie::ROOT, 0));
        let Found { head, labels, index_values } = found;
        if result.is_err() || !head.is_object {
            return Err("what it returned is not an object".to_owned());
        }
        let name = head.name.as_deref().unwrap_or_default();
        let key = ObjectKey::new(head.namespace.as_deref().unwrap_or_default(), name);
        if key != *own {
            return Err(format!("it returned another key, {:?}; an object must keep its own", key.as_str()));
        }
        let json = self.json(&head, &json, 0..json.len());
        Ok((labels, index_values, json))
    }

    /// Why an object is none of this resource's, going by what it says of itself. One that says nothing is taken at
    /// its list's word, and metadata alone has a kind of its own, whatever it is the metadata of.
    fn foreign(&self, head: &Head<'_>) -> Option<String> {
        let api_version = head.api_version.as_deref().filter(|text| !text.is_empty()).unwrap_or(&self.api_version);
        let kind = head.kind.as_deref().filter(|text| !text.is_empty()).unwrap_or(&self.resource.kind);
        let is_own = kind == self.resource.kind && api_version == self.api_version;
        let is_metadata = kind == "PartialObjectMetadata" && api_version.starts_with("meta.k8s.io/");
        (!is_own && !is_metadata).then(|| {
            let (kind, api_version) = (bounded(kind), bounded(api_version));
            format!(
                "an object of kind {kind:?} of {api_version:?} where {:?} of {:?} is due",
                self.resource.kind, self.api_version
            )
        })
    }

    /// The projected JSON: what was kept, or all but what was cut, with what is missing put in front.
    fn json(&mut self, head: &Head<'_>, input: &[u8], span: Range<usize>) -> Arc<[u8]> {
        let api_version = if head.api_version.is_none() { self.missing[0].as_str() } else { "" };
        let kind = if head.kind.is_none() { self.missing[1].as_str() } else { "" };
        // Put together where it need not be freed, then copied once to where it stays.
        let out = &mut self.cut;
        out.clear();
        out.push(b'{');
        out.extend_from_slice(api_version.as_bytes());
        out.extend_from_slice(kind.as_bytes());
        if self.trie.keep_mode {
            out.extend_from_slice(&self.kept[1..]);
            return scratched(out);
        }
        let mut at = span.start + 1;
        for cut in &self.cuts {
            out.extend_from_slice(&input[at..cut.start]);
            let rest = input[cut.end..span.end].trim_ascii_start();
            if rest.first() == Some(&b',') {
                at = span.end - rest.len() + 1;
            } else {
                // The last member (or element): the comma before it goes, where one is left.
                out.truncate(out.trim_ascii_end().len());
                if out.last() == Some(&b',') {
                    out.pop();
                }
                at = cut.end;
            }
        }
        out.extend_from_slice(&input[at..span.end]);
        scratched(out)
    }

    /// A key is told only where it is certain: of a head that was cut off, a namespace may be what is missing.
    fn skipped(&self, head: &Head<'_>, whole: bool, reason: String) -> Skipped {
        let name = head.name.as_deref().filter(|name| !name.is_empty() && !name.contains('/'));
        let namespace = head.namespace.as_deref().filter(|namespace| !namespace.contains('/'));
        let certain = whole || namespace.is_some() || !self.resource.namespaced;
        let key = name.filter(|_| certain).map(|name| ObjectKey::new(namespace.unwrap_or_default(), name));
        Skipped { key, version: head.version.as_deref().map(ResourceVersion::new), reason }
    }
}

/// An event whose object cannot be taken in. That it is gone can be told all the same, if it is known which one.
fn skipped_event(kind: &str, uid: Option<&str>, skipped: Skipped) -> WatchItem {
    match skipped.key {
        Some(key) if kind == "DELETED" => {
            let version = skipped.version.unwrap_or_else(|| ResourceVersion::new(""));
            WatchItem::Deleted(Arc::new(StoredObject::head_only(key, Uid::new(uid.unwrap_or_default()), version)))
        }
        key => WatchItem::Skipped(Skipped { key, ..skipped }),
    }
}

/// The parts of a watch event.
#[derive(Default)]
struct Envelope<'de> {
    kind: Option<Cow<'de, str>>,
    object: Option<Range<usize>>,
}

impl<'de> Envelope<'de> {
    /// Reads an event, of which `walk` walks over the object, and returns where it ended. Keys are compared as written:
    /// nobody escapes the letters of "object".
    fn read(&mut self, input: &'de [u8], walk: &mut Walk<'_, 'de>) -> Scanned {
        let inside = match scan::token(input, 0)? {
            (b'{', at) => at + 1,
            (_, at) => return Err(at),
        };
        let (mut more, mut at) = scan::first(input, inside, b'}')?;
        while more {
            let key = scan::key(input, at)?;
            let (_, start) = scan::token(input, key.value)?;
            let end = match &input[key.span.clone()] {
                b"\"object\"" if self.object.is_some() => return Err(key.span.start),
                b"\"object\"" => {
                    let end = walk.value(Trie::ROOT, start)?;
                    self.object = Some(start..end);
                    end
                }
                key => {
                    let end = scan::value(input, start)?;
                    if key == b"\"type\"" {
                        self.kind = scan::text_of(&input[start..end]);
                    }
                    end
                }
            };
            (more, at) = scan::next(input, end, b'}')?;
        }
        Ok(at)
    }
}

/// A copy of what is in a scratch buffer, which does not stay as large as the largest object was.
fn scratched(scratch: &mut Vec<u8>) -> Arc<[u8]> {
    let copy = Arc::from(scratch.as_slice());
    if scratch.capacity() > KEPT_CAPACITY {
        *scratch = Vec::new();
    }
    copy
}

/// Says where JSON is broken, and not what stands there.
fn broken(what: &str, bytes: &[u8], at: usize) -> SourceError {
    let before = &bytes[..at.min(bytes.len())];
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1) + 1;
    malformed(format!("{what}: broken JSON at line {line} column {column}"))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;

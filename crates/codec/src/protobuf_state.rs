//! State of a decoder for Kubernetes protobuf: scratch buffers, and whether it requests JSON instead for now.

use std::sync::Arc;
use std::time::Duration;

use super::KEPT_CAPACITY;
use super::paths::{Paths, READ};
use informer_hub_protobuf::{ConvertError, Converter, Excerpt, Extent, MessageId, Schema, Step, TypeMeta};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, EncodingInUse, JsonReason, Segment};

/// Assumed maximum growth of an object when it is converted from protobuf to JSON. An empty message of two bytes can
/// have tens of bytes of JSON.
///
/// An object is converted at arrival if its protobuf is larger than the JSON limit divided by this number.
const MAX_GROWTH: usize = 256;

/// Number of answers in a row that are not protobuf, after which JSON is requested.
const MAX_FAILURES: u32 = 3;

/// Returns for how long JSON is requested before protobuf is tried again.
fn retry_after(reason: JsonReason) -> Duration {
    Duration::from_secs(match reason {
        // Trying again costs nothing: if the server still answers in JSON, the answer is used.
        JsonReason::Refused => 3_600,
        // Trying again may fail in the middle of a list, which is then read twice.
        JsonReason::Schema => 6 * 3_600,
        _ => 600,
    })
}

fn step(segment: &Segment) -> Step<'_> {
    match segment {
        Segment::Field(name) => Step::Member(name),
        Segment::Each => Step::Each,
    }
}

#[derive(Debug)]
pub(super) struct Protobuf {
    /// Whether the built-in schema has the resource's type.
    pub(super) is_builtin: bool,
    refusal: Option<Refusal>,
    /// Number of answers in a row that were not protobuf. Set to [`MAX_FAILURES`] - 1 when JSON is requested. So the
    /// first failure after the return to protobuf leads to JSON again.
    failures: u32,
    paths: Arc<Paths>,
    /// Converter from protobuf to JSON. Created when an object needs it, and freed at each bookmark.
    converter: Option<Box<Converter>>,
    /// Cached [`Excerpt`], which reads objects that stay protobuf. Created when needed, and freed at each bookmark.
    excerpt: Prepared,
    /// Scratch buffer of the converted JSON.
    pub(super) json: Vec<u8>,
}

/// Cache of an [`Excerpt`], a reader of objects that stay protobuf.
#[derive(Debug)]
enum Prepared {
    /// No [`Excerpt`] was created yet.
    No,
    /// No [`Excerpt`] is available. Either the indexes or the projection need JSON, or the `Excerpt` is in use to read
    /// an object.
    Impossible,
    Excerpt(Box<Excerpt>),
}

/// Why JSON is requested for now, although protobuf was configured.
#[derive(Debug)]
struct Refusal {
    in_use: EncodingInUse,
    /// Time from which protobuf is requested again.
    retry_at: Instant,
}

/// How to decode the items of a list: their protobuf message type and, for a list of partial metadata, the `apiVersion`
/// and `kind` of the items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Items {
    pub(super) message: MessageId,
    pub(super) type_meta: Option<TypeMeta<'static>>,
}

impl Protobuf {
    pub(super) fn new(resource: &ApiResource, paths: Arc<Paths>) -> Self {
        let is_builtin = Schema::builtin().kind(&resource.gvr.api_version(), &resource.kind).is_some();
        Self { is_builtin, refusal: None, failures: 0, paths, converter: None, excerpt: Prepared::No, json: Vec::new() }
    }

    /// Counts an answer that is not protobuf. After [`MAX_FAILURES`] in a row, requests JSON for ten minutes.
    pub(super) fn failed(&mut self, message: String) {
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            self.refuse(JsonReason::Faulty, message);
        }
    }

    /// Resets the count of failures. Called after an event or a whole list was read.
    #[inline]
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }

    pub(super) fn refuse(&mut self, reason: JsonReason, message: String) {
        let after = retry_after(reason);
        let mut in_use = EncodingInUse::json(reason);
        (in_use.message, in_use.until) = (Some(message), Some(clock::wall() + after));
        self.refusal = Some(Refusal { in_use, retry_at: clock::now() + after });
        // When protobuf is tried again, a single failure switches back to JSON.
        self.failures = MAX_FAILURES - 1;
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref().filter(|refusal| clock::now() < refusal.retry_at)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refusal().is_some()
    }

    /// Returns the encoding that the next request asks for. For JSON, includes the reason.
    pub(super) fn in_use(&self, metadata_only: bool) -> EncodingInUse {
        if !(self.is_builtin || metadata_only) {
            return EncodingInUse::json(JsonReason::NotBuiltIn);
        }
        self.refusal().map_or_else(EncodingInUse::protobuf, |refusal| refusal.in_use.clone())
    }

    /// Converts an object to JSON in the scratch buffer `json`.
    pub(super) fn object(
        &mut self,
        message: MessageId,
        type_meta: Option<TypeMeta<'_>>,
        bytes: &[u8],
        limit: usize,
    ) -> Result<(), ConvertError> {
        self.json.clear();
        let converter = self.converter.get_or_insert_default();
        converter.object(message, type_meta, bytes, &self.paths.omit, limit, &mut self.json)
    }

    /// Takes the cached [`Excerpt`], or creates one, with which the caller reads an object that stays protobuf. The
    /// caller gives it back with [`Self::keep_excerpt`].
    ///
    /// Returns `None` if the object must be converted to JSON: the projection or an index needs JSON, or the object's
    /// JSON could exceed `limit`.
    pub(super) fn excerpt(&mut self, message: MessageId, bytes: &[u8], limit: usize) -> Option<Box<Excerpt>> {
        if !self.paths.keeps_protobuf || bytes.len() > limit / MAX_GROWTH {
            return None;
        }
        match std::mem::replace(&mut self.excerpt, Prepared::Impossible) {
            Prepared::No => self.prepare(message),
            Prepared::Impossible => None,
            Prepared::Excerpt(excerpt) => Some(excerpt),
        }
    }

    /// Creates an excerpt to read objects of this type in protobuf. Returns `None` if the projection or an index needs
    /// JSON.
    fn prepare(&self, message: MessageId) -> Option<Box<Excerpt>> {
        let read = READ.iter().map(|path| path.iter().copied().map(Step::Member).collect());
        let indexes = self.paths.indexes.iter().map(|path| path.segments().iter().map(step).collect());
        let paths: Vec<Vec<Step<'_>>> = read.chain(indexes).collect();
        Some(Box::new(Excerpt::new(message, paths, &self.paths.omit)?))
    }

    /// Caches an excerpt, so that it reads the next object too.
    pub(super) fn keep_excerpt(&mut self, excerpt: Box<Excerpt>) {
        self.excerpt = Prepared::Excerpt(excerpt);
    }

    /// Returns the positions of members in the JSON of the object converted last: those at the top level and one level
    /// below.
    pub(super) fn extents(&self) -> &[Extent] {
        self.converter.as_ref().map(|converter| converter.extents()).unwrap_or_default()
    }

    /// Returns an object's metadata as JSON, `{"metadata":{…}}`, or `{}` if `bytes` do not contain all of it. `bytes`
    /// may be only the start of the object.
    pub(super) fn head(&mut self, message: MessageId, bytes: &[u8], limit: usize) -> Vec<u8> {
        self.converter.get_or_insert_default().head(message, bytes, limit)
    }

    /// Frees the converter, the excerpt and the scratch buffer.
    pub(super) fn free(&mut self) {
        (self.converter, self.excerpt, self.json) = (None, Prepared::No, Vec::new());
    }

    /// Keeps a scratch buffer for the next object, unless it is large.
    pub(super) fn keep(&mut self, json: Vec<u8>) {
        if json.capacity() <= KEPT_CAPACITY {
            self.json = json;
        }
    }
}

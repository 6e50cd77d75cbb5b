//! State of a decoder for Kubernetes protobuf.

use std::sync::Arc;
use std::time::Duration;

use super::KEPT_CAPACITY;
use super::paths::Paths;
use informer_hub_protobuf::{ConvertError, Converter, Extent, MessageId, Schema, TypeMeta};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, EncodingInUse, JsonReason};

/// Answers in a row that are not protobuf, after which the resource is read as JSON.
const MAX_FAILURES: u32 = 3;

/// Returns the time after which protobuf is requested again. The next request after it is a watch's, minutes later.
fn retry_after(reason: JsonReason) -> Duration {
    Duration::from_secs(match reason {
        // The request costs nothing: an answer in JSON is read as it is.
        JsonReason::Refused => 3_600,
        // A part of a list is read twice if the object is still there.
        JsonReason::Schema => 6 * 3_600,
        _ => 600,
    })
}

/// State of a decoder for protobuf.
#[derive(Debug)]
pub(super) struct Protobuf {
    /// Whether the resource's objects have a message.
    pub(super) is_builtin: bool,
    refusal: Option<Refusal>,
    /// Answers in a row that were not protobuf.
    failures: u32,
    paths: Arc<Paths>,
    /// Made with the first object since the last bookmark.
    converter: Option<Box<Converter>>,
    /// Scratch buffer of the converted JSON.
    pub(super) json: Vec<u8>,
}

/// Why the resource is read as JSON although protobuf was requested.
#[derive(Debug)]
struct Refusal {
    in_use: EncodingInUse,
    /// When protobuf is requested again.
    retry_at: Instant,
}

/// The items of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Items {
    pub(super) message: MessageId,
    pub(super) type_meta: Option<TypeMeta<'static>>,
}

impl Protobuf {
    pub(super) fn new(resource: &ApiResource, paths: Arc<Paths>) -> Self {
        let is_builtin = Schema::builtin().kind(&resource.gvr.api_version(), &resource.kind).is_some();
        Self { is_builtin, refusal: None, failures: 0, paths, converter: None, json: Vec::new() }
    }

    /// Notes an answer that is not protobuf. After several in a row, the resource is read as JSON for a while.
    pub(super) fn failed(&mut self, message: String) {
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            self.refuse(JsonReason::Faulty, message);
        }
    }

    /// Notes that an event or a whole list was read.
    #[inline]
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }

    /// Switches the resource to JSON for a while.
    pub(super) fn refuse(&mut self, reason: JsonReason, message: String) {
        let after = retry_after(reason);
        let mut in_use = EncodingInUse::json(reason);
        (in_use.message, in_use.until) = (Some(message), Some(clock::wall() + after));
        self.refusal = Some(Refusal { in_use, retry_at: clock::now() + after });
        // After the retry, a single failure switches to JSON again.
        self.failures = MAX_FAILURES - 1;
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref().filter(|refusal| clock::now() < refusal.retry_at)
    }

    /// Returns whether the resource is read as JSON for now.
    pub(super) fn is_refused(&self) -> bool {
        self.refusal().is_some()
    }

    /// Returns the encoding in use, if the server works as it did last.
    pub(super) fn in_use(&self, metadata_only: bool) -> EncodingInUse {
        if !(self.is_builtin || metadata_only) {
            return EncodingInUse::json(JsonReason::NotBuiltIn);
        }
        self.refusal().map_or_else(EncodingInUse::protobuf, |refusal| refusal.in_use.clone())
    }

    /// Converts an object into the scratch buffer.
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

    /// Returns where members of the last object are in its JSON.
    pub(super) fn extents(&self) -> &[Extent] {
        self.converter.as_ref().map(|converter| converter.extents()).unwrap_or_default()
    }

    /// Returns the metadata of an object as JSON.
    pub(super) fn head(&mut self, message: MessageId, bytes: &[u8], limit: usize) -> Vec<u8> {
        self.converter.get_or_insert_default().head(message, bytes, limit)
    }

    /// Frees the scratch buffers.
    pub(super) fn free(&mut self) {
        (self.converter, self.json) = (None, Vec::new());
    }

    /// Takes back the scratch buffer.
    pub(super) fn keep(&mut self, json: Vec<u8>) {
        if json.capacity() <= KEPT_CAPACITY {
            self.json = json;
        }
    }
}

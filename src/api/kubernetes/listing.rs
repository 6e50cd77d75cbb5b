//! Writer of lists and single objects. Objects are read from one state of the cache, a limited number per turn of the
//! fair queue. A long answer is written in parts of bounded size.

use std::sync::Arc;

use serde_json::json;

use super::encode::{Encoder, Place, append};
use super::objects::{ListPosition, ObjectWithOrigin, State};
use super::protobuf::{MAX_OBJECT, ResourceWriter};
use super::selection::Selection;
use crate::api::notes::Notes;
use informer_hub_kubeapi::{Form, Indenter, Media, to_yaml, write_yaml_element};
use informer_hub_protobuf::{END_OF_ENVELOPE, EncodeError, Envelope, TypeMeta, begin_list, write_item};
use informer_hub_types::{ClusterName, Origin, StoredObject};

/// Number of objects after which a part of the answer ends, even if none of them is selected.
const SCAN: usize = 512;

/// Number of bytes after which a part of the answer ends.
const CHUNK: usize = 128 << 10;

/// Maximum bytes of encoded protobuf items that are kept in memory. The items of larger lists are encoded twice.
const MAX_KEPT: usize = 2 << 20;

/// Fields of a list response other than `items`.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) kind: String,
    pub(super) api_version: String,
    pub(super) resource_version: String,
    pub(super) continuation: Option<String>,
    pub(super) remaining: Option<usize>,
    /// Outdated and missing clusters; only in lists of several clusters.
    pub(super) freshness: Option<serde_json::Value>,
}

impl Head {
    /// Returns the beginning of the list in JSON, up to the first item.
    fn json(&self, encoder: &Encoder) -> Vec<u8> {
        let mut out = b"{\"kind\":".to_vec();
        append(&mut out, &self.kind);
        out.extend_from_slice(b",\"apiVersion\":");
        append(&mut out, &self.api_version);
        out.extend_from_slice(b",\"metadata\":");
        append(&mut out, &self.metadata());
        if encoder.form == Form::Table {
            out.extend_from_slice(b",\"columnDefinitions\":");
            out.extend_from_slice(&encoder.columns());
            out.extend_from_slice(b",\"rows\":[");
        } else {
            out.extend_from_slice(b",\"items\":[");
        }
        out
    }

    /// Returns the YAML before the items, the key of the items, and the YAML after them. The split is needed because
    /// keys are sorted.
    fn yaml(&self, encoder: &Encoder) -> (Vec<u8>, &'static str, Vec<u8>) {
        let metadata = self.metadata();
        if encoder.form == Form::Table {
            let columns: serde_json::Value = serde_json::from_slice(&encoder.columns()).unwrap_or_default();
            let before = json!({
                "apiVersion": self.api_version, "columnDefinitions": columns, "kind": self.kind, "metadata": metadata,
            });
            return (to_yaml(before.to_string().as_bytes()), "rows", Vec::new());
        }
        let before = json!({ "apiVersion": self.api_version }).to_string();
        let after = json!({ "kind": self.kind, "metadata": metadata }).to_string();
        (to_yaml(before.as_bytes()), "items", to_yaml(after.as_bytes()))
    }

    /// Returns the metadata of the list as JSON, to be converted to protobuf. The member with outdated and missing
    /// clusters is left out, because the protobuf message has no such field.
    fn protobuf(&self) -> Vec<u8> {
        let mut metadata = self.metadata();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("informerHub");
        }
        json!({ "metadata": metadata }).to_string().into_bytes()
    }

    fn metadata(&self) -> serde_json::Value {
        let mut metadata = json!({ "resourceVersion": self.resource_version });
        if let Some(token) = &self.continuation {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        if let Some(freshness) = &self.freshness {
            metadata["informerHub"] = freshness.clone();
        }
        metadata
    }
}

/// Encoding of a list, with the state that its writer needs.
#[derive(Debug)]
enum Layout {
    Json,
    Pretty(Indenter),
    /// YAML. Holds the text that follows the items.
    Yaml(Vec<u8>),
    Protobuf(Box<ProtobufList>),
}

/// A list in protobuf. Its length precedes the items, so all items are encoded once to learn it. The bytes of a short list
/// are kept; a long one is encoded again while it is sent.
#[derive(Debug)]
struct ProtobufList {
    writer: ResourceWriter,
    /// Items whose encoded length is still to be measured; `None` once all items are measured.
    unmeasured: Option<Items>,
    /// The list up to its first item.
    begin: Vec<u8>,
    /// Encoded bytes of all items; `None` if they exceed [`MAX_KEPT`].
    kept: Option<Vec<u8>>,
    /// Bytes of items that are still to be written.
    left: usize,
    /// Number of measured items.
    count: u64,
}

impl Layout {
    /// Returns the layout of an encoding other than protobuf.
    fn of_text((media, is_pretty): (Media, bool)) -> Self {
        match media {
            Media::Yaml => Self::Yaml(Vec::new()),
            Media::Json if is_pretty => Self::Pretty(Indenter::default()),
            Media::Json | Media::Protobuf => Self::Json,
        }
    }
}

/// Iteration over the objects that a request selects, in one state of the cache.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    state: Arc<State>,
    selection: Arc<Selection>,
    is_unique: bool,
    /// Cluster being read, and the position of its last object that was read; `None` at the end of the scan.
    at: Option<(ClusterName, Option<ListPosition>)>,
    buffer: Vec<ObjectWithOrigin>,
}

impl Scan {
    /// Creates a scan that begins after the position `after`, or with the first object if `after` is `None`.
    pub(super) fn new(
        state: Arc<State>,
        selection: Arc<Selection>,
        is_unique: bool,
        after: Option<ListPosition>,
    ) -> Self {
        let first = state.clusters_from(after.as_ref().map(|after| &after.cluster)).next().cloned();
        let at = first.map(|first| {
            let after = after.filter(|after| after.cluster == first);
            (first, after)
        });
        Self { state, selection, is_unique, at, buffer: Vec::new() }
    }

    /// Visits the next objects until `visit` returns false or [`SCAN`] objects have been read. Returns whether there
    /// may be more.
    pub(super) fn advance(&mut self, mut visit: impl FnMut(&ObjectWithOrigin) -> bool) -> bool {
        let Some((cluster, after)) = self.at.take() else { return false };
        self.buffer.clear();
        let mut next = None;
        if let Some(key) = self.key_in(&cluster) {
            // The selection has a name, so only one object of this cluster can match.
            if after.is_none() {
                self.buffer.extend(self.state.get(&cluster, &key));
            }
        } else {
            let key = after.as_ref().map(|after| &after.key);
            next = self.state.objects(&cluster, key, self.selection.candidates(), SCAN, &mut self.buffer);
        }
        for found in &self.buffer {
            let (object, origin) = found;
            if self.selection.matches(object, &origin.cluster, self.is_unique) && !visit(found) {
                let after = ListPosition { cluster: cluster.clone(), key: object.key().clone() };
                self.at = Some((cluster, Some(after)));
                return true;
            }
        }
        self.at = match next {
            Some(key) => {
                let after = ListPosition { cluster: cluster.clone(), key };
                Some((cluster, Some(after)))
            }
            None => self.next_cluster(&cluster).map(|next| (next, None)),
        };
        self.at.is_some()
    }

    fn key_in(&self, cluster: &ClusterName) -> Option<informer_hub_types::ObjectKey> {
        self.selection.key(self.state.is_namespaced(), self.is_unique.then_some(cluster))
    }

    fn next_cluster(&self, cluster: &ClusterName) -> Option<ClusterName> {
        self.state.clusters_from(Some(cluster)).find(|next| *next != cluster).cloned()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Items {
    /// The objects of a page.
    Page(std::vec::IntoIter<ObjectWithOrigin>),
    /// All selected objects.
    All(Scan),
}

impl Items {
    /// Visits the next items until `visit` returns false. A scan also stops after [`SCAN`] objects. Returns whether
    /// there may be more.
    fn advance(&mut self, mut visit: impl FnMut(&ObjectWithOrigin) -> bool) -> bool {
        match self {
            Self::Page(objects) => {
                let mut has_room = true;
                while has_room && let Some(found) = objects.next() {
                    has_room = visit(&found);
                }
                objects.len() > 0
            }
            Self::All(scan) => scan.advance(visit),
        }
    }
}

/// Encodes the body of one answer to a list request, part by part, so that a long body can be sent as a stream. Each
/// call of [`Self::write`] appends the next part. The parts are not the pages of `limit` and `continue`.
#[derive(Debug)]
pub(super) struct Listing {
    head: Option<Head>,
    items: Items,
    encoder: Encoder,
    layout: Layout,
    written: usize,
    notes: Notes,
    is_done: bool,
    has_failed: bool,
}

impl Listing {
    /// Creates a writer. A list in protobuf must be measured with [`Self::measure`] before it is written.
    pub(super) fn new(head: Head, items: Items, mut encoder: Encoder, media: (Media, bool), notes: Notes) -> Self {
        let layout = match encoder.protobuf.take() {
            Some(writer) => Layout::Protobuf(Box::new(ProtobufList {
                writer,
                unmeasured: Some(items.clone()),
                begin: Vec::new(),
                kept: Some(Vec::new()),
                left: 0,
                count: 0,
            })),
            None => Layout::of_text(media),
        };
        Self { head: Some(head), items, encoder, layout, written: 0, notes, is_done: false, has_failed: false }
    }

    /// Changes the encoding to one other than protobuf, before anything has been written.
    pub(super) fn in_text(self, media: (Media, bool)) -> Self {
        Self { layout: Layout::of_text(media), ..self }
    }

    /// Returns whether [`Self::measure`] has to be called before the list is written.
    pub(super) fn is_unmeasured(&self) -> bool {
        matches!(&self.layout, Layout::Protobuf(list) if list.unmeasured.is_some())
    }

    /// Measures the next items of a list in protobuf.
    ///
    /// # Errors
    /// An object cannot be encoded.
    pub(super) fn measure(&mut self) -> Result<(), EncodeError> {
        let (Layout::Protobuf(list), Some(head)) = (&mut self.layout, &self.head) else { return Ok(()) };
        let ProtobufList { writer, unmeasured, begin, kept, left, count } = &mut **list;
        let Some(items) = unmeasured else { return Ok(()) };
        let (mut json, mut item, mut chunk, mut result) = (Vec::new(), Vec::new(), 0, Ok(()));
        let encoder = &self.encoder;
        let has_more = items.advance(|(object, origin)| {
            item.clear();
            result = write_protobuf(writer, encoder, (object, origin), &mut json, &mut item);
            *left += item.len();
            *count += 1;
            chunk += item.len();
            match kept {
                Some(bytes) if bytes.len() + item.len() <= MAX_KEPT => bytes.extend_from_slice(&item),
                _ => *kept = None,
            }
            result.is_ok() && chunk < CHUNK
        });
        result?;
        if !has_more {
            *unmeasured = None;
            let list = TypeMeta { api_version: &head.api_version, kind: &head.kind };
            begin_list(begin, list, &head.protobuf(), *left, MAX_OBJECT)?;
        }
        Ok(())
    }

    /// Returns whether the protobuf list cannot be completed, because an object has become unreadable since
    /// [`Self::measure`]. The items then do not have the measured length.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Appends the next part of the body to `out`.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        if let Some(head) = self.head.take() {
            self.begin(&head, out);
        }
        let (encoder, layout, written) = (&self.encoder, &mut self.layout, &mut self.written);
        if let Layout::Protobuf(list) = layout
            && let Some(kept) = list.kept.take()
        {
            out.extend_from_slice(&kept);
            out.extend_from_slice(END_OF_ENVELOPE);
            self.notes.served(list.count);
            self.is_done = true;
            return;
        }
        let mut failed = false;
        let start = out.len();
        let mut item = Vec::new();
        let mut write = |(object, origin): &ObjectWithOrigin| {
            let is_first = *written == 0;
            *written += 1;
            match layout {
                Layout::Json => {
                    if !is_first {
                        out.push(b',');
                    }
                    encoder.write(object, origin, None, Place::Item, out);
                }
                Layout::Pretty(indenter) => {
                    item.clear();
                    if !is_first {
                        item.push(b',');
                    }
                    encoder.write(object, origin, None, Place::Item, &mut item);
                    indenter.write(&item, out);
                }
                Layout::Yaml(_) => {
                    if is_first {
                        out.push(b'\n');
                    }
                    item.clear();
                    encoder.write(object, origin, None, Place::Item, &mut item);
                    write_yaml_element(&item, out);
                }
                Layout::Protobuf(list) => {
                    let before = out.len();
                    let result = write_protobuf(&mut list.writer, encoder, (object, origin), &mut item, out);
                    failed = result.is_err() || out.len() - before > list.left;
                    list.left = list.left.saturating_sub(out.len() - before);
                }
            }
            !failed && out.len() - start < CHUNK
        };
        let has_more = self.items.advance(&mut write);
        self.has_failed = failed;
        self.is_done = failed || !has_more;
        self.notes.served(self.written as u64);
        if !has_more {
            self.end(out);
        }
    }

    /// Writes the beginning of the list, up to the first item.
    fn begin(&mut self, head: &Head, out: &mut Vec<u8>) {
        match &mut self.layout {
            Layout::Json => out.extend_from_slice(&head.json(&self.encoder)),
            Layout::Pretty(indenter) => indenter.write(&head.json(&self.encoder), out),
            Layout::Yaml(rest) => {
                let (before, items, after) = head.yaml(&self.encoder);
                out.extend_from_slice(&before);
                out.extend_from_slice(items.as_bytes());
                out.push(b':');
                *rest = after;
            }
            Layout::Protobuf(list) => out.append(&mut list.begin),
        }
    }

    /// Writes the end of the list, after the last item.
    fn end(&mut self, out: &mut Vec<u8>) {
        match &mut self.layout {
            Layout::Json => out.extend_from_slice(b"]}\n"),
            Layout::Pretty(indenter) => indenter.write(b"]}", out),
            Layout::Yaml(rest) => {
                if self.written == 0 {
                    out.extend_from_slice(b" []\n");
                }
                out.extend_from_slice(rest);
            }
            Layout::Protobuf(list) => {
                self.has_failed |= list.left > 0;
                out.extend_from_slice(END_OF_ENVELOPE);
            }
        }
    }
}

/// Appends an object as an item of a list in protobuf. `json` is a buffer.
fn write_protobuf(
    writer: &mut ResourceWriter,
    encoder: &Encoder,
    (object, origin): (&StoredObject, &Origin),
    json: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let stored = encoder.stored_protobuf(object, None);
    if let Some(envelope) = stored.as_deref().and_then(|stored| Envelope::read(stored).ok()) {
        write_item(out, envelope.raw);
        return Ok(());
    }
    json.clear();
    encoder.write(object, origin, None, Place::Single, json);
    writer.item(&origin.cluster, json, out)
}

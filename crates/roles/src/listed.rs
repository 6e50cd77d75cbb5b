//! Lists answered from the log: a list has one page, with all objects of a restored partition.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use informer_hub_codec::{Decoded, Decoder, Skipped};
use informer_hub_fleet::Record;
use informer_hub_fleet::checkpoint::CheckpointError;
use informer_hub_reflector::{ListChunk, ListStream, SourceError, WatchBatch, WatchItem, WatchStream};
use informer_hub_types::ResourceVersion;
use parking_lot::Mutex;

use super::restore::Restored;

/// Number of objects in one [`ListChunk`].
const CHUNK: usize = 100;

/// Source that answers lists from the log.
pub(crate) trait LogSource: Send + Sync + 'static {
    /// Returns the decoder of the source's objects.
    fn decoder(&self) -> &Mutex<Decoder>;

    /// Returns the error for a list whose checkpoint cannot be read.
    fn unreadable(&self, error: &CheckpointError) -> SourceError;
}

/// Returns a list of one page, with the objects of a restored state.
pub(crate) fn page<S: LogSource>(source: Arc<S>, restored: Restored) -> ListStream {
    let version = restored.state.resume.clone().unwrap_or_else(|| ResourceVersion::new(""));
    let mut objects = restored.objects();
    let chunks = stream::iter(std::iter::from_fn(move || {
        let records: Vec<_> = objects.by_ref().take(CHUNK).collect();
        (!records.is_empty()).then(|| decode(&*source, records))
    }));
    let end = ListChunk::End { version, continue_token: None, remaining: None };
    chunks.flat_map(stream::iter).chain(stream::iter([Ok(end)])).boxed()
}

/// Turns a list into the initial events of a watch.
pub(crate) fn initial_events(list: ListStream) -> WatchStream {
    let events = |chunk| match chunk {
        ListChunk::Items(objects) => objects.into_iter().map(WatchItem::Added).collect(),
        ListChunk::Skipped(skipped) => vec![WatchItem::Skipped(skipped)],
        ListChunk::End { version, .. } => vec![WatchItem::Bookmark { version, initial_events_end: true }],
    };
    list.map(move |chunk| Ok(WatchBatch::from(events(chunk?)))).boxed()
}

fn decode<S: LogSource>(
    source: &S,
    records: Vec<Result<Record, CheckpointError>>,
) -> Vec<Result<ListChunk, SourceError>> {
    let mut decoder = source.decoder().lock();
    let (mut objects, mut rest) = (Vec::new(), Vec::new());
    for record in records {
        let body = match record {
            Ok(Record::Put { body, .. }) => body,
            Ok(_) => continue,
            Err(error) => {
                rest.push(Err(source.unreadable(&error)));
                break;
            }
        };
        match decoder.decode_object(&body) {
            Ok(Decoded::Object(object)) => objects.push(object),
            Ok(Decoded::Skipped(skipped)) => rest.push(Ok(ListChunk::Skipped(skipped))),
            Err(error) => {
                let reason = error.to_string();
                rest.push(Ok(ListChunk::Skipped(Skipped { key: None, version: None, reason })));
            }
        }
    }
    let first = (!objects.is_empty()).then_some(Ok(ListChunk::Items(objects)));
    first.into_iter().chain(rest).collect()
}

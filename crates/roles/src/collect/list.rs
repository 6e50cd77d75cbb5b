//! Lists: from the log, or from the apiserver and recorded.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use informer_hub_codec::{Decoded, Skipped};
use informer_hub_fleet::Record;
use informer_hub_fleet::checkpoint::CheckpointError;
use informer_hub_reflector::{ListChunk, ListStream, SourceError};
use informer_hub_types::{ResourceVersion, clock};

use super::log::SourceLog;
use super::recording;
use crate::restore::Restored;

/// Objects of one chunk.
const CHUNK: usize = 100;

/// Returns a restored state as the one page of a list.
pub(super) fn from_log(log: Arc<SourceLog>, restored: Restored) -> ListStream {
    let version = restored.state.resume.clone().unwrap_or_else(|| ResourceVersion::new(""));
    let mut objects = restored.objects();
    let chunks = stream::iter(std::iter::from_fn(move || {
        let records: Vec<_> = objects.by_ref().take(CHUNK).collect();
        (!records.is_empty()).then(|| decode(&log, records))
    }));
    let end = ListChunk::End { version, continue_token: None, remaining: None };
    chunks.flat_map(stream::iter).chain(stream::iter([Ok(end)])).boxed()
}

fn decode(log: &SourceLog, records: Vec<Result<Record, CheckpointError>>) -> Vec<Result<ListChunk, SourceError>> {
    let mut decoder = log.decoder.lock();
    let (mut objects, mut rest) = (Vec::new(), Vec::new());
    for record in records {
        let body = match record {
            Ok(Record::Put { body, .. }) => body,
            Ok(_) => continue,
            Err(error) => {
                // The apiserver has to be asked instead.
                log.set_suspect(true);
                rest.push(Err(log.refused(&error)));
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

/// Passes a list of the apiserver on as the log stores it.
pub(super) fn recorded(log: Arc<SourceLog>, stream: ListStream) -> ListStream {
    let recorded = stream::try_unfold((log, stream), |(log, mut stream)| async move {
        let Some(chunk) = stream.next().await else { return Ok(None) };
        let chunk = chunk?;
        match &chunk {
            ListChunk::Items(objects) => {
                let puts = || objects.iter().map(|object| recording::put(object));
                log.append(|_, records| records.extend(puts())).await?;
            }
            ListChunk::End { version, continue_token, .. } => {
                let version = log.list_version(version);
                if continue_token.as_ref().is_none_or(String::is_empty) {
                    log.append(|recording, records| records.push(recording.progress(version, clock::now()))).await?;
                    log.set_suspect(false);
                }
            }
            ListChunk::Skipped(_) => {}
        }
        Ok(Some((chunk, (log, stream))))
    });
    recorded.boxed()
}

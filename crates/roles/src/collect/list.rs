//! Lists that a collector answers from the log, or requests from the apiserver and records in the log.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use informer_hub_reflector::{ListChunk, ListStream};
use informer_hub_types::clock;

use super::log::SourceLog;
use super::recording;
use crate::listed;
use crate::restore::Restored;

/// Returns the state restored from the log as a list, and counts its objects for the shard's weight (cost).
pub(super) fn restored(log: Arc<SourceLog>, restored: Restored) -> ListStream {
    let list = listed::page(Arc::clone(&log), restored);
    let counted = list.inspect(move |chunk| {
        if let Ok(ListChunk::Items(objects)) = chunk {
            log.note_listed(objects.len());
        }
    });
    counted.boxed()
}

/// Returns a list of the apiserver that yields each part only after the log has stored it.
pub(super) fn recorded(log: Arc<SourceLog>, stream: ListStream) -> ListStream {
    let recorded = stream::try_unfold((log, stream), |(log, mut stream)| async move {
        let Some(chunk) = stream.next().await else { return Ok(None) };
        log.note_request(chunk.as_ref().err());
        let chunk = chunk?;
        match &chunk {
            ListChunk::Items(objects) => {
                let puts = || objects.iter().map(|object| recording::put(object));
                log.append(|_, records| records.extend(puts())).await?;
                log.note_listed(objects.len());
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

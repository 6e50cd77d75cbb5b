//! Lists of the apiserver, recorded.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use informer_hub_reflector::{ListChunk, ListStream};
use informer_hub_types::clock;

use super::log::SourceLog;
use super::recording;

/// Passes a list of the apiserver on as the log stores it.
pub(super) fn recorded(log: Arc<SourceLog>, stream: ListStream) -> ListStream {
    let recorded = stream::try_unfold((log, stream), |(log, mut stream)| async move {
        let Some(chunk) = stream.next().await else { return Ok(None) };
        log.note_request(chunk.as_ref().err());
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

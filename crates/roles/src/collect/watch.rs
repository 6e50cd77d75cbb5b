//! Watches of the apiserver, recorded in the fleet's log.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use informer_hub_reflector::{WatchBatch, WatchStream};
use informer_hub_types::clock;

use super::log::SourceLog;
use super::recording::WatchState;

/// Returns a watch of the apiserver that yields each batch of events only after the log has stored it.
pub(super) fn recorded(log: Arc<SourceLog>, stream: WatchStream, state: WatchState) -> WatchStream {
    let recorded = stream::try_unfold((log, stream, state), |(log, mut stream, mut state)| async move {
        let batch = match stream.next().await {
            None => return Ok(None),
            Some(Err(error)) => {
                log.note_request(Some(&error));
                log.set_suspect(true);
                return Err(error);
            }
            Some(Ok(batch)) => batch,
        };
        log.note_request(None);
        log.set_suspect(false);
        let WatchBatch { items, followed } = batch;
        log.note_read(&items, state.initial);
        let recording = log.append(|recording, records| {
            let passed = recording.batch(&mut state, items, clock::now(), records);
            (passed, state)
        });
        let (items, state) = recording.await?;
        Ok(Some((WatchBatch { items, followed }, (log, stream, state))))
    });
    recorded.boxed()
}

//! The log's partition of one informer: opens it, restores its state, and appends records.

use std::error::Error;
use std::sync::Arc;

use informer_hub_codec::Decoder;
use informer_hub_fleet::checkpoint::CheckpointError;
use informer_hub_fleet::{Partition, Record};
use informer_hub_reflector::{ErrorClass, SourceError, VersionMatch, WatchItem};
use informer_hub_types::{ResourceVersion, with_causes};
use parking_lot::Mutex;

use super::recording::Recording;
use super::session::Session;
use crate::appender::AppendError;
use crate::listed::LogSource;
use crate::restore::{Restored, restore};

/// Number of entries after the checkpoint at which a takeover requests a new checkpoint.
const LONG_TAIL: usize = 500;

/// The log's partition of one informer, for the time in which this collector owns the informer's shard.
pub(super) struct SourceLog {
    session: Arc<Session>,
    pub(super) partition: Partition,
    pub(super) decoder: Mutex<Decoder>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Epoch (fencing number) under which the partition is open; `None` if it is closed.
    open: Option<u64>,
    recording: Recording,
    /// Whether the last watch of the apiserver failed or sent nothing. If so, the next list goes to the apiserver
    /// instead of the log.
    suspect: bool,
    /// Version of the first page of the list in progress; `None` until that page arrives.
    listed: Option<ResourceVersion>,
}

impl SourceLog {
    pub(super) fn new(session: Arc<Session>, partition: Partition, decoder: Decoder) -> Self {
        let recording = Recording::new(session.shared.params.keep_alive);
        let state = Mutex::new(State { recording, ..State::default() });
        Self { session, partition, decoder: Mutex::new(decoder), state }
    }

    /// Opens the partition if it is closed. Returns its state in the log; `None` if the apiserver must answer the list
    /// instead, for one of these reasons:
    ///
    /// - The last watch failed or sent nothing.
    /// - The log's state is incomplete, or older than the condition `version` allows.
    /// - The log's state is newer than `current`, the cluster's version.
    pub(super) async fn begin(
        &self,
        version: &VersionMatch,
        current: impl Future<Output = Option<ResourceVersion>>,
    ) -> Result<Option<Restored>, SourceError> {
        let shared = &self.session.shared;
        let (open, suspect) = {
            let state = self.state.lock();
            (state.open, state.suspect)
        };
        if open.is_some() && suspect {
            return Ok(None);
        }
        let until = if open.is_some() {
            self.flush().await?;
            self.session.stored(&self.partition)
        } else {
            let (epoch, sequence) = self.session.open(&self.partition).await.map_err(|error| self.refused(&error))?;
            self.state.lock().open = Some(epoch);
            sequence
        };
        let restored = restore(&shared.backend, &self.partition, until, &shared.io).await;
        let restored = match restored {
            Ok(restored) => restored,
            Err(error) => {
                if open.is_none() {
                    self.abandon().await;
                }
                return Err(self.refused(&error));
            }
        };
        // The cluster's version is read last: an earlier collector may have stored changes while this one claimed the
        // partition.
        let current = current.await;
        let is_ahead = |at: &ResourceVersion| current.as_ref().is_some_and(|current| at.is_ahead_of(current));
        let serves = |at: &ResourceVersion| serves(at, version) && !is_ahead(at);
        let usable = restored.state.complete && restored.state.resume.as_ref().is_some_and(serves);
        {
            let mut state = self.state.lock();
            let mut known = restored.state.clone();
            known.resume.take_if(|_| !usable);
            if open.is_none() { state.recording.begin(known) } else { state.recording.repeat(known) }
        }
        let (partition, state) = (&self.partition, &restored.state);
        if open.is_none() && restored.tail >= LONG_TAIL {
            // Otherwise, owners in quick succession would never write a checkpoint, and each takeover would take
            // longer.
            self.session.need_checkpoint(partition);
        }
        if usable {
            self.session.load.lock().begin(partition);
            self.session.note_begun(partition);
        }
        tracing::debug!(
            %partition, sequence = state.last, tail = restored.tail, resume = ?state.resume, usable,
            "restored the state of the resource from the fleet's log"
        );
        Ok(usable.then_some(restored))
    }

    /// Appends records and waits until they are stored.
    pub(super) async fn append<R>(
        &self,
        record: impl FnOnce(&mut Recording, &mut Vec<Record>) -> R,
    ) -> Result<R, SourceError> {
        let permit = self.session.shared.appender.reserve().await.map_err(|error| self.refused(&error))?;
        let (result, appending, epoch) = {
            let mut state = self.state.lock();
            let Some(epoch) = state.open else {
                return Err(self.refused(&AppendError::NotOpen));
            };
            let mut records = Vec::new();
            let result = record(&mut state.recording, &mut records);
            if records.is_empty() {
                return Ok(result);
            }
            self.session.note_append(&self.partition);
            (result, permit.append(self.partition.clone(), epoch, records), epoch)
        };
        match appending.await {
            Ok(sequence) => self.session.note_stored(&self.partition, sequence),
            Err(error) => return Err(self.fail(epoch, &error)),
        }
        Ok(result)
    }

    /// Waits until all appended records are stored. Called before a watch is opened: a cancelled watch may have
    /// appended records without waiting for them, and the new watch does not append these records again.
    pub(super) async fn flush(&self) -> Result<(), SourceError> {
        let open = self.state.lock().open;
        let Some(epoch) = open else { return Ok(()) };
        match self.session.shared.appender.flush(self.partition.clone(), epoch).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(epoch, &error)),
        }
    }

    /// Marks the partition as closed after an append failed. Returns the error for the informer.
    fn fail(&self, epoch: u64, error: &AppendError) -> SourceError {
        self.session.note_fence(error);
        self.state.lock().open.take_if(|open| *open == epoch);
        self.refused(error)
    }

    /// Records the result of a request to the apiserver for the document about the cluster; `None` is a success.
    pub(super) fn note_request(&self, failure: Option<&SourceError>) {
        self.session.knowledge.note_request(&self.partition, failure);
    }

    /// Performs a request to the apiserver and records its result. Dropping the future is recorded as a missing answer.
    pub(super) async fn asked<T>(
        &self,
        request: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        let mut unanswered = Unanswered(Some(self));
        let answer = request.await;
        unanswered.0 = None;
        self.note_request(answer.as_ref().err());
        answer
    }

    /// Appends a [`Record::Reset`] to the log and waits until it is stored. This must succeed before a new list, or a
    /// watch with initial events, is requested from the apiserver.
    pub(super) async fn reset(&self) -> Result<(), SourceError> {
        self.state.lock().listed = None;
        self.session.load.lock().begin(&self.partition);
        self.append(|recording, records| records.push(recording.reset())).await?;
        self.session.note_begun(&self.partition);
        Ok(())
    }

    /// Returns the version of the first page of the list in progress. A watch from this version misses no change.
    /// `page` is the version of the current page; the first call for a list remembers it.
    pub(super) fn list_version(&self, page: &ResourceVersion) -> ResourceVersion {
        self.state.lock().listed.get_or_insert_with(|| page.clone()).clone()
    }

    /// Counts objects of a list for the shard's weight (cost).
    pub(super) fn note_listed(&self, objects: usize) {
        self.session.load.lock().note_listed(&self.partition, objects);
    }

    /// Counts events of a watch for the shard's weight (cost). If `initial`, they count as objects of a list.
    pub(super) fn note_read(&self, items: &[WatchItem], initial: bool) {
        let count = |of: fn(&WatchItem) -> bool| items.iter().filter(|item| of(item)).count();
        let (added, deleted) =
            (count(|item| matches!(item, WatchItem::Added(_))), count(|item| matches!(item, WatchItem::Deleted(_))));
        if initial {
            return self.note_listed(added);
        }
        let events = added + deleted + count(|item| matches!(item, WatchItem::Modified(_)));
        self.session.load.lock().note_events(&self.partition, events, added, deleted);
    }

    async fn abandon(&self) {
        let open = self.state.lock().open.take();
        if let Some(epoch) = open {
            self.session.shared.appender.abandon(self.partition.clone(), epoch).await;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.lock().open.is_some()
    }

    pub(super) fn set_suspect(&self, suspect: bool) {
        self.state.lock().suspect = suspect;
    }

    pub(super) fn refused(&self, error: &(dyn Error + 'static)) -> SourceError {
        let message = format!("log of {}: {}", self.partition, with_causes(error));
        SourceError { class: ErrorClass::Transient, message }
    }
}

/// Guard that records a missing answer if the request's future is dropped.
struct Unanswered<'a>(Option<&'a SourceLog>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(log) = self.0 {
            let message = "the apiserver does not answer".to_owned();
            log.note_request(Some(&SourceError { class: ErrorClass::Stalled, message }));
        }
    }
}

impl LogSource for SourceLog {
    fn decoder(&self) -> &Mutex<Decoder> {
        &self.decoder
    }

    fn unreadable(&self, error: &CheckpointError) -> SourceError {
        // The next list goes to the apiserver instead of the log.
        self.set_suspect(true);
        self.refused(error)
    }
}

/// Returns whether the log's state, which has the version `at`, may answer a list with the condition `requested`. A
/// request for the most recent state is answered with any version: only a new reflector sends it to the log, and a new
/// reflector has no objects yet.
fn serves(at: &ResourceVersion, requested: &VersionMatch) -> bool {
    match requested {
        VersionMatch::MostRecent | VersionMatch::Any => true,
        VersionMatch::NotOlderThan(version) => !version.newer_than(at),
    }
}

impl Drop for SourceLog {
    fn drop(&mut self) {
        self.session.knowledge.forget(&self.partition);
        if let Some(epoch) = self.state.get_mut().open {
            self.session.close(&self.partition, epoch);
        }
    }
}

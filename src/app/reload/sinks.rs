//! Sinks of a running hub: added, changed, removed.

use std::sync::Arc;

use super::{Changes, RunningHub};
use crate::actors::sinks::sink::{Drain, OpenStore};
use crate::app::error::{ReloadError, StartError};
use crate::app::journal_readers::{Follower, Reader, ReaderSubscriptions, RunningSink, files_of};
use informer_hub_config::Config;
use informer_hub_disk::FileStates;
use informer_hub_types::clock;

impl RunningHub {
    /// Builds new and changed sinks, and opens the event stores of new ones. This is the last step of a reload that can
    /// fail before the running hub is changed. A sink whose secret or certificate files changed counts as changed.
    pub(super) async fn readers(
        &self,
        config: &Config,
        plan: &mut Changes,
    ) -> Result<(Vec<(Reader, OpenStore)>, Vec<Reader>), ReloadError> {
        let configured = |one: &RunningSink| Some((one.name().to_owned(), one.files.clone()?));
        let known: Vec<(String, FileStates)> = self.sinks.lock().iter().filter_map(configured).collect();
        let (added, mut changed) = (plan.sinks.added.clone(), plan.sinks.changed.clone());
        let (sinks, state, io) = (config.sinks.clone(), self.state.clone(), self.env.io.clone());
        let (fsync, dial) = (self.at_start.hub.fsync, self.dials.receivers.clone());
        let elections = self.election.as_ref().map(|elections| Arc::clone(&elections.0));
        let building = self.env.io.spawn_blocking(move || {
            for sink in &sinks {
                let has_other_files =
                    |(name, files): &(String, FileStates)| *name == sink.name && *files != files_of(sink);
                if known.iter().any(has_other_files) && !changed.contains(&sink.name) {
                    changed.push(sink.name.clone());
                }
            }
            let (mut new, mut altered) = (Vec::new(), Vec::new());
            for sink in &sinks {
                let (is_new, is_changed) = (added.contains(&sink.name), changed.contains(&sink.name));
                if is_new || is_changed {
                    let fence = elections.as_ref().map(|elections| elections.fence_of(&sink.name));
                    let reader = Reader::of_sink(sink, state.as_ref(), fsync, &io, dial.as_ref())?.fenced(fence);
                    if is_new { new.push(reader) } else { altered.push(reader) }
                }
            }
            // Opening a store creates files, so this comes after all sinks have proved usable.
            let new = new.into_iter().map(|reader| Ok((open(&reader)?, reader)));
            let new: Result<Vec<_>, StartError> = new.map(|one| one.map(|(store, reader)| (reader, store))).collect();
            Ok::<_, StartError>((new?, altered, changed))
        });
        let (new, altered, changed) = building.await.map_err(|_| ReloadError::Unread)??;
        plan.sinks.changed = changed;
        Ok((new, altered))
    }

    /// Delivers the events of removed sinks and ends these sinks. If a sink has a journal, its undelivered events stay
    /// there.
    pub(super) async fn end_sinks(&self, removed: &[String], config: &Config) -> Result<(), ReloadError> {
        let deadline = clock::now() + config.hub.shutdown_deadline;
        for name in removed {
            let Some((reader, followed)) = self.follower(name) else { continue };
            let pending = reader.backlog(&followed, &self.registry).await?;
            let unfollowed = reader.unfollow(followed, deadline, &self.registry).await;
            if let Some(report) = reader.sink.drain(Drain { deadline }).await {
                match (report.left + pending(), report.kept) {
                    (0, 0) => tracing::info!(sink = name, "removed the sink; all its events are delivered"),
                    (0, kept) => {
                        tracing::warn!(sink = name, kept, "removed the sink; undelivered events stay in its journal");
                    }
                    (left, _) => {
                        tracing::error!(sink = name, left, "removed the sink; undelivered events are lost");
                    }
                }
            }
            self.sinks.lock().retain(|one| one.name() != name);
            unfollowed?;
        }
        Ok(())
    }

    /// Reconfigures changed sinks, and subscribes all sinks to the resources of the new configuration.
    pub(super) async fn change_sinks(&self, config: &Config, changed: Vec<Reader>) -> Result<(), ReloadError> {
        for Reader { name, params, selection, files } in changed {
            let Some((running, _)) = self.follower(&name) else { continue };
            running.sink.reconfigure(params).await;
            if let Some(one) = self.sinks.lock().iter_mut().find(|one| one.name() == name) {
                (one.follower.selection, one.files) = (selection, files);
            }
        }
        let names: Vec<_> = self.sinks.lock().iter().map(|one| one.name().to_owned()).collect();
        for name in names {
            let Some((reader, mut followed)) = self.follower(&name) else { continue };
            let done = reader.follow(&mut followed, &config.resources, &self.registry).await;
            if let Some(one) = self.sinks.lock().iter_mut().find(|one| one.name() == name) {
                one.followed = followed;
            }
            done?;
        }
        Ok(())
    }

    /// Returns a copy of a running sink and of its subscriptions, so that the list of sinks is not locked across an
    /// await.
    fn follower(&self, name: &str) -> Option<(Follower, ReaderSubscriptions)> {
        let sinks = self.sinks.lock();
        sinks.iter().find(|one| one.name() == name).map(|one| (one.follower.clone(), one.followed.clone()))
    }
}

/// Opens the event store of a sink that is added while the hub runs. Unlike at the start of the hub, events in its
/// journal are not added to the caches.
fn open(reader: &Reader) -> Result<OpenStore, StartError> {
    let Some(place) = &reader.params.place else { return Ok(OpenStore::in_memory()) };
    let opened = OpenStore::open(&reader.name, place, &|_| true);
    let (store, _) = opened.map_err(|source| StartError::Journal { sink: reader.name.clone(), source })?;
    Ok(store)
}

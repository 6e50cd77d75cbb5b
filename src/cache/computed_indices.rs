//! Computed indices of a store: adds them at once, or by builds that other threads work on; removes them.

use std::sync::Arc;

use super::builds::{BuildId, BuildStep, Builds, IndexBuild, Next};
use super::index_errors::{AddIndexersError, IndexerConflict};
use super::indexers::Indexers;
use super::store::Store;

impl Store {
    /// Adds computed indices over all present and future objects, in one snapshot. Calls each index function once per
    /// object on this thread. [`Self::plan_indexers`] lets other threads do that.
    ///
    /// # Errors
    /// [`IndexerConflict`] if a declared, computed or planned index has one of the names. Then nothing is added.
    pub fn add_indexers(&mut self, indexers: Indexers) -> Result<(), IndexerConflict> {
        self.check_names(&indexers)?;
        // Built separately, not queued: the store is not written before they are complete.
        let built = Builds::build_now(indexers, Arc::new(self.next.clone()));
        self.next.indices.append(built);
        self.publish();
        Ok(())
    }

    /// Queues computed indices, to be built while the store is written. Until they are complete, readers do not see
    /// them, but their names are taken.
    ///
    /// A store builds one request at a time: see [`Self::begin_build`]. During a build, each write also calls the
    /// functions of the new indices. Dropping the store ends the build.
    ///
    /// # Errors
    /// As [`Self::add_indexers`].
    pub fn plan_indexers(&mut self, indexers: Indexers) -> Result<BuildId, IndexerConflict> {
        self.check_names(&indexers)?;
        Ok(self.builds.add(indexers))
    }

    /// Begins the next queued build of computed indices; `None` if a build is running or none is queued. The caller
    /// runs the returned work on any threads, then calls [`Self::resume_build`].
    pub fn begin_build(&mut self) -> Option<(BuildId, Arc<IndexBuild>)> {
        self.builds.begin(|| Arc::new(self.next.clone()))
    }

    /// Continues the running build of indices after the caller has run its work. Returns more work, or publishes the
    /// indices and ends the build. `None` if no build is running.
    pub fn resume_build(&mut self) -> Option<BuildStep> {
        let (built, removed) = match self.builds.resume()? {
            Next::Work(build) => return Some(BuildStep::Work(build)),
            Next::Built(built, removed) => (built, removed),
        };
        if !built.is_empty() {
            self.next.indices.append(built);
            self.publish();
        }
        if removed.is_empty() {
            return Some(BuildStep::Done(Ok(())));
        }
        let names = removed.iter().map(ToString::to_string).collect();
        let resource = self.next.resource().gvr.to_string();
        Some(BuildStep::Done(Err(AddIndexersError::Removed { resource, names })))
    }

    /// Returns whether the store is building the indices of this request, or builds them next. False for requests from
    /// before a panic, because a recovered store has lost them.
    #[must_use]
    pub fn is_building(&self, id: BuildId) -> bool {
        self.builds.is_first(id)
    }

    /// Returns whether a build of indices is planned or running.
    #[must_use]
    pub fn has_build(&self, id: BuildId) -> bool {
        self.builds.has(id)
    }

    /// Cancels the running build of indices, for example after one of its threads panicked.
    pub fn give_up_build(&mut self) {
        self.builds.give_up();
    }

    fn check_names(&self, indexers: &Indexers) -> Result<(), IndexerConflict> {
        let mut taken = self.next.index_names();
        taken.extend(self.builds.names().cloned());
        let names: Vec<_> = indexers.names().filter(|name| taken.contains(name)).map(ToString::to_string).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(IndexerConflict { resource: self.next.resource().gvr.to_string(), names })
    }

    /// Removes a computed or planned index. Returns whether there was one. Declared indices stay.
    pub fn remove_indexer(&mut self, name: &str) -> bool {
        let known = self.next.indices.forget(name);
        if known {
            self.publish();
        }
        known || self.builds.remove(name)
    }
}

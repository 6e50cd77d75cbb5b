//! The check of a server's version before a watch is reopened.
//!
//! If an etcd is restored from a backup, its resource versions go back. kube-apiserver accepts a watch from a version
//! that it has not reached, but the watch sends nothing until the server reaches that version again. So the changes of
//! the restore would never be seen. The driver reads the current version with
//! [`current_version`](crate::ListerWatcher::current_version).

use std::time::Duration;

use super::{Reflector, State};
use informer_hub_codec::{ErrorClass, SourceError};
use informer_hub_types::ResourceVersion;
use informer_hub_types::clock::Instant;

/// Minimum timeout of a watch that is opened although the server's version could not be read. The actual timeout is at
/// most twice as long. When the watch ends, the version is checked again.
const UNCHECKED_WATCH: Duration = Duration::from_secs(60);

impl Reflector {
    /// Continues from a saved state that is complete at `version`: opens a watch from this version. Lists only if the
    /// server cannot serve the version, or if the server's current version is older. Does nothing if `version` is empty
    /// or "0".
    pub fn resume_watch(&mut self, version: ResourceVersion) {
        if version.is_any() {
            return;
        }
        self.last_version = Some(version);
        self.unchecked = true;
        self.state = State::Check;
    }

    /// Reports the result of [`current_version`](crate::ListerWatcher::current_version). If the server's version is
    /// older than the known one, a list follows, otherwise a watch. `None` counts as not older.
    pub fn on_checked(&mut self, current: &Result<Option<ResourceVersion>, SourceError>, now: Instant) {
        if !matches!(self.state, State::Check) {
            return;
        }
        match current {
            Ok(current) => {
                self.unchecked = false;
                if self.newest().zip(current.as_ref()).is_some_and(|(known, current)| known.is_ahead_of(current)) {
                    self.version_unavailable = true;
                    self.state = State::Relist;
                    return;
                }
            }
            // A watch would be refused too.
            Err(error) if error.class == ErrorClass::Refused => return self.fail(error.class, now),
            // A server whose etcd does not answer can still send events. The check is repeated after this watch.
            Err(error) if error.class.is_unreachable() || matches!(error.class, ErrorClass::Throttled(_)) => {
                self.fail(error.class, now);
            }
            // Other errors: the watch shows whether they are permanent.
            Err(_) => self.unchecked = false,
        }
        self.state = State::Watch(self.watching(now, false));
    }

    /// Returns the minimum timeout of the next watch, which is at most 60 s while the server's version is unchecked.
    pub(super) fn shortest_watch(&self) -> Duration {
        let configured = self.options.min_watch_timeout;
        if self.unchecked { configured.min(UNCHECKED_WATCH) } else { configured }
    }
}

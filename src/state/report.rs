//! Report of a state directory and its damage. Reading it changes nothing.

use super::caches::{self, CacheReport};
use super::dir::{Access, StateDir};
use super::error::StateError;
use super::short_names;
use super::sourced_clusters::{self, FleetReport};
use informer_hub_journal::JournalError;
use informer_hub_journal::inspect::{self, JournalReport};

/// Report of a whole state directory.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReport {
    /// Path of the state directory.
    pub root: String,
    /// Whether a process uses the directory. If so, files may be incomplete.
    pub access: Access,
    /// Reports of the sinks and durable subscribers.
    pub readers: Vec<ReaderReport>,
    /// Reports of the saved caches.
    pub caches: Vec<CacheReport>,
    /// Report of the clusters found by cluster sources; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetReport>,
    /// Why the file of short names cannot be read; `None` if it can, or if there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_damage: Option<String>,
}

/// Report of one reader, a sink or durable subscriber.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaderReport {
    /// Name of the reader.
    pub name: String,
    /// Report of the journal, which holds the undelivered events.
    pub journal: JournalReport,
    /// Report of the dead letters: events that could not be delivered.
    pub dead_letters: JournalReport,
    /// Why the journal or the dead letters could not be read; `None` if both could.
    pub error: Option<String>,
}

impl StateReport {
    /// Returns whether nothing is damaged or lost.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.readers.iter().all(ReaderReport::is_sound)
            && self.caches.iter().all(|cache| cache.damage.is_empty())
            && self.names_damage.is_none()
            && self.fleet.as_ref().is_none_or(|fleet| fleet.damage.is_none())
    }
}

impl ReaderReport {
    /// Returns whether nothing is damaged or lost.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.error.is_none() && self.journal.is_sound() && self.dead_letters.is_sound()
    }
}

/// Reads a whole state directory. With `decode`, also decompresses and decodes every cached body.
/// Unreadable parts are reported, not returned as errors.
///
/// # Errors
/// If the directory cannot be listed.
pub fn inspect(state: &StateDir, access: Access, decode: bool) -> Result<StateReport, StateError> {
    let disk = &**state.disk();
    let mut readers = Vec::new();
    for name in state.readers()? {
        let mut error: Option<String> = None;
        let mut read = |found: Result<JournalReport, JournalError>| {
            found.unwrap_or_else(|failed| {
                let cause = std::error::Error::source(&failed).map_or_else(String::new, |cause| format!(": {cause}"));
                error.get_or_insert_with(|| format!("{failed}{cause}"));
                JournalReport::default()
            })
        };
        let journal = read(inspect::inspect(disk, &state.journal(&name)));
        let dead_letters = read(inspect::inspect(disk, &state.dead_letters(&name)));
        readers.push(ReaderReport { name, journal, dead_letters, error });
    }
    let root = state.caches();
    let caches =
        caches::inspect(disk, &root, decode).map_err(|source| StateError::Disk { file: root, verb: "read", source })?;
    let fleet = sourced_clusters::inspect(disk, &state.fleet());
    let unread = |error| format!("cannot read the file; resources configured by short names are listed again: {error}");
    let names_damage = short_names::read(disk, &state.names()).err().map(unread);
    Ok(StateReport { root: state.root().display().to_string(), access, readers, caches, fleet, names_damage })
}

//! What is in a state directory, and whether it is sound: read, never changed.

use super::caches::{self, CacheReport};
use super::dir::{Access, StateDir, StateError};
use super::fleet::{self, FleetReport};
use super::names;
use informer_hub_journal::JournalError;
use informer_hub_journal::inspect::{self, JournalReport};

/// All of a state directory.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReport {
    /// The directory.
    pub root: String,
    /// Whether somebody uses it: what is seen then may be half of something.
    pub access: Access,
    /// Sinks and durable subscribers.
    pub readers: Vec<ReaderReport>,
    /// What was last known of each resource.
    pub caches: Vec<CacheReport>,
    /// Which clusters sources have brought, where any have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetReport>,
    /// What is wrong with what is remembered of names, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_damage: Option<String>,
}

/// One reader.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaderReport {
    /// Its name.
    pub name: String,
    /// What it still has to be told.
    pub journal: JournalReport,
    /// What it could not be told.
    pub dead_letters: JournalReport,
    /// Why one of them could not be read.
    pub error: Option<String>,
}

impl StateReport {
    /// Whether nothing is damaged or lost.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.readers.iter().all(ReaderReport::is_sound)
            && self.caches.iter().all(|cache| cache.damage.is_empty())
            && self.names_damage.is_none()
            && self.fleet.as_ref().is_none_or(|fleet| fleet.damage.is_none())
    }
}

impl ReaderReport {
    /// Whether nothing is damaged or lost.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.error.is_none() && self.journal.is_sound() && self.dead_letters.is_sound()
    }
}

/// Reads all that is in a state directory; with `decode`, every body in the caches too, which takes as long as packing
/// them did. What cannot be read is reported as such.
///
/// # Errors
/// When the directory cannot be listed.
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
    let fleet = fleet::inspect(disk, &state.fleet());
    let unread = |error| format!("it cannot be read, what was asked for by short names begins anew: {error}");
    let names_damage = names::read(disk, &state.names()).err().map(unread);
    Ok(StateReport { root: state.root().display().to_string(), access, readers, caches, fleet, names_damage })
}

//! Whether a file that others write has changed, without reading it.

use std::path::Path;
use std::time::SystemTime;

/// What a file is like, as far as it can be seen from outside. Two that are equal are, but for a change within one tick
/// of the file system's clock that keeps the length, the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState(Option<(u64, Option<SystemTime>)>);

impl FileState {
    /// Follows links: where Kubernetes mounts a secret, it is a link that is replaced. Cost: one call of the system.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self(std::fs::metadata(path).ok().map(|file| (file.len(), file.modified().ok())))
    }
}

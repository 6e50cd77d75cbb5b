//! Whether files that others write have changed, without reading them.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What a file is like, as far as it can be seen from outside. Two that are equal are, but for a change within one tick
/// of the file system's clock that keeps the length, the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState(Option<(u64, Option<SystemTime>)>);

impl FileState {
    /// Follows links: where Kubernetes mounts a secret, it is a link that is replaced. Cost: one call of the system.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self(None), |found| Self::from(&found))
    }
}

impl From<&Metadata> for FileState {
    fn from(file: &Metadata) -> Self {
        Self(Some((file.len(), file.modified().ok())))
    }
}

/// What some files are like, each by its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStates(Vec<(PathBuf, FileState)>);

impl FileStates {
    /// As they are now. Blocks.
    pub fn of(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let state = |path: PathBuf| {
            let state = FileState::of(&path);
            (path, state)
        };
        Self(files.into_iter().map(Into::into).map(state).collect())
    }

    /// The same files as they are now. Blocks.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::of(self.0.iter().map(|(path, _)| path))
    }

    /// Whether there is no file to look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These files, and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_changes_or_goes_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "1").unwrap();
        let before = FileStates::of([&one, &two]);
        assert_eq!(before.again(), before);
        std::fs::write(&one, "12").unwrap();
        let changed = before.again();
        assert_ne!(changed, before);
        std::fs::write(&two, "").unwrap();
        assert_ne!(before.again(), changed);
        std::fs::remove_file(&two).unwrap();
        assert_eq!(before.again(), changed);
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, link] = ["old", "new", "link"].map(|name| dir.path().join(name));
        std::fs::write(&old, "old").unwrap();
        std::fs::write(&new, "newer").unwrap();
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let before = FileState::of(&link);
        std::fs::write(&old, "no more").unwrap();
        assert_ne!(FileState::of(&link), before, "it is the file that counts");
        let before = FileState::of(&link);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        assert_ne!(FileState::of(&link), before);
    }
}

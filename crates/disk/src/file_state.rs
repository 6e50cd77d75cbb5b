//! Change detection for files written by other programs, without reading them.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Size and modification time of a file. Equal states mean equal content, unless a change keeps the length and falls
/// within one tick of the file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState(Option<(u64, Option<SystemTime>)>);

impl FileState {
    /// Returns the current state. Follows links, since Kubernetes updates mounted secrets by replacing a link. Costs
    /// one system call.
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

/// States of several files. Two values for the same files differ if a file has changed in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStates(Vec<(PathBuf, FileState)>);

impl FileStates {
    /// Returns the current states of these files. Blocks the thread.
    pub fn of(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let state = |path: PathBuf| {
            let state = FileState::of(&path);
            (path, state)
        };
        Self(files.into_iter().map(Into::into).map(state).collect())
    }

    /// Returns the current states of the same files. Blocks the thread.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::of(self.0.iter().map(|(path, _)| path))
    }

    /// Returns whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the states of other files.
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
    fn state_differs_after_creation_change_and_removal() {
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
    fn state_follows_links() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, link] = ["old", "new", "link"].map(|name| dir.path().join(name));
        std::fs::write(&old, "old").unwrap();
        std::fs::write(&new, "newer").unwrap();
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let before = FileState::of(&link);
        std::fs::write(&old, "no more").unwrap();
        assert_ne!(FileState::of(&link), before, "the link's target is inspected");
        let before = FileState::of(&link);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        assert_ne!(FileState::of(&link), before);
    }
}

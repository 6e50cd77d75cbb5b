//! File in the temporary directory that only this user can read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rand::RngCore;

use informer_hub_types::rng;

/// A file with a random name. Dropping it deletes the file.
#[derive(Debug)]
pub(super) struct TempFile {
    path: PathBuf,
}

impl TempFile {
    /// Creates the file with this extension and content.
    pub(super) fn create(extension: &str, content: &str) -> anyhow::Result<Self> {
        let mut name = [0_u8; 8];
        rng::rng().fill_bytes(&mut name);
        let name = name.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let path = std::env::temp_dir().join(format!("informer-hub-demo-{name}{extension}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut open = options.open(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let file = Self { path };
        open.write_all(content.as_bytes()).with_context(|| format!("cannot write {}", file.path.display()))?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // An error means that the file was deleted already.
        let _ = fs::remove_file(&self.path);
    }
}

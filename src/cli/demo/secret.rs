//! Random signing secret of the webhook, in a file that only this user can read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore;

use informer_hub_sink::webhook::SigningKeys;
use informer_hub_types::rng;

/// A file with a secret. Dropping it deletes the file.
#[derive(Debug)]
pub(super) struct SecretFile {
    path: PathBuf,
    pub(super) keys: SigningKeys,
}

impl SecretFile {
    pub(super) fn create() -> anyhow::Result<Self> {
        let mut bytes = [0_u8; 48];
        rng::rng().fill_bytes(&mut bytes);
        let (name, key) = bytes.split_at(16);
        let name = name.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let path = std::env::temp_dir().join(format!("informer-hub-demo-{name}"));
        let text = format!("whsec_{}", STANDARD.encode(key));
        let keys = SigningKeys::parse(&text)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path);
        let mut file = file.with_context(|| format!("cannot create {}", path.display()))?;
        let secret = Self { path, keys };
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", secret.path.display()))?;
        Ok(secret)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        // An error means that the file was deleted already.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_signing_key_and_is_deleted_on_drop() {
        let secret = SecretFile::create().unwrap();
        let path = secret.path().to_owned();
        let read = SigningKeys::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read.sign("id", 1, b"x"), secret.keys.sign("id", 1, b"x"));
        drop(secret);
        assert!(!path.exists());
    }
}

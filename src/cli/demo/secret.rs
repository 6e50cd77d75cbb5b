//! Random signing secret of the webhook, in a file that only this user can read.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore;

use super::temp_file::TempFile;
use informer_hub_sink::webhook::SigningKeys;
use informer_hub_types::rng;

/// A file with a secret. Dropping it deletes the file.
#[derive(Debug)]
pub(super) struct SecretFile {
    file: TempFile,
    pub(super) keys: SigningKeys,
}

impl SecretFile {
    pub(super) fn create() -> anyhow::Result<Self> {
        let mut key = [0_u8; 32];
        rng::rng().fill_bytes(&mut key);
        let text = format!("whsec_{}", STANDARD.encode(key));
        Ok(Self { keys: SigningKeys::parse(&text)?, file: TempFile::create("", &text)? })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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

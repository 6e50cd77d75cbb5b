//! Bearer token in a file that another program replaces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use kube::Config;
use parking_lot::Mutex;

use informer_hub_types::clock::{self, Instant};

/// How long a token from a file is used before the file is reread.
pub(super) const TOKEN_AGE: Duration = Duration::from_secs(30);

/// A bearer token file, reread every [`TOKEN_AGE`]. kube's own reader keeps a trailing line break and then rejects the
/// token.
pub(super) struct TokenFile {
    path: PathBuf,
    current: Mutex<(Option<HeaderValue>, Instant)>,
}

impl TokenFile {
    /// Takes the token file out of `config`. Returns `None` if `config` has no token file, or has other credentials,
    /// which take precedence. Call it after the `exec` section has been removed from `config`.
    pub(super) fn take_from(config: &mut Config) -> Option<Self> {
        let auth = &mut config.auth_info;
        let other = auth.token.is_some() || auth.exec.is_some() || auth.auth_provider.is_some();
        let path: PathBuf = auth.token_file.take_if(|_| !other && auth.username.is_none())?.into();
        let header = Self::read(&path);
        Some(Self { path, current: Mutex::new((header, clock::now())) })
    }

    fn read(path: &Path) -> Option<HeaderValue> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", text.trim())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Returns the `Authorization` header of the current token. If the file is unreadable, the last token stays in use,
    /// as in client-go.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let mut current = self.current.lock();
        if current.1 + TOKEN_AGE <= clock::now() {
            let fresh = Self::read(&self.path).or_else(|| current.0.take());
            *current = (fresh, clock::now());
        }
        current.0.clone()
    }
}

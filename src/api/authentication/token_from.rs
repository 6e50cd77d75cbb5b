//! Sources of static tokens: a file or an environment variable.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use informer_hub_access::{InvalidToken, TokenMac, check_token};

/// Function that reads a secret.
pub type ReadSecret = Arc<dyn Fn() -> io::Result<String> + Send + Sync>;

/// Source of a token.
#[derive(Clone)]
pub struct TokenFrom {
    file: Option<PathBuf>,
    read: ReadSecret,
}

impl TokenFrom {
    /// Creates a source that calls `read` at the start and whenever `file` has changed.
    #[must_use]
    pub fn new(file: Option<PathBuf>, read: ReadSecret) -> Self {
        Self { file, read }
    }

    /// Returns the file, if the token is in one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the token. `key` is its key in the configuration, for errors.
    pub(super) fn mac(&self, key: &str) -> Result<TokenMac, TokenError> {
        let variable = || format!("the variable of {key}");
        let place = || self.file.as_deref().map_or_else(variable, |file| file.display().to_string());
        let text = (self.read)().map_err(|source| TokenError::Unreadable { place: place(), source })?;
        check_token(&text).map_err(|source| TokenError::Invalid { place: place(), source })?;
        Ok(TokenMac::of(text.as_bytes()))
    }
}

impl fmt::Debug for TokenFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFrom").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Token that cannot be read or used; the owner of the secret can fix it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The source could not be read.
    #[error("cannot read the token in {place}")]
    Unreadable {
        /// Where the token is, for the error text: the path of its file, or `the variable of <key>` with its
        /// configuration key.
        place: String,
        /// Error of the read.
        #[source]
        source: io::Error,
    },
    /// The content is not a valid token.
    #[error("cannot use the token in {place}")]
    Invalid {
        /// Where the token is, for the error text: the path of its file, or `the variable of <key>` with its
        /// configuration key.
        place: String,
        /// Why the content is not a token.
        #[source]
        source: InvalidToken,
    },
    /// Two readers have one token, so that their requests cannot be distinguished.
    #[error("readers.{one} and readers.{other} have the same token; give each its own")]
    Shared {
        /// Name of the first reader.
        one: String,
        /// Name of the second reader.
        other: String,
    },
}

//! Static bearer tokens: their format, and a comparison in constant time.

use std::fmt;

use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Minimum length of a token, in characters; a shorter token could be guessed.
const MIN_TOKEN: usize = 16;

/// Maximum length of a token, in characters, so that the head of a request (at most 32 KiB) has room for it.
const MAX_TOKEN: usize = 4096;

/// Error for a malformed token; it does not contain the token. The operator must choose another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// The token is too short or too long.
    #[error("the token has {0} characters, expected {MIN_TOKEN} to {MAX_TOKEN}: `openssl rand -hex 32` creates one")]
    Length(
        /// Length of the token.
        usize,
    ),
    /// The token has characters that a header must not contain.
    #[error("the token has white space or non-ASCII characters: `openssl rand -hex 32` creates one")]
    Characters,
}

/// Checks the format of a token.
///
/// # Errors
/// [`InvalidToken`] if the length or a character is invalid.
pub fn check_token(text: &str) -> Result<(), InvalidToken> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(InvalidToken::Characters);
    }
    if (MIN_TOKEN..=MAX_TOKEN).contains(&text.len()) { Ok(()) } else { Err(InvalidToken::Length(text.len())) }
}

/// HMAC-SHA256 of a token, stored instead of the token. Comparisons take constant time; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenMac(CtOutput<Hmac<Sha256>>);

impl TokenMac {
    /// Returns the MAC of a token.
    ///
    /// # Panics
    /// Never: HMAC takes a key of any length.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(b"informer-hub token").expect("HMAC takes a key of any length");
        Self(mac.chain_update(token).finalize())
    }
}

impl fmt::Debug for TokenMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenMac").finish_non_exhaustive()
    }
}

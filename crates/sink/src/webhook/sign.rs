//! Signature of Standard Webhooks: HMAC-SHA256 over `<id>.<timestamp>.<body>`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Prefix of a secret in base64.
const PREFIX: &str = "whsec_";

/// Signing keys of a sink. During a key rotation there are several: each one signs, and a receiver accepts the signature
/// whose key it has. `Debug` shows no key.
#[derive(Clone)]
pub struct SigningKeys(Box<[Box<[u8]>]>);

/// Error for a text without usable keys. The text itself is not shown, since it is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// The text has only white space.
    #[error("the signing secret is empty")]
    Empty,
    /// A secret starts with `whsec_` but continues without valid base64.
    #[error("signing secret {0} starts with whsec_ but continues without valid base64")]
    NotBase64(
        /// Position of the secret in the text, from 1.
        usize,
    ),
}

impl SigningKeys {
    /// Parses secrets separated by white space: `whsec_<base64>`, or any other text used as it is.
    ///
    /// # Errors
    /// [`InvalidSecret`] if there is none, or one is invalid.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let key = |(at, secret): (usize, &str)| match secret.strip_prefix(PREFIX) {
            None => Ok(secret.as_bytes().into()),
            Some(encoded) => match STANDARD.decode(encoded) {
                Ok(key) if !key.is_empty() => Ok(key.into_boxed_slice()),
                _ => Err(InvalidSecret::NotBase64(at + 1)),
            },
        };
        let keys: Box<[_]> = text.split_whitespace().enumerate().map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(InvalidSecret::Empty) } else { Ok(Self(keys)) }
    }

    /// Returns the texts of the keys as a configuration writes them, without `whsec_`. They must not be shown.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let literal = |key: &[u8]| str::from_utf8(key).ok().map(ToOwned::to_owned);
        self.0.iter().flat_map(move |key| literal(key).into_iter().chain([STANDARD.encode(key)]))
    }

    /// Returns the value of `webhook-signature`.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "HMAC accepts keys of any length")]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let timestamp = timestamp.to_string();
        let sign = |key: &[u8]| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(|key| sign(key)).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({} hidden)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_the_published_example() {
        // From the test vectors of Standard Webhooks.
        let keys = SigningKeys::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn every_key_signs_during_a_rotation() {
        let (old, new) = (SigningKeys::parse("old").unwrap(), SigningKeys::parse("new").unwrap());
        let both = SigningKeys::parse(" old new\n").unwrap().sign("id", 1, b"body");
        assert_eq!(both, format!("{} {}", old.sign("id", 1, b"body"), new.sign("id", 1, b"body")));
    }

    #[test]
    fn invalid_secret_is_rejected_and_never_shown() {
        assert_eq!(SigningKeys::parse(" \n").unwrap_err(), InvalidSecret::Empty);
        assert_eq!(SigningKeys::parse("good whsec_***").unwrap_err(), InvalidSecret::NotBase64(2));
        assert_eq!(SigningKeys::parse("whsec_").unwrap_err(), InvalidSecret::NotBase64(1));
        assert_eq!(format!("{:?}", SigningKeys::parse("hunter2").unwrap()), "SigningKeys(1 hidden)");
    }
}

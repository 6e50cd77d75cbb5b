//! JSON Web Tokens in the compact form of RFC 7515: header, claims and signature, not verified yet.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::jwks::Algorithm;

/// JSON Web Token, decoded and not verified. The algorithms `none` and HMAC are not known here, because tokens of an
/// issuer are signed by a key that the issuer publishes.
#[derive(Debug)]
pub(crate) struct Jwt<'t> {
    /// Algorithm of the signature; `None` if the hub refuses it.
    pub(crate) algorithm: Option<Algorithm>,
    /// Name of the key.
    pub(crate) key: Option<String>,
    /// Whether the header requires extensions, of which the hub knows none.
    pub(crate) is_extended: bool,
    /// The claims.
    pub(crate) claims: Map<String, Value>,
    /// Signed part of the token.
    pub(crate) signed: &'t [u8],
    /// The signature.
    pub(crate) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

impl<'t> Jwt<'t> {
    /// Splits and decodes a token. `None` if it is not a JWT.
    pub(crate) fn parse(token: &'t str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        // A fourth part would contain a dot, which is not base64.
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        let claims = serde_json::from_slice(&decode(claims)?).ok()?;
        Some(Self {
            algorithm: Algorithm::named(&header.alg),
            key: header.kid,
            is_extended: header.crit.is_some(),
            claims,
            signed: signed.as_bytes(),
            signature: decode(signature)?,
        })
    }

    /// Returns the claim `iss`.
    pub(crate) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Returns whether the claim `aud`, a text or a list, contains an audience.
    pub(crate) fn has_audience(&self, wanted: &str) -> bool {
        match self.claims.get("aud") {
            Some(Value::String(one)) => one == wanted,
            Some(Value::Array(all)) => all.iter().any(|one| one == wanted),
            _ => false,
        }
    }

    /// Returns the time in a claim.
    ///
    /// # Errors
    /// [`NotATime`] if the claim is not a number of seconds since 1970.
    pub(crate) fn time(&self, claim: &str) -> Result<Option<Timestamp>, NotATime> {
        let Some(value) = self.claims.get(claim) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| (0.0..=1e11).contains(seconds)).ok_or(NotATime)?;
        #[allow(clippy::cast_possible_truncation, reason = "the bounds are far below those of the type")]
        Timestamp::from_second(seconds as i64).map(Some).map_err(|_| NotATime)
    }
}

/// Error of a claim that should be a time and is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotATime;

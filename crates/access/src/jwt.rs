//! JSON Web Tokens in the compact form of RFC 7515: decodes header, claims and signature without verifying them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::jwks::Algorithm;

/// A decoded, unverified JSON Web Token.
#[derive(Debug)]
pub(crate) struct Jwt<'t> {
    /// Algorithm of the signature; `None` for algorithms that the hub refuses, such as `none` and HMAC.
    pub(crate) algorithm: Option<Algorithm>,
    /// Name (`kid`) of the key that signed the token.
    pub(crate) key: Option<String>,
    /// Whether the header requires extensions (`crit`), of which the hub supports none.
    pub(crate) is_extended: bool,
    pub(crate) claims: Map<String, Value>,
    /// Encoded header and claims, which the signature covers.
    pub(crate) signed: &'t [u8],
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
    /// Splits and decodes a token, without verifying it. Returns `None` if it is not a JWT.
    pub(crate) fn parse(token: &'t str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        // A token with more than three parts fails here: a dot is not base64.
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

    /// Returns the issuer (`iss`); `None` if it is missing or not a text.
    pub(crate) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Returns whether the claim `aud`, a text or a list, contains this audience.
    pub(crate) fn has_audience(&self, wanted: &str) -> bool {
        match self.claims.get("aud") {
            Some(Value::String(one)) => one == wanted,
            Some(Value::Array(all)) => all.iter().any(|one| one == wanted),
            _ => false,
        }
    }

    /// Returns the time in a claim; `None` if the claim is missing.
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

/// Error for a claim that is not a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotATime;

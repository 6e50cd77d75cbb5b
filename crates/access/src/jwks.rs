//! Keys of an issuer (JWK Set, RFC 7517), and the verification of signatures with ring.
//!
//! The token names the signature algorithm, which must fit the type of the key. So a public key is never used as the
//! secret of an HMAC.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of keys that are read from a set. Issuers publish a handful.
const MAX_KEYS: usize = 100;
/// RSA modulus sizes that ring accepts, in bytes: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Algorithm of a signature, by its name in RFC 7518.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm with this name. Returns `None` for algorithms that the hub refuses, such as `none` and
    /// HMAC.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::EdDsa => return None,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KeySet(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    name: Option<String>,
    /// The only algorithm (`alg`) that the key may be used with; `None` allows all that fit its type.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct WrittenSet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a key set. Ignores keys of unknown types, and keys that are not for signatures. Returns `None` if no
    /// usable key remains.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let written: WrittenSet = serde_json::from_slice(text).ok()?;
        let keys = written.keys.into_iter().take(MAX_KEYS);
        let keys: Vec<_> = keys.filter_map(|key| serde_json::from_value(key).ok()).filter_map(Key::read).collect();
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// Returns whether the set has a key with this name (`kid`).
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|key| key.name.as_deref() == Some(name))
    }

    /// Returns whether `signature` is a valid signature of the bytes `signed` by a key of the set.
    ///
    /// Tries the keys with this `name` (`kid`) and the keys without a name; if `name` is `None`, tries all keys.
    pub(crate) fn verify(&self, name: Option<&str>, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let may_be = |key: &&Key| name.is_none() || key.name.is_none() || key.name.as_deref() == name;
        self.0.iter().filter(may_be).any(|key| key.verifies(algorithm, signed, signature))
    }
}

impl Key {
    fn read(written: WrittenKey) -> Option<Self> {
        let WrittenKey { kty, usage, kid, alg, crv, n, e, x, y } = written;
        if usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let point = |length: usize, x: Option<String>, y: Option<String>| {
            let (x, y) = (bytes(x)?, bytes(y)?);
            let is_right = x.len() == length && y.len() == length;
            is_right.then(|| [&[4], &x[..], &y[..]].concat())
        };
        let material = match (kty.as_str(), crv.as_deref()) {
            ("RSA", _) => {
                let (modulus, exponent) = (bytes(n)?, bytes(e)?);
                let is_right = RSA_BYTES.contains(&modulus.len()) && (1..=8).contains(&exponent.len());
                is_right.then_some(Material::Rsa { modulus, exponent })?
            }
            ("EC", Some("P-256")) => Material::P256(point(32, x, y)?),
            ("EC", Some("P-384")) => Material::P384(point(48, x, y)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(x).filter(|key| key.len() == 32)?),
            _ => return None,
        };
        Some(Self { name: kid, algorithm: alg, material })
    }

    fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        if self.algorithm.as_deref().is_some_and(|only| Algorithm::named(only) != Some(algorithm)) {
            return false;
        }
        let plain = |kind: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(kind, key).verify(signed, signature).is_ok()
        };
        match (&self.material, algorithm) {
            (Material::Rsa { modulus, exponent }, algorithm) => algorithm.rsa().is_some_and(|kind| {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(kind, signed, signature).is_ok()
            }),
            (Material::P256(key), Algorithm::Es256) => plain(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Material::P384(key), Algorithm::Es384) => plain(&signature::ECDSA_P384_SHA384_FIXED, key),
            (Material::Ed25519(key), Algorithm::EdDsa) => plain(&signature::ED25519, key),
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "jwks_tests.rs"]
mod tests;

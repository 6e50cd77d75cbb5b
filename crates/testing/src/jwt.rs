//! Signer of JSON Web Tokens for tests.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// ES256 key that signs tokens, with its name (`kid`).
pub struct Signer {
    name: String,
    key: EcdsaKeyPair,
}

impl Signer {
    /// Creates a signer with a new key.
    ///
    /// # Panics
    /// If ring cannot create keys.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a new key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        Self { name: name.to_owned(), key: key.expect("the key is valid") }
    }

    /// Returns the public key as a JSON Web Key.
    #[must_use]
    pub fn public(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
        json!({ "kty": "EC", "crv": "P-256", "kid": self.name, "x": x, "y": y })
    }

    /// Returns a token with these claims, signed by this key.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({ "alg": "ES256", "kid": self.name }), claims)
    }

    /// Returns a signed token with this header, even if the header is invalid.
    ///
    /// # Panics
    /// If ring cannot sign.
    #[must_use]
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", base64url(signature))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the encoded header and claims of a token, without a signature.
#[must_use]
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()))
}

/// Encodes bytes as URL-safe base64 without padding, as in tokens.
#[must_use]
pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

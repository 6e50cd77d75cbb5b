//! OpenID Connect: verifies the tokens of an issuer with the keys that it publishes.
//!
//! Keys are fetched when a token needs them, and again when they are old or a token names an unknown key. While the
//! issuer is unreachable, the last keys stay in use. Fetches have a minimum interval, whatever tokens clients send.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};
use smol_str::{SmolStr, format_smolstr};

use crate::jwks::{Algorithm, KeySet};
use crate::jwt::Jwt;
use crate::review::User;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{MAX_QUOTED, printable_start};

/// Tolerated difference between the clocks of the issuer and the hub.
const LEEWAY: SignedDuration = SignedDuration::from_secs(30);
/// Minimum interval between two fetches of the issuer's keys.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// Age at which the issuer's keys are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Deadline for fetching the issuer's discovery document and key set together.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum length of a user or group name in a token, in bytes, since names are logged and sent to clusters.
const MAX_NAME: usize = 512;
/// Maximum number of groups of a user.
const MAX_GROUPS: usize = 1000;

/// The issuer whose tokens are accepted, and how user and groups are read from them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OidcSettings {
    /// URL of the issuer, exactly as in the claim `iss`.
    pub issuer: String,
    /// Value that the claim `aud` must contain.
    pub audience: String,
    /// Name of the claim with the user name.
    pub username_claim: String,
    /// Name of the claim with the groups.
    pub groups_claim: String,
    /// Prefix that the hub adds to user names.
    pub username_prefix: String,
    /// Prefix that the hub adds to groups.
    pub groups_prefix: String,
}

/// Interface for fetching documents of the issuer over HTTP. Implementations limit time and size.
pub trait FetchDocument: fmt::Debug + Send + Sync + 'static {
    /// Returns the document at an address.
    fn fetch(&self, address: String) -> BoxFuture<'static, Result<Vec<u8>, FetchFailure>>;
}

/// Reason, without secrets, why a document of the issuer cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FetchFailure(
    /// Cause of the failure.
    pub String,
);

/// Reason why a token is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidJwt {
    /// The token has another issuer, or is not a JWT.
    #[error("the token was not issued by the configured issuer")]
    Issuer,
    /// The signature's algorithm is `none`, an HMAC or unknown, or the token requires extensions.
    #[error(
        "the token must be signed with RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA, and its header \
         must not have crit"
    )]
    Algorithm,
    /// The signature is not the issuer's.
    #[error("the signature of the token is not valid")]
    Signature,
    /// The token is for another application: `aud` lacks the configured audience.
    #[error("the token is for another audience")]
    Audience,
    /// The token has expired or has no expiry (`exp`).
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet (`nbf`).
    #[error("the token is not valid yet")]
    NotYet,
    /// The token has no usable user name.
    #[error("the token's claim of the user name is missing, not allowed, or an unverified e-mail address")]
    Username,
    /// The issuer's keys could not be fetched.
    #[error("the keys of the issuer cannot be fetched now; try again")]
    NoKeys,
}

/// Verifier of the tokens of one issuer.
pub struct Oidc {
    settings: OidcSettings,
    fetch: Arc<dyn FetchDocument>,
    keys: ArcSwapOption<KeySet>,
    /// Time and outcome of the last fetch of the keys. Locked during a fetch, so that only one runs at a time.
    fetched: tokio::sync::Mutex<Fetched>,
}

#[derive(Default)]
struct Fetched {
    last: Option<Instant>,
    /// Whether the last fetch failed. Only the first of several failures is logged.
    has_failed: bool,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Oidc {
    /// Creates a verifier without keys. The first token to verify causes the first fetch of the issuer's keys.
    #[must_use]
    pub fn new(settings: OidcSettings, fetch: Arc<dyn FetchDocument>) -> Self {
        Self { settings, fetch, keys: ArcSwapOption::empty(), fetched: tokio::sync::Mutex::default() }
    }

    /// Returns whether a token names this issuer. Does not verify the token.
    #[must_use]
    pub fn is_issuer_of(&self, token: &str) -> bool {
        Jwt::parse(token).is_some_and(|jwt| jwt.issuer() == Some(self.settings.issuer.as_str()))
    }

    /// Verifies a token. Returns its user and expiry.
    ///
    /// # Errors
    /// [`InvalidJwt`] if the token is not valid, or cannot be verified.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn authenticate(&self, token: &str) -> Result<(User, Timestamp), InvalidJwt> {
        let jwt = Jwt::parse(token).ok_or(InvalidJwt::Issuer)?;
        if jwt.issuer() != Some(self.settings.issuer.as_str()) {
            return Err(InvalidJwt::Issuer);
        }
        let algorithm = jwt.algorithm.filter(|_| !jwt.is_extended).ok_or(InvalidJwt::Algorithm)?;
        self.verify(&jwt, algorithm).await?;
        if !jwt.has_audience(&self.settings.audience) {
            return Err(InvalidJwt::Audience);
        }
        let expires = Self::check_times(&jwt, clock::wall())?;
        Ok((self.user(&jwt.claims)?, expires))
    }

    async fn verify(&self, jwt: &Jwt<'_>, algorithm: Algorithm) -> Result<(), InvalidJwt> {
        let verifies = |keys: &KeySet| keys.verify(jwt.key.as_deref(), algorithm, jwt.signed, &jwt.signature);
        let before = self.keys.load_full();
        let is_known = before.as_ref().is_some_and(|keys| jwt.key.as_deref().is_none_or(|name| keys.has(name)));
        self.refresh(is_known, before.as_ref()).await;
        let keys = self.keys.load_full().ok_or(InvalidJwt::NoKeys)?;
        if verifies(&keys) { Ok(()) } else { Err(InvalidJwt::Signature) }
    }

    /// Fetches the issuer's keys again, if necessary, before a token is verified.
    ///
    /// `before` is the key set that the caller has loaded. `is_known` is whether this set has the token's key. Does
    /// nothing if another key set has replaced `before`.
    ///
    /// - If the token's key is known, fetches only after `MAX_AGE`, and does not wait for a fetch in progress.
    /// - If it is unknown, fetches after `MIN_INTERVAL`, and waits for a fetch in progress.
    async fn refresh(&self, is_known: bool, before: Option<&Arc<KeySet>>) {
        let mut fetched = match self.fetched.try_lock() {
            Ok(fetched) => fetched,
            Err(_) if is_known => return,
            Err(_) => self.fetched.lock().await,
        };
        let is_same = self.keys.load().as_ref().map(Arc::as_ptr) == before.map(Arc::as_ptr);
        let interval = if is_known { MAX_AGE } else { MIN_INTERVAL };
        if !is_same || fetched.last.is_some_and(|last| clock::now() < last + interval) {
            return;
        }
        // Also set before the fetch, so that a cancelled fetch counts for the minimum interval too.
        fetched.last = Some(clock::now());
        let found = tokio::time::timeout(DEADLINE, self.fetch_keys()).await;
        let found = found.unwrap_or_else(|_| Err(FetchFailure(format!("no answer within {} s", DEADLINE.as_secs()))));
        fetched.last = Some(clock::now());
        match found {
            Ok(keys) => {
                self.keys.store(Some(Arc::new(keys)));
                if std::mem::take(&mut fetched.has_failed) {
                    tracing::info!(issuer = self.settings.issuer, "fetching the keys of the OIDC issuer works again");
                }
            }
            Err(error) if !std::mem::replace(&mut fetched.has_failed, true) => {
                let issuer = &self.settings.issuer;
                tracing::warn!(issuer, %error, "cannot fetch the keys of the issuer; the last ones stay in use");
            }
            Err(_) => {}
        }
    }

    /// Fetches the issuer's keys to verify that the configuration is right, and discards them.
    ///
    /// # Errors
    /// [`FetchFailure`] if the issuer does not publish usable keys.
    pub async fn check(&self) -> Result<(), FetchFailure> {
        self.fetch_keys().await.map(drop)
    }

    async fn fetch_keys(&self) -> Result<KeySet, FetchFailure> {
        let wrong = |text: &str| FetchFailure(text.to_owned());
        let base = self.settings.issuer.trim_end_matches('/');
        let document = self.fetch.fetch(format!("{base}/.well-known/openid-configuration")).await?;
        let discovery: Discovery = serde_json::from_slice(&document)
            .map_err(|_| wrong("the discovery document is not JSON with issuer and jwks_uri"))?;
        if discovery.issuer != self.settings.issuer {
            let other = printable_start(&discovery.issuer, MAX_QUOTED);
            return Err(wrong(&format!("the discovery document names another issuer, {other:?}")));
        }
        // Keys fetched without TLS could be forged. Plain HTTP is accepted only if the issuer uses it too, as on
        // loopback.
        let is_plain = !discovery.jwks_uri.starts_with("https://");
        if is_plain && self.settings.issuer.starts_with("https://") {
            return Err(wrong("jwks_uri in the discovery document does not begin with https://"));
        }
        let keys = self.fetch.fetch(discovery.jwks_uri).await?;
        KeySet::parse(&keys).ok_or_else(|| wrong("the key set has no usable key"))
    }

    fn check_times(jwt: &Jwt<'_>, now: Timestamp) -> Result<Timestamp, InvalidJwt> {
        let expires = jwt.time("exp").ok().flatten().ok_or(InvalidJwt::Expired)?;
        if now >= expires.saturating_add(LEEWAY).unwrap_or(expires) {
            return Err(InvalidJwt::Expired);
        }
        let begins = jwt.time("nbf").map_err(|_| InvalidJwt::NotYet)?;
        let tolerated = now.saturating_add(LEEWAY).unwrap_or(now);
        if begins.is_some_and(|begins| tolerated < begins) { Err(InvalidJwt::NotYet) } else { Ok(expires) }
    }

    /// Reads user and groups from the claims. Refuses a `system:` user name and drops `system:` groups, which Kubernetes
    /// reserves.
    fn user(&self, claims: &Map<String, Value>) -> Result<User, InvalidJwt> {
        let OidcSettings { username_claim, groups_claim, username_prefix, groups_prefix, .. } = &self.settings;
        let is_usable = |name: &str| !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
        let name = claims.get(username_claim).and_then(Value::as_str).filter(|name| is_usable(name));
        let is_unverified = username_claim == "email" && claims.get("email_verified").is_some_and(|it| *it != true);
        let name = name.filter(|_| !is_unverified).ok_or(InvalidJwt::Username)?;
        let name = format_smolstr!("{username_prefix}{name}");
        if name.starts_with("system:") {
            return Err(InvalidJwt::Username);
        }
        let groups: Vec<&str> = match claims.get(groups_claim) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).take(MAX_GROUPS).collect(),
            _ => Vec::new(),
        };
        let groups = groups.into_iter().filter(|group| is_usable(group));
        let groups = groups.map(|group| format_smolstr!("{groups_prefix}{group}"));
        let groups: Vec<SmolStr> = groups.filter(|group| !group.starts_with("system:")).collect();
        Ok(User { name, groups, uid: None, extra: BTreeMap::new() })
    }
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "oidc_tests.rs"]
mod tests;

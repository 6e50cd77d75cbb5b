//! The `continue` token of a Kubernetes list in pages. (Queries have tokens of their own: `cache/query/token.rs`.)
//!
//! A token is URL-safe base64 of a JSON object with a format version. It needs no secrecy and no signature: it holds
//! only a position in a list, and the reader's permission for this list is checked again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use informer_hub_types::{ClusterName, Fingerprint, ObjectKey};
use serde::{Deserialize, Serialize};

use crate::encode::json;
use crate::{Options, ResourcePath, Root, Status};

/// Format version of the tokens. A token of another version is refused.
const VERSION: &str = "informer-hub.io/v1";
/// Maximum length of a token, in characters. Longer ones are refused; the hub creates none.
const MAX_TOKEN: usize = 4096;

/// Position of the next page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continuation {
    /// resourceVersion of the list: the snapshot that all its pages are read from.
    pub version: u64,
    /// Fingerprint of the requested clusters, resource, namespace and selectors ([`Continuation::fingerprint`]). It
    /// detects tokens of other lists, which are refused.
    pub list: u64,
    /// Cluster of the last object on the previous page.
    pub cluster: ClusterName,
    /// Key of the last object on the previous page.
    pub key: ObjectKey,
}

/// Format version of a token. It is decoded first, since the other members depend on it.
#[derive(Deserialize)]
struct Versioned {
    v: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    v: String,
    rv: u64,
    list: u64,
    cluster: ClusterName,
    key: String,
    /// Checksum of the other members, which detects damaged tokens.
    sum: u64,
}

impl Continuation {
    /// Returns the fingerprint of a list. It does not include the page limit, which may differ between pages. Every
    /// process computes the same value.
    #[must_use]
    pub fn fingerprint(root: &Root, path: &ResourcePath, options: &Options) -> u64 {
        let (kind, clusters) = match root {
            Root::Cluster(name) => ("cluster", name.to_string()),
            Root::Fleet(selector) => ("fleet", selector.to_string()),
            Root::Unique(selector) => ("unique", selector.to_string()),
        };
        let (labels, fields) = (options.labels.to_string(), options.fields.to_string());
        let namespace = path.namespace.as_deref().unwrap_or_default();
        let parts = [kind, &clusters, &path.group, &path.version, &path.resource, namespace, &labels, &fields];
        parts.into_iter().fold(Fingerprint::default(), Fingerprint::text).finish()
    }

    /// Encodes the position as a token.
    #[must_use]
    pub fn token(&self) -> String {
        let token = Token {
            v: VERSION.to_owned(),
            rv: self.version,
            list: self.list,
            cluster: self.cluster.clone(),
            key: self.key.as_str().to_owned(),
            sum: self.sum(),
        };
        URL_SAFE_NO_PAD.encode(json(&token))
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// [`Status`] of code 400 for a text that is not a token, a damaged token, and a token of another format version.
    pub fn parse(token: &str) -> Result<Self, Status> {
        if token.len() > MAX_TOKEN {
            return Err(invalid(&format!("it has {} characters: at most {MAX_TOKEN} are allowed", token.len())));
        }
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid("it is not base64"))?;
        let Versioned { v } =
            serde_json::from_slice(&json).map_err(|_| invalid("it is not JSON with a format version `v`"))?;
        if v != VERSION {
            return Err(invalid("server does not recognize this encoded version"));
        }
        let damaged = || invalid("it is damaged");
        let found: Token = serde_json::from_slice(&json).map_err(|_| damaged())?;
        let key = ObjectKey::of(&found.key);
        let position = Self { version: found.rv, list: found.list, cluster: found.cluster, key };
        // Encoding the position again verifies the sum, and refuses other spellings of the same JSON.
        if found.rv == 0 || !is_key(&found.key) || position.token() != token {
            return Err(damaged());
        }
        Ok(position)
    }

    /// Checks that the token belongs to the list with this fingerprint.
    ///
    /// # Errors
    /// [`Status`] of code 400 if it belongs to another list.
    pub fn check(&self, list: u64) -> Result<(), Status> {
        if self.list == list {
            return Ok(());
        }
        Err(invalid("it belongs to another list: request every page with the same path and selectors"))
    }

    fn sum(&self) -> u64 {
        let numbers = Fingerprint::default().number(self.version).number(self.list);
        numbers.text(self.cluster.as_str()).text(self.key.as_str()).finish()
    }
}

fn invalid(problem: &str) -> Status {
    Status::bad_request(format!("invalid continue token: continue key is not valid: {problem}"))
}

/// Returns whether a text has the form of an object's key: `name` or `namespace/name`.
fn is_key(key: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.len() <= 253 && part != "." && part != "..";
    key.split('/').count() <= 2 && key.split('/').all(is_part) && !key.contains('%')
}

#[cfg(test)]
mod tests;

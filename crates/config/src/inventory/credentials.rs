//! Credentials from untrusted objects, and the minimal kubeconfig built from them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::{InlineKubeconfig, is_loopback, url};

/// Address, CA and credentials of a cluster. They contain no file names, and no command except one from the hub's own
/// configuration.
#[derive(Clone, Default)]
pub struct Credentials {
    pub(super) server: String,
    /// CA certificates, as base64 of PEM.
    pub(super) ca_data: Option<String>,
    pub(super) insecure: bool,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy_url: Option<String>,
    pub(super) token: Option<String>,
    pub(super) password: Option<(String, String)>,
    /// Client certificate and its private key, base64 of PEM.
    pub(super) certificate: Option<(String, String)>,
    /// Command that returns credentials: `exec` of a kubeconfig's user.
    pub(super) exec: Option<Value>,
    /// Settings for the credential command in `exec`: `extensions` of a kubeconfig's cluster.
    pub(super) extensions: Vec<Value>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Names of the keys from which [`Credentials`] were read, for error messages.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) server: &'static str,
    pub(super) ca: &'static str,
    pub(super) insecure: &'static str,
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
    pub(super) proxy: &'static str,
}

/// Copies a text; returns `None` for an empty one.
pub(super) fn given(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Credentials {
    /// Returns whether there is no token, password, certificate or command that identifies a user.
    pub(super) fn is_anonymous(&self) -> bool {
        self.token.is_none() && self.password.is_none() && self.certificate.is_none() && self.exec.is_none()
    }

    /// Builds a kubeconfig with exactly these credentials. Returns the problem if they are not valid.
    pub(super) fn kubeconfig(&self, keys: Keys, origin: &str) -> Result<InlineKubeconfig, String> {
        self.check(keys)?;
        let mut cluster = Map::new();
        let mut set = |key: &str, value: Option<Value>| value.map(|value| cluster.insert(key.to_owned(), value));
        set("server", Some(json!(self.server)));
        set("certificate-authority-data", self.ca_data.as_ref().map(|data| json!(data)));
        set("insecure-skip-tls-verify", self.insecure.then_some(Value::Bool(true)));
        set("tls-server-name", self.tls_server_name.as_ref().map(|name| json!(name)));
        set("proxy-url", self.proxy_url.as_ref().map(|url| json!(url)));
        set("extensions", (!self.extensions.is_empty()).then(|| json!(self.extensions)));
        let mut user = Map::new();
        let mut set = |key: &str, value: Option<Value>| value.map(|value| user.insert(key.to_owned(), value));
        set("token", self.token.as_ref().map(|token| json!(token)));
        set("username", self.password.as_ref().map(|(name, _)| json!(name)));
        set("password", self.password.as_ref().map(|(_, password)| json!(password)));
        set("client-certificate-data", self.certificate.as_ref().map(|(certificate, _)| json!(certificate)));
        set("client-key-data", self.certificate.as_ref().map(|(_, key)| json!(key)));
        set("exec", self.exec.clone());
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "found",
            "clusters": [{ "name": "found", "cluster": cluster }],
            "users": [{ "name": "found", "user": user }],
            "contexts": [{ "name": "found", "context": { "cluster": "found", "user": "found" } }],
        });
        Ok(InlineKubeconfig::new(&text.to_string(), origin))
    }

    fn check(&self, keys: Keys) -> Result<(), String> {
        let uri = url(&self.server).map_err(|problem| format!("{}: {problem}", keys.server))?;
        if uri.scheme_str() == Some("http") && !self.is_anonymous() && !is_loopback(uri.host().unwrap_or_default()) {
            return Err(format!("{} would send credentials unencrypted; write https://", keys.server));
        }
        if self.insecure && self.ca_data.is_some() {
            return Err(format!("has {} and {}; keep one of them", keys.insecure, keys.ca));
        }
        if let Some(proxy) = &self.proxy_url {
            // The error does not quote the address, which may contain a password.
            proxy.parse::<http::Uri>().map_err(|_| {
                format!("{} is not an address; write e.g. \"http://proxy.example.com:3128\"", keys.proxy)
            })?;
        }
        for (key, data) in [
            (keys.ca, self.ca_data.as_ref()),
            (keys.certificate, self.certificate.as_ref().map(|(certificate, _)| certificate)),
            (keys.key, self.certificate.as_ref().map(|(_, key)| key)),
        ] {
            let Some(data) = data else { continue };
            let pem = STANDARD.decode(data).map_err(|_| format!("{key} is not base64"))?;
            if !pem.windows(PEM.len()).any(|window| window == PEM) {
                return Err(format!("{key} is not base64 of PEM text (-----BEGIN …)"));
            }
        }
        Ok(())
    }
}

const PEM: &[u8] = b"-----BEGIN ";

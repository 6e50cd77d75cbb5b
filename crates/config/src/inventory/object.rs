//! Objects of a management cluster: metadata and Secrets.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Name, namespace and labels of an object.
#[derive(Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, Option<String>>>,
}

impl Metadata {
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key)?.as_deref()
    }

    /// Returns key and value of each label, and whether the tool that manages the object sets it for its own use
    /// (`is_own`).
    pub(super) fn labels(&self, is_own: impl Fn(&str) -> bool) -> Vec<(&str, &str, bool)> {
        let all = self.labels.iter().flatten();
        all.map(|(key, value)| (key.as_str(), value.as_deref().unwrap_or_default(), is_own(key))).collect()
    }
}

/// Kubernetes Secret, with the fields that are read.
#[derive(Deserialize)]
pub(super) struct Secret {
    pub(super) metadata: Metadata,
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    data: Option<BTreeMap<String, Option<String>>>,
}

impl Secret {
    /// Returns `Secret <namespace>/<name>`, for messages.
    pub(super) fn title(&self) -> String {
        format!("Secret {}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Decodes the text of a key of `data`; `None` if it is missing or empty.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, String> {
        let Some(encoded) = self.data.as_ref().and_then(|data| data.get(key)?.as_deref()) else { return Ok(None) };
        let bytes = STANDARD.decode(encoded).map_err(|_| format!("data.{key} is not base64"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("data.{key} is not text in UTF-8"))?;
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }
}

/// Parses an object's JSON. Errors do not quote it.
pub(super) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| {
        format!("does not have the expected JSON form: error at line {}, column {}", error.line(), error.column())
    })
}

//! Reader of ClusterProfiles of the Cluster Inventory API (`multicluster.x-k8s.io/v1alpha1`). Each describes a cluster
//! by name, labels and properties.
//!
//! Credentials come from commands in the hub's configuration (KEP-5339) or from Secrets (KEP-4322).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::kubeconfig::{self, Cluster, Extension, from_data};
use super::object::{Metadata, Secret, read};
use super::source_report::{Candidate, SourceReport};
use crate::{ClusterAccess, ClusterSourceConfig, ProviderConfig};

/// Label selector of Secrets with credentials of ClusterProfiles.
pub const PROFILE_SECRETS_SELECTOR: &str = "x-k8s.io/cluster-profile";

/// Label with the namespace of the ClusterProfile that a Secret belongs to. Without this label, the ClusterProfile is
/// in the Secret's own namespace or in `default`.
const SECRET_NAMESPACE: &str = "x-k8s.io/cluster-profile-namespace";

/// Keys of a Secret that may hold its kubeconfig; both spellings are in use.
const SECRET_KEYS: [&str; 2] = ["Config", "config"];

/// Prefix of the label keys that the Cluster Inventory API sets for its own use.
const OWN: &str = "x-k8s.io/";

/// Extension of a kubeconfig's cluster that is passed to the credential command.
const EXEC: &str = "client.authentication.k8s.io/exec";
/// Kubeconfig extension in a ClusterProfile's access provider. It has further arguments for the credential command; the
/// extension `MORE_ENV` has further environment variables.
const MORE_ARGS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
const MORE_ENV: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

#[derive(Deserialize)]
struct Profile {
    metadata: Metadata,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    properties: Option<Vec<Property>>,
    access_providers: Option<Vec<Provider>>,
    /// Former name of `accessProviders`.
    credential_providers: Option<Vec<Provider>>,
}

#[derive(Deserialize)]
struct Property {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Provider {
    name: String,
    #[serde(default)]
    cluster: Option<Cluster>,
}

/// Reads the clusters of ClusterProfiles and their Secrets, each given as JSON.
pub fn report_from_profiles<J: AsRef<[u8]>, S: AsRef<[u8]>>(
    source: &ClusterSourceConfig,
    providers: &BTreeMap<String, ProviderConfig>,
    take_properties: &[String],
    profiles: impl IntoIterator<Item = J>,
    secrets: impl IntoIterator<Item = S>,
) -> SourceReport {
    let mut report = SourceReport::default();
    let mut known = Vec::new();
    for json in secrets {
        match read::<Secret>(json.as_ref()) {
            Ok(secret) => known.push(secret),
            Err(problem) => report.note(source, "Secret", Err(problem)),
        }
    }
    for json in profiles {
        match read::<Profile>(json.as_ref()) {
            Ok(profile) => {
                let title = format!("ClusterProfile {}/{}", profile.metadata.namespace, profile.metadata.name);
                let candidate = profile.candidate(&title, providers, take_properties, &known);
                report.note(source, &title, candidate);
            }
            Err(problem) => report.note(source, "ClusterProfile", Err(problem)),
        }
    }
    report
}

impl Profile {
    fn candidate<'p>(
        &'p self,
        title: &str,
        providers: &BTreeMap<String, ProviderConfig>,
        take_properties: &[String],
        secrets: &[Secret],
    ) -> Result<Candidate<'p>, String> {
        let access = match self.by_provider(title, providers)? {
            Some(access) => access,
            None => self.by_secret(secrets)?.ok_or_else(|| self.no_way(providers))?,
        };
        let is_label = |property: &&Property| take_properties.contains(&property.name);
        let properties = self.status.iter().flat_map(|status| &status.properties).flatten().filter(is_label);
        let mut labels: Vec<_> = properties.map(|it| (it.name.as_str(), it.value.as_str(), false)).collect();
        labels.extend(self.metadata.labels(|key| key.starts_with(OWN)));
        Ok(Candidate {
            object: title.to_owned(),
            name: self.metadata.name.as_str().into(),
            namespace: &self.metadata.namespace,
            labels,
            access,
        })
    }

    /// Returns the profile's access provider with this name. `accessProviders` has precedence over its former name.
    fn offer(&self, name: &str) -> Option<&Provider> {
        let status = self.status.as_ref()?;
        let mut all = status.access_providers.iter().flatten().chain(status.credential_providers.iter().flatten());
        all.find(|provider| provider.name == name)
    }

    fn by_provider(
        &self,
        title: &str,
        providers: &BTreeMap<String, ProviderConfig>,
    ) -> Result<Option<ClusterAccess>, String> {
        let mut offered = providers.iter().filter_map(|(name, config)| Some((name, config, self.offer(name)?)));
        let Some((name, config, offer)) = offered.next() else { return Ok(None) };
        let wrong = |problem: String| format!("status.accessProviders {name:?}: {problem}");
        let cluster = offer.cluster.as_ref().ok_or_else(|| wrong("has no cluster".to_owned()))?;
        let mut credentials = kubeconfig::of_cluster(cluster).map_err(wrong)?;
        let extensions = cluster.extensions.as_deref().unwrap_or_default();
        credentials.exec = Some(exec(config, extensions).map_err(wrong)?);
        let handed = extensions.iter().filter(|extension| extension.name == EXEC);
        credentials.extensions = handed.map(|it| json!({ "name": it.name, "extension": it.extension })).collect();
        let access = credentials.kubeconfig(kubeconfig::KEYS, title).map_err(wrong)?;
        Ok(Some(ClusterAccess::Inline(access)))
    }

    fn by_secret(&self, secrets: &[Secret]) -> Result<Option<ClusterAccess>, String> {
        let Some(secret) = secrets.iter().find(|secret| self.is_of(secret)) else { return Ok(None) };
        let title = secret.title();
        let wrong = |problem: String| format!("its {title}: {problem}");
        let mut text = None;
        for key in SECRET_KEYS {
            text = text.or(secret.text(key).map_err(wrong)?.map(|text| (key, text)));
        }
        let (key, text) = text.ok_or_else(|| wrong("data.Config is missing; it is the kubeconfig".to_owned()))?;
        let access = from_data(&text, &title).map_err(|problem| wrong(format!("data.{key}: {problem}")))?;
        Ok(Some(ClusterAccess::Inline(access)))
    }

    fn is_of(&self, secret: &Secret) -> bool {
        let Metadata { name, namespace, .. } = &self.metadata;
        if secret.metadata.label(PROFILE_SECRETS_SELECTOR) != Some(name) {
            return false;
        }
        match secret.metadata.label(SECRET_NAMESPACE) {
            Some(of_profile) => of_profile == namespace,
            None => secret.metadata.namespace == *namespace || namespace == "default",
        }
    }

    fn no_way(&self, providers: &BTreeMap<String, ProviderConfig>) -> String {
        let status = self.status.as_ref();
        let both = status.map(|status| [&status.access_providers, &status.credential_providers]);
        let offered = both.into_iter().flatten().flatten().flatten().map(|provider| provider.name.as_str());
        let offered: Vec<_> = offered.collect();
        let configured: Vec<_> = providers.keys().map(String::as_str).collect();
        match (offered.is_empty(), configured.is_empty()) {
            (true, _) => "status.accessProviders is empty, and the profile has no Secret".to_owned(),
            (false, true) => format!(
                "status.accessProviders has {}, but no providers are configured; write a table providers.{}",
                offered.join(", "),
                offered[0]
            ),
            (false, false) => format!(
                "status.accessProviders has {}, but the configured providers are {}",
                offered.join(", "),
                configured.join(", ")
            ),
        }
    }
}

/// Builds `exec` of a kubeconfig's user from the configured command. Adds a profile's arguments and variables only if
/// `take_args` and `take_env` allow it.
fn exec(config: &ProviderConfig, extensions: &[Extension]) -> Result<Value, String> {
    let (mut args, mut env) = (config.args.clone(), config.env.clone());
    for extension in extensions {
        let given = || extension.extension.clone();
        match extension.name.as_str() {
            MORE_ARGS if config.take_args => {
                let more: Vec<String> = serde_json::from_value(given())
                    .map_err(|_| format!("extension {MORE_ARGS} is not a list of strings"))?;
                args.extend(more);
            }
            MORE_ENV if config.take_env => {
                let more: BTreeMap<String, String> = serde_json::from_value(given())
                    .map_err(|_| format!("extension {MORE_ENV} is not a map of strings"))?;
                for (name, value) in more {
                    env.entry(name).or_insert(value);
                }
            }
            _ => {}
        }
    }
    let env: Vec<_> = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    Ok(json!({
        "apiVersion": config.api_version, "command": config.command, "args": args, "env": env,
        "interactiveMode": "Never", "provideClusterInfo": true,
    }))
}

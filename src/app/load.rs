//! Loading of a configuration file, with checks that need more than its text: filters are compiled, and secrets, CA
//! files and kubeconfigs are read.

use std::path::{Path, PathBuf};

use super::port_protection;
use crate::api;
use informer_hub_config::{Config, ConfigErrors, Probes, WrongKubeconfig};
use informer_hub_sink::webhook::{
    ClientCert, ExtraHeaders, SigningKeys, check_client_cert, check_header_name, check_roots,
};
use informer_hub_sink::{Filter, SubjectPattern, Template};
use informer_hub_source::{ClientError, read_kubeconfig};
use informer_hub_types::{ClusterName, with_causes};

/// File of a configuration, and the part of it that a process uses.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    pub(super) path: PathBuf,
    user: User,
}

#[derive(Clone, Debug)]
enum User {
    /// A hub, which uses the whole file.
    Hub,
    /// An agent, which uses the cluster of this name. Without a name, it uses the only cluster of the file, or the only
    /// one with `agent = true`.
    Agent(Option<ClusterName>),
}

impl ConfigSource {
    /// Creates the source for a hub, which uses the whole file.
    #[must_use]
    pub fn of_hub(path: PathBuf) -> Self {
        Self { path, user: User::Hub }
    }

    /// Creates the source for an agent, which uses one cluster. See [`Config::into_agent`].
    #[must_use]
    pub fn of_agent(path: PathBuf, cluster: Option<ClusterName>) -> Self {
        Self { path, user: User::Agent(cluster) }
    }

    /// Reads the file. See [`load`].
    ///
    /// # Errors
    /// All mistakes, in one error.
    pub fn load(&self) -> Result<Config, ConfigErrors> {
        let config = load(&self.path)?;
        match &self.user {
            User::Hub => Ok(config),
            User::Agent(cluster) => config.into_agent(Some(&self.path), cluster.as_ref()),
        }
    }
}

/// Reads a configuration file like [`Config::from_file`], and also compiles filters and reads secrets, CA files and
/// kubeconfigs. Their faults are reported as mistakes with file and line.
///
/// # Errors
/// All mistakes, in one error.
pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
    let mut probes = Probes::default();
    probes.filter = |text| Filter::compile(text).map(drop).map_err(|error| error.to_string());
    probes.signing_secret = |text| SigningKeys::parse(text).map(drop).map_err(|error| error.to_string());
    probes.client_cert = |cert, key| {
        let cert = ClientCert { cert_file: cert.to_owned(), key_file: key.to_owned() };
        check_client_cert(&cert).map_err(|error| (error.key(), with_causes(&error)))
    };
    probes.server_tls =
        |tls| api::check_tls(&port_protection::tls_files(tls)).map_err(|error| (error.key(), with_causes(&error)));
    probes.token = |text| informer_hub_access::check_token(text).map_err(|error| error.to_string());
    probes.template =
        |text, content_type| Template::compile(text, content_type).map(drop).map_err(|error| error.to_string());
    probes.header = |name, value| {
        let checked = match value {
            None => check_header_name(name),
            Some(value) => ExtraHeaders::new([(name, value)]).map(drop),
        };
        checked.map_err(|error| error.to_string())
    };
    probes.subject = |text| text.parse::<SubjectPattern>().map(drop).map_err(|error| error.to_string());
    probes.ca_file = |path| check_roots(path).map_err(|error| with_causes(&error));
    probes.kubeconfig = |path, context| read_kubeconfig(path, context).map(drop).map_err(|error| wrong(&error));
    Config::from_file_with_probes(path, probes)
}

fn wrong(error: &ClientError) -> WrongKubeconfig {
    match error {
        ClientError::NoContext { .. } | ClientError::NoCurrentContext { .. } => {
            WrongKubeconfig::Context(error.to_string())
        }
        _ => WrongKubeconfig::File(error.to_string()),
    }
}

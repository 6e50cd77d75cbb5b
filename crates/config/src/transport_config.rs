//! Types of the checked `type` of a sink: webhook, NATS, file or standard output, and the format of its events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Compression, Preset, Secret};

/// Transport of a sink: `type` and the keys that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportConfig {
    /// `type = "webhook"`.
    Webhook(WebhookConfig),
    /// `type = "nats"`.
    Nats(NatsConfig),
    /// `type = "file"`.
    File(FileConfig),
    /// `type = "stdout"`.
    Stdout(StdoutConfig),
}

impl TransportConfig {
    /// Returns the maximum number of attempts in flight. Events of one object never overlap.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        match self {
            Self::Webhook(webhook) => webhook.concurrency,
            Self::Nats(nats) => nats.concurrency,
            // There is a single output.
            Self::File(_) | Self::Stdout(_) => 1,
        }
    }
}

/// Webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Address for the POST.
    pub url: String,
    /// Key of the Standard Webhooks signature; `None` sends unsigned requests.
    pub signing_secret: Option<Secret>,
    /// Time limit of one attempt. Default 10 s.
    pub timeout: Duration,
    /// Maximum number of requests in flight; events of one object never overlap. Default 4.
    pub concurrency: usize,
    /// PEM file with the receiver's CA, in addition to the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Client certificate for mutual TLS.
    pub client_cert: Option<ClientCertConfig>,
    /// Compression of bodies; `None` sends them uncompressed.
    pub compression: Option<Compression>,
    /// Additional headers of each request.
    pub headers: Vec<HeaderConfig>,
}

impl Default for WebhookConfig {
    /// Defaults, with an empty address.
    fn default() -> Self {
        Self {
            url: String::new(),
            signing_secret: None,
            timeout: Duration::from_secs(10),
            concurrency: 4,
            ca_file: None,
            client_cert: None,
            compression: None,
            headers: Vec::new(),
        }
    }
}

/// `client_cert_file` and `client_key_file`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertConfig {
    /// PEM file with the certificate.
    pub cert_file: PathBuf,
    /// PEM file with its key.
    pub key_file: PathBuf,
}

/// Entry of `headers`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderConfig {
    /// Name of the header.
    pub name: String,
    /// Value of the header.
    pub value: HeaderText,
}

/// Value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderText {
    /// Literal value.
    Plain(String),
    /// Secret, read at the start.
    Secret(Secret),
}

/// Format of a sink's events.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum BodyConfig {
    /// `format = "cloudevents"`.
    #[default]
    CloudEvents,
    /// `format = "json"`.
    Json,
    /// `template` or `template_file`.
    Template {
        /// Text of the template.
        text: TemplateText,
        /// Media type of its output. Default `application/json`.
        content_type: String,
    },
    /// `preset`.
    Preset(Preset),
}

impl BodyConfig {
    /// Whether each message has a single event.
    #[must_use]
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Template { .. } | Self::Preset(_))
    }
}

/// Location of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateText {
    /// In the configuration.
    Inline(String),
    /// In a file, read at the start.
    File(PathBuf),
}

/// NATS JetStream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsConfig {
    /// Servers of one NATS cluster.
    pub urls: Vec<String>,
    /// Subject pattern. Default `k8s.{cluster}.{resource}.{namespace}.{name}`.
    pub subject: String,
    /// Required stream; `None` accepts the stream that listens to the subject.
    pub stream: Option<String>,
    /// Credentials; `None` connects without.
    pub auth: Option<NatsAuth>,
    /// PEM file with the servers' CA; `None` is the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Client certificate for mutual TLS.
    pub client_cert: Option<ClientCertConfig>,
    /// Time limit of one attempt, including acknowledgements. Default 10 s.
    pub timeout: Duration,
    /// Maximum number of batches in flight; events of one object never overlap. Default 4.
    pub concurrency: usize,
}

/// NATS credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatsAuth {
    /// `creds_file`: file with JWT and key.
    CredsFile(PathBuf),
    /// `token`.
    Token(Secret),
    /// `user` and `password`.
    Password {
        /// User name.
        user: String,
        /// Password.
        password: Secret,
    },
    /// `nkey`: seed of an NKey.
    Nkey(Secret),
}

/// File with one line per event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// Path of the file.
    pub path: PathBuf,
    /// Size in bytes at which the file is rotated. Default 100 MiB.
    pub max_size: u64,
    /// Number of rotated files to keep. Default 5.
    pub keep: usize,
    /// Whether an event is synced to disk before it is acknowledged. Default true.
    pub fsync: bool,
}

/// Standard output with one line per event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StdoutConfig {}

impl TransportConfig {
    /// Returns the file that the sink writes to, if any.
    pub(super) fn output_file(&self) -> Option<&Path> {
        match self {
            Self::File(file) if !file.path.as_os_str().is_empty() => Some(&file.path),
            _ => None,
        }
    }
}

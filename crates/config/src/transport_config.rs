//! Types of the checked keys for the transport of a sink (webhook, NATS, file, standard output), and for the format of
//! its events.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Compression, Preset, Secret};

/// Transport of a sink: `type` and the keys that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Returns the maximum number of delivery attempts in flight. Attempts for one object never overlap.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        match self {
            Self::Webhook(webhook) => webhook.concurrency,
            Self::Nats(nats) => nats.concurrency,
            // All lines are written to one output, one batch after the other.
            Self::File(_) | Self::Stdout(_) => 1,
        }
    }

    /// Returns the client certificate that the transport presents to the server, if any.
    #[must_use]
    pub fn client_cert(&self) -> Option<&ClientCertConfig> {
        match self {
            Self::Webhook(webhook) => webhook.client_cert.as_ref(),
            Self::Nats(nats) => nats.client_cert.as_ref(),
            Self::File(_) | Self::Stdout(_) => None,
        }
    }
}

/// Webhook: `type = "webhook"`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// Address to which events are sent by POST.
    pub url: String,
    /// Key of the Standard Webhooks signature; `None` sends unsigned requests.
    pub signing_secret: Option<Secret>,
    /// Time limit of one delivery attempt. Default 10 s.
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

impl WebhookConfig {
    /// Creates a webhook at an address with `http` or `https`, with defaults for everything else.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
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

/// Client certificate: `client_cert_file` and `client_key_file`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertConfig {
    /// PEM file with the certificate.
    pub cert_file: PathBuf,
    /// PEM file with the private key of the certificate.
    pub key_file: PathBuf,
}

impl ClientCertConfig {
    /// Creates a client certificate from its files.
    #[must_use]
    pub fn new(cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        Self { cert_file: cert_file.into(), key_file: key_file.into() }
    }
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

impl HeaderConfig {
    /// Creates a header.
    #[must_use]
    pub fn new(name: impl Into<String>, value: HeaderText) -> Self {
        Self { name: name.into(), value }
    }
}

/// Value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderText {
    /// Literal value.
    Plain(String),
    /// Secret, read at the start.
    Secret(Secret),
}

impl HeaderText {
    /// Returns the header's value. A secret is read from its file or variable.
    ///
    /// # Errors
    /// As [`Secret::read`].
    pub fn read(&self) -> io::Result<String> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Secret(secret) => secret.read(),
        }
    }
}

/// Format of a sink's events.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BodyConfig {
    /// `format = "cloudevents"`.
    #[default]
    CloudEvents,
    /// `format = "json"`.
    Json,
    /// Output of a template: `template` or `template_file`.
    Template {
        /// Text of the template.
        text: TemplateText,
        /// Media type of the template's output. Default `application/json`.
        content_type: String,
    },
    /// Message for a chat service: `preset`.
    Preset(Preset),
}

impl BodyConfig {
    /// Returns whether each message has a single event.
    #[must_use]
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Template { .. } | Self::Preset(_))
    }
}

/// Location of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateText {
    /// Text of the template, in the configuration.
    Inline(String),
    /// File with the template, read at the start.
    File(PathBuf),
}

impl TemplateText {
    /// Returns the key of the configuration: `template` or `template_file`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Inline(_) => "template",
            Self::File(_) => "template_file",
        }
    }

    /// Returns the text of the template. Reads the file if the template is in a file.
    ///
    /// # Errors
    /// An I/O error if the file cannot be read.
    pub fn read(&self) -> io::Result<String> {
        match self {
            Self::Inline(text) => Ok(text.clone()),
            Self::File(path) => std::fs::read_to_string(path),
        }
    }
}

/// NATS JetStream: `type = "nats"`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsConfig {
    /// Servers of one NATS cluster.
    pub urls: Vec<String>,
    /// Subject pattern. Default `k8s.{cluster}.{resource}.{namespace}.{name}`.
    pub subject: String,
    /// Name of the stream that must accept the events; `None` accepts any stream that listens to the subject.
    pub stream: Option<String>,
    /// NATS credentials; `None` connects without credentials.
    pub auth: Option<NatsAuth>,
    /// PEM file with the servers' CA; `None` is the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Client certificate for mutual TLS.
    pub client_cert: Option<ClientCertConfig>,
    /// Time limit of one delivery attempt, including acknowledgements. Default 10 s.
    pub timeout: Duration,
    /// Maximum number of batches in flight; events of one object never overlap. Default 4.
    pub concurrency: usize,
}

impl NatsConfig {
    /// Creates a sink at the servers of one NATS cluster, with defaults for everything else.
    #[must_use]
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            subject: "k8s.{cluster}.{resource}.{namespace}.{name}".to_owned(),
            stream: None,
            auth: None,
            ca_file: None,
            client_cert: None,
            timeout: Duration::from_secs(10),
            concurrency: 4,
        }
    }
}

/// NATS credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsAuth {
    /// `creds_file`: file with JWT and key.
    CredsFile(PathBuf),
    /// `token`: authentication token.
    Token(Secret),
    /// `user` and `password`.
    Password {
        /// User name.
        user: String,
        /// Password of the user.
        password: Secret,
    },
    /// `nkey`: seed of an NKey.
    Nkey(Secret),
}

/// File with one line per event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

impl FileConfig {
    /// Creates a sink to a file, with defaults for everything else.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), max_size: 100 << 20, keep: 5, fsync: true }
    }
}

/// Standard output with one line per event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
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

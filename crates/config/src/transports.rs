//! `type` of a sink and the keys that belong to it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::value::Value;

use super::error::{nearest, suggestion};
use super::files::secret_at;
use super::rules::{nats_urls, url};
use super::table::{Table, kind};
use super::{Compression, Preset, Secret};

pub(super) const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);
pub(super) const CONCURRENCY: RangeInclusive<usize> = 1..=256;
pub(super) const FILE_SIZE: RangeInclusive<u64> = 1024..=1 << 40;
pub(super) const KEEP: RangeInclusive<usize> = 1..=1000;
const TYPES: [&str; 4] = ["webhook", "nats", "file", "stdout"];
/// Forms of the body of which one is chosen.
const FORMS: [&str; 4] = ["format", "template", "template_file", "preset"];

/// `type` of a sink and what belongs to it.
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
    /// Attempts in flight at most; events of one object never overlap.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        match self {
            Self::Webhook(webhook) => webhook.concurrency,
            Self::Nats(nats) => nats.concurrency,
            // One place to write to.
            Self::File(_) | Self::Stdout(_) => 1,
        }
    }
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Where to POST.
    pub url: String,
    /// Key of the Standard Webhooks signature; unset: unsigned.
    pub signing_secret: Option<Secret>,
    /// How long one attempt may take. Default 10 s.
    pub timeout: Duration,
    /// Requests in flight at most; events of one object never overlap. Default 4.
    pub concurrency: usize,
    /// PEM file with the receiver's CA; unset: the system's roots.
    pub ca_file: Option<PathBuf>,
    /// The certificate that a receiver is shown that asks for one.
    pub client_cert: Option<ClientCertConfig>,
    /// How bodies are compressed; unset: not at all.
    pub compression: Option<Compression>,
    /// Headers that go with each request.
    pub headers: Vec<HeaderConfig>,
}

impl Default for WebhookConfig {
    /// Without an address, which there is no default for.
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
pub struct ClientCertConfig {
    /// PEM file with the certificate.
    pub cert_file: PathBuf,
    /// PEM file with its key.
    pub key_file: PathBuf,
}

/// One of `headers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderConfig {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: HeaderText,
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderText {
    /// As it is written.
    Plain(String),
    /// From somewhere else, read at the start.
    Secret(Secret),
}

/// The form of a sink's events.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum BodyConfig {
    /// `format = "cloudevents"`.
    #[default]
    CloudEvents,
    /// `format = "json"`.
    Json,
    /// `template` or `template_file`.
    Template {
        /// Its text.
        text: TemplateText,
        /// The media type of what it makes. Default `application/json`.
        content_type: String,
    },
    /// `preset`.
    Preset(Preset),
}

impl BodyConfig {
    /// Whether a message holds one event.
    #[must_use]
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Template { .. } | Self::Preset(_))
    }
}

/// Where a template is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateText {
    /// In the configuration.
    Inline(String),
    /// In a file, read at the start.
    File(PathBuf),
}

/// A stream of NATS JetStream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsConfig {
    /// Servers of one cluster.
    pub urls: Vec<String>,
    /// The pattern of subjects. Default `k8s.{cluster}.{resource}.{namespace}.{name}`.
    pub subject: String,
    /// The stream that must take the events; unset: the one that listens to the subject.
    pub stream: Option<String>,
    /// Who the hub is; unset: nobody.
    pub auth: Option<NatsAuth>,
    /// PEM file with the servers' CA; unset: the system's roots.
    pub ca_file: Option<PathBuf>,
    /// The certificate that the servers are shown.
    pub client_cert: Option<ClientCertConfig>,
    /// How long one attempt may take, acknowledgements included. Default 10 s.
    pub timeout: Duration,
    /// Batches in flight at most; events of one object never overlap. Default 4.
    pub concurrency: usize,
}

/// Who the hub is to NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatsAuth {
    /// `creds_file`: JWT and key.
    CredsFile(PathBuf),
    /// `token`.
    Token(Secret),
    /// `user` and `password`.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// `nkey`: the seed of a key.
    Nkey(Secret),
}

/// A file with a line for each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes at which a new file is begun. Default 100 MiB.
    pub max_size: u64,
    /// Full files that are kept. Default 5.
    pub keep: usize,
    /// Whether an event is acknowledged only when it is on disk. Default true.
    pub fsync: bool,
}

/// The standard output, a line for each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StdoutConfig {}

const COMPRESSIONS: &[(&str, Compression)] = &[("gzip", Compression::Gzip), ("zstd", Compression::Zstd)];

const PRESETS: &[(&str, Preset)] = &[("slack", Preset::Slack), ("teams", Preset::Teams), ("discord", Preset::Discord)];

const FORMATS: &[(&str, BodyConfig)] = &[("cloudevents", BodyConfig::CloudEvents), ("json", BodyConfig::Json)];

pub(super) fn unknown(what: &str, text: &str, known: &[&'static str]) -> String {
    format!("there is no {what} {text:?}{}", suggestion(text, known.iter().copied()))
}

/// Reads what a sink's type is and what belongs to it, and the form of its events.
pub(super) fn transport(table: &mut Table<'_>) -> (TransportConfig, BodyConfig) {
    // Asked for now: after the first mistake it would not be told from a slip.
    let lacks = (table.lacks(&["url"]), table.lacks(&["path"]));
    if table.lacks(&["type"]) {
        let shape = "write type = \"webhook\", \"nats\", \"file\" or \"stdout\"";
        table.checker.mistake(&table.path, format!("does not say what it is; {shape}"));
    }
    let written = table.text("type");
    if let Some(written) = written.as_deref().filter(|written| !TYPES.contains(written)) {
        table.mistake("type", unknown("type of sink", written, &TYPES));
    }
    // A slip is read as what was meant, so that the other keys are not mistakes too.
    match written.as_deref().and_then(|written| nearest(written, TYPES)) {
        Some("nats") => (TransportConfig::Nats(nats(table, lacks.0)), format(table)),
        Some("file") => (TransportConfig::File(file(table, lacks.1)), format(table)),
        Some("stdout") => (TransportConfig::Stdout(StdoutConfig {}), format(table)),
        _ => {
            let body = body(table);
            (TransportConfig::Webhook(webhook(table, lacks.0)), body)
        }
    }
}

fn webhook(table: &mut Table<'_>, lacks_url: bool) -> WebhookConfig {
    let default = WebhookConfig::default();
    if lacks_url {
        table.checker.mistake(&table.path, "does not say where to; write url = \"https://…\"");
    }
    let address = table.text("url").unwrap_or_default();
    if !address.is_empty()
        && let Err(problem) = url(&address)
    {
        table.mistake("url", problem);
    }
    let signing_secret = table.secret("signing_secret");
    table.probe_signing_secret(signing_secret.as_ref());
    let ca_file = table.file("ca_file");
    table.probe_ca_file(ca_file.as_deref());
    let client_cert = client_cert(table);
    if client_cert.is_some() && address.starts_with("http:") {
        table.mistake("client_cert_file", "is shown to nobody where url is http; write https or remove the key");
    }
    WebhookConfig {
        url: address,
        signing_secret,
        timeout: table.duration("timeout", TIMEOUT).unwrap_or(default.timeout),
        concurrency: table.number("concurrency", CONCURRENCY).unwrap_or(default.concurrency),
        ca_file,
        client_cert,
        compression: table.choice("compression", "compression", COMPRESSIONS),
        headers: headers(table),
    }
}

fn nats(table: &mut Table<'_>, lacks_url: bool) -> NatsConfig {
    if lacks_url {
        table.checker.mistake(&table.path, "does not say where to; write url = \"nats://…\"");
    }
    let auth = nats_auth(table);
    let urls = table.text("url").map_or(Ok(Vec::new()), |text| nats_urls(&text));
    let urls = urls.unwrap_or_else(|problem| {
        table.mistake("url", problem);
        Vec::new()
    });
    let subject = table.text("subject");
    table.probe("subject", subject.as_deref(), |probes, subject| (probes.subject)(subject));
    let stream = table.text("stream");
    if let Some(stream) = &stream
        && stream.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\'))
    {
        table
            .mistake("stream", format!("{stream:?} is not the name of a stream; it has none of . * > / \\ and spaces"));
    }
    let ca_file = table.file("ca_file");
    table.probe_ca_file(ca_file.as_deref());
    NatsConfig {
        urls,
        subject: subject.unwrap_or_else(|| "k8s.{cluster}.{resource}.{namespace}.{name}".to_owned()),
        stream,
        auth,
        ca_file,
        client_cert: client_cert(table),
        timeout: table.duration("timeout", TIMEOUT).unwrap_or(Duration::from_secs(10)),
        concurrency: table.number("concurrency", CONCURRENCY).unwrap_or(4),
    }
}

fn nats_auth(table: &mut Table<'_>) -> Option<NatsAuth> {
    table.chosen(&["creds_file", "token", "user", "nkey"]);
    let creds_file = table.file("creds_file");
    let token = table.secret("token");
    let (user, password) = (table.text("user"), table.secret("password"));
    let nkey = table.secret("nkey");
    match (&user, &password) {
        (Some(_), None) if table.lacks(&["password"]) => {
            table.mistake("user", "needs a password; write password = { env = \"NAME\" }");
        }
        (None, Some(_)) => table.mistake("password", "belongs to user, which is not given"),
        _ => {}
    }
    let password = user.zip(password).map(|(user, password)| NatsAuth::Password { user, password });
    let others = [creds_file.map(NatsAuth::CredsFile), token.map(NatsAuth::Token), password, nkey.map(NatsAuth::Nkey)];
    others.into_iter().flatten().next()
}

fn file(table: &mut Table<'_>, lacks_path: bool) -> FileConfig {
    if lacks_path {
        table.checker.mistake(&table.path, "does not say where to; write path = \"events.jsonl\"");
    }
    FileConfig {
        path: table.output_file("path").unwrap_or_default(),
        max_size: table.size("max_size", FILE_SIZE).map_or(100 << 20, |size| size as u64),
        keep: table.number("keep", KEEP).unwrap_or(5),
        fsync: table.truth("fsync").unwrap_or(true),
    }
}

/// `format` alone.
fn format(table: &mut Table<'_>) -> BodyConfig {
    table.choice("format", "format", FORMATS).unwrap_or_default()
}

/// The form of a webhook's events.
fn body(table: &mut Table<'_>) -> BodyConfig {
    let given = table.chosen(&FORMS);
    let format = format(table);
    let text = table.text("template").map(TemplateText::Inline);
    let file = table.file("template_file").map(TemplateText::File);
    let preset = table.choice("preset", "preset", PRESETS);
    let content_type = table.text("content_type");
    if content_type.is_some() && !given.iter().any(|form| form.starts_with("template")) {
        table.mistake("content_type", "belongs to template, which is not given");
    }
    let content_type = content_type.unwrap_or_else(|| "application/json".to_owned());
    if http::HeaderValue::from_str(&content_type).is_err() || !content_type.contains('/') {
        table.mistake("content_type", "is not a media type; write e.g. \"application/json\" or \"text/plain\"");
    }
    let template = text.or(file);
    if let Some(template) = &template {
        table.probe_template(template, &content_type);
    }
    match (template, preset) {
        (Some(text), _) => BodyConfig::Template { text, content_type },
        (None, Some(preset)) => BodyConfig::Preset(preset),
        (None, None) => format,
    }
}

fn client_cert(table: &mut Table<'_>) -> Option<ClientCertConfig> {
    let (cert, key) = (table.file("client_cert_file"), table.file("client_key_file"));
    // What is left now may be the other one, misspelt.
    let lacks = (table.lacks(&["client_cert_file"]), table.lacks(&["client_key_file"]));
    match (&cert, &key) {
        (Some(_), None) if lacks.1 => table.mistake("client_cert_file", "needs its key; write client_key_file = \"…\""),
        (None, Some(_)) if lacks.0 => {
            table.mistake("client_key_file", "needs its certificate; write client_cert_file = \"…\"");
        }
        _ => {}
    }
    let (cert_file, key_file) = cert.zip(key)?;
    table.probe_client_cert(&cert_file, &key_file);
    Some(ClientCertConfig { cert_file, key_file })
}

fn headers(table: &mut Table<'_>) -> Vec<HeaderConfig> {
    let Some(headers) = table.table("headers") else { return Vec::new() };
    let checker = headers.checker;
    let mut found: Vec<HeaderConfig> = Vec::new();
    for (name, path, value) in headers.entries() {
        if found.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
            checker.mistake(&path, "is there twice, for names of headers have no case");
        }
        let value = match value {
            Value::Dict(..) => secret_at(checker, &path, value).map(HeaderText::Secret),
            Value::String(_, text) if is_secret_name(&name) && !text.is_empty() => {
                let shape = "write { env = \"NAME\" } or { file = \"path\" }";
                checker.mistake(&path, format!("a secret does not belong in the configuration; {shape}"));
                None
            }
            Value::String(_, text) => Some(HeaderText::Plain(text)),
            other => {
                checker.mistake(&path, format!("expected a text or {{ env = \"NAME\" }}, found {}", kind(&other)));
                None
            }
        };
        if let Some(value) = value {
            checker.probe_header(&path, &name, &value);
            found.push(HeaderConfig { name, value });
        }
    }
    found
}

/// Words in the name of a header whose value gives access to something.
pub(super) const SECRET_WORDS: [&str; 7] =
    ["authorization", "cookie", "api-key", "apikey", "token", "secret", "password"];

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// The file that a sink writes to.
pub(super) fn writes_to(transport: &TransportConfig) -> Option<&Path> {
    match transport {
        TransportConfig::File(file) if !file.path.as_os_str().is_empty() => Some(&file.path),
        _ => None,
    }
}

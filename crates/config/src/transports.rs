//! Parser of a sink's `type` and of the keys that belong to it.

use std::ops::RangeInclusive;
use std::time::Duration;

use figment::value::Value;

use super::error::{nearest, unknown};
use super::files::secret_at;
use super::rules::{nats_urls, url};
use super::table::{Table, kind};
use super::transport_config::{
    BodyConfig, ClientCertConfig, FileConfig, HeaderConfig, HeaderText, NatsAuth, NatsConfig, StdoutConfig,
    TemplateText, TransportConfig, WebhookConfig,
};
use super::{Compression, Preset};

pub(super) const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);
pub(super) const CONCURRENCY: RangeInclusive<usize> = 1..=256;
pub(super) const FILE_SIZE: RangeInclusive<u64> = 1024..=1 << 40;
pub(super) const KEEP: RangeInclusive<usize> = 1..=1000;
const TYPES: [&str; 4] = ["webhook", "nats", "file", "stdout"];
/// Mutually exclusive keys for the format of the events.
const FORMS: [&str; 4] = ["format", "template", "template_file", "preset"];

const COMPRESSIONS: &[(&str, Compression)] = &[("gzip", Compression::Gzip), ("zstd", Compression::Zstd)];

const PRESETS: &[(&str, Preset)] = &[("slack", Preset::Slack), ("teams", Preset::Teams), ("discord", Preset::Discord)];

const FORMATS: &[(&str, BodyConfig)] = &[("cloudevents", BodyConfig::CloudEvents), ("json", BodyConfig::Json)];

/// Reads a sink's type, its keys, and the format of its events.
pub(super) fn transport(table: &mut Table<'_>) -> (TransportConfig, BodyConfig) {
    // Evaluated before keys are read: `lacks` is false after any mistake in the table.
    let lacks = (table.lacks(&["url"]), table.lacks(&["path"]));
    if table.lacks(&["type"]) {
        let shape = "write type = \"webhook\", \"nats\", \"file\" or \"stdout\"";
        table.checker.mistake(&table.path, format!("has no type; {shape}"));
    }
    let written = table.text("type");
    if let Some(written) = written.as_deref().filter(|written| !TYPES.contains(written)) {
        table.mistake("type", unknown("type of sink", written, &TYPES));
    }
    // A misspelt type is read as the nearest one, so that its keys are not mistakes too.
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
    if lacks_url {
        table.checker.mistake(&table.path, "has no url; write url = \"https://…\"");
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
        table.mistake("client_cert_file", "has no effect if url is http; write https or remove the key");
    }
    let default = WebhookConfig::new(address);
    WebhookConfig {
        signing_secret,
        timeout: table.duration("timeout", TIMEOUT).unwrap_or(default.timeout),
        concurrency: table.number("concurrency", CONCURRENCY).unwrap_or(default.concurrency),
        ca_file,
        client_cert,
        compression: table.choice("compression", "compression", COMPRESSIONS),
        headers: headers(table),
        ..default
    }
}

fn nats(table: &mut Table<'_>, lacks_url: bool) -> NatsConfig {
    if lacks_url {
        table.checker.mistake(&table.path, "has no url; write url = \"nats://…\"");
    }
    let auth = nats_auth(table);
    let urls = table.text("url").map_or(Ok(Vec::new()), |text| nats_urls(&text, "creds_file, token, user or nkey"));
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
        table.mistake(
            "stream",
            format!("{stream:?} is not the name of a stream; remove spaces and the characters . * > / \\"),
        );
    }
    let ca_file = table.file("ca_file");
    table.probe_ca_file(ca_file.as_deref());
    let default = NatsConfig::new(urls);
    NatsConfig {
        subject: subject.unwrap_or(default.subject),
        stream,
        auth,
        ca_file,
        client_cert: client_cert(table),
        timeout: table.duration("timeout", TIMEOUT).unwrap_or(default.timeout),
        concurrency: table.number("concurrency", CONCURRENCY).unwrap_or(default.concurrency),
        urls: default.urls,
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
        (None, Some(_)) => table.mistake("password", "requires user, which is missing"),
        _ => {}
    }
    let password = user.zip(password).map(|(user, password)| NatsAuth::Password { user, password });
    let others = [creds_file.map(NatsAuth::CredsFile), token.map(NatsAuth::Token), password, nkey.map(NatsAuth::Nkey)];
    others.into_iter().flatten().next()
}

fn file(table: &mut Table<'_>, lacks_path: bool) -> FileConfig {
    if lacks_path {
        table.checker.mistake(&table.path, "has no path; write path = \"events.jsonl\"");
    }
    let default = FileConfig::new(table.output_file("path").unwrap_or_default());
    FileConfig {
        max_size: table.size("max_size", FILE_SIZE).map_or(default.max_size, |size| size as u64),
        keep: table.number("keep", KEEP).unwrap_or(default.keep),
        fsync: table.boolean("fsync").unwrap_or(default.fsync),
        path: default.path,
    }
}

fn format(table: &mut Table<'_>) -> BodyConfig {
    table.choice("format", "format", FORMATS).unwrap_or_default()
}

/// Reads the format of a webhook's events.
fn body(table: &mut Table<'_>) -> BodyConfig {
    let given = table.chosen(&FORMS);
    let format = format(table);
    let text = table.text("template").map(TemplateText::Inline);
    let file = table.file("template_file").map(TemplateText::File);
    let preset = table.choice("preset", "preset", PRESETS);
    let content_type = table.text("content_type");
    if content_type.is_some() && !given.iter().any(|form| form.starts_with("template")) {
        table.mistake("content_type", "requires template, which is missing");
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
    // A missing file is not reported if a remaining key may be its misspelt key.
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
            checker.mistake(&path, "is duplicated; header names are case-insensitive");
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

/// Parts of header names whose values must be secrets, not plain text.
pub(super) const SECRET_WORDS: [&str; 7] =
    ["authorization", "cookie", "api-key", "apikey", "token", "secret", "password"];

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

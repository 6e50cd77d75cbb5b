//! Conversion of a configured sink into the parameters of its actor.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::error::StartError;
use crate::actors::sinks::sink::SinkParams;
use informer_hub_config::{
    self as config, BodyConfig, HeaderConfig, NatsConfig, Secret, SinkConfig, TransportConfig, WebhookConfig,
};
use informer_hub_dial::Dial;
use informer_hub_sink::file::{FileParams, LinesTransport};
#[cfg(feature = "nats")]
use informer_hub_sink::nats::{NatsAuth, NatsParams, NatsTransport};
use informer_hub_sink::webhook::{ClientCert, ExtraHeaders, SigningKeys, WebhookParams, WebhookTransport, WebhookUrl};
use informer_hub_sink::{
    Bounds, EventOptions, Filter, MachineParams, Redaction, Selection, Shape, SinkHealth, StoreLimits, Template,
    Transport,
};
use informer_hub_types::Threads;

/// Builder of errors that name the sink and the wrong key.
struct SinkErrors<'s>(&'s str);

impl SinkErrors<'_> {
    fn at<E: std::fmt::Display>(&self, key: &'static str) -> impl Fn(E) -> StartError {
        let sink = self.0.to_owned();
        move |error| StartError::Sink { sink: sink.clone(), key, problem: error.to_string() }
    }
}

/// Returns the parameters of the actor of a sink. Compiles filter and template, and reads secrets and certificates.
/// Webhook receivers are reached with `dial` if it is given.
pub(super) fn sink(sink: &SinkConfig, io: &Threads, dial: Option<&Dial>) -> Result<SinkParams, StartError> {
    let wrong = SinkErrors(sink.table());
    let shape = Arc::new(shape(&sink.body, &wrong)?);
    let transport: Arc<dyn Transport> = match &sink.transport {
        TransportConfig::Webhook(hook) => {
            let params = webhook(hook, shape, sink.batch.max_events > 1, &wrong)?;
            let transport = WebhookTransport::new(WebhookParams { dial: dial.cloned(), ..params });
            Arc::new(transport.map_err(|error| wrong.at(error.key())(error))?)
        }
        #[cfg(feature = "nats")]
        TransportConfig::Nats(nats) => Arc::new(self::nats(nats, shape, &sink.name, &wrong)?),
        #[cfg(not(feature = "nats"))]
        TransportConfig::Nats(_) => {
            return Err(wrong.at("type")(
                "this program is built without NATS: enable the feature \"nats\" of informer-hub",
            ));
        }
        TransportConfig::File(file) => {
            let params =
                FileParams { path: file.path.clone(), max_size: file.max_size, keep: file.keep, fsync: file.fsync };
            Arc::new(LinesTransport::file(params, shape))
        }
        TransportConfig::Stdout(_) => Arc::new(LinesTransport::stdout(shape)),
        _ => return Err(wrong.at("type")("this program is built without this type of sink")),
    };
    let redaction = Redaction::new(sink.redact.clone());
    let machine = MachineParams {
        name: sink.name.as_str().into(),
        selection: Arc::new(selection(sink, redaction.clone(), &wrong)?),
        options: EventOptions { include_old: sink.include_old, redaction, ..EventOptions::default() },
        batch: sink.batch,
        retry: sink.retry,
        bounds: Bounds::default(),
        concurrency: NonZeroUsize::new(sink.transport.concurrency()).unwrap_or(NonZeroUsize::MIN),
        rate_limit: sink.rate_limit,
        health: SinkHealth::new(),
    };
    Ok(SinkParams { machine, transport, io: io.clone(), place: None, fence: None })
}

/// Returns the size limits of the journal and of the dead letters of a sink.
pub(super) fn limits(sink: &SinkConfig) -> StoreLimits {
    StoreLimits { journal: sink.journal_limit, letters: sink.dead_letter_limit }
}

fn selection(sink: &SinkConfig, redaction: Redaction, wrong: &SinkErrors<'_>) -> Result<Selection, StartError> {
    let filter = sink.filter.as_deref().map(Filter::compile).transpose().map_err(wrong.at("filter"))?;
    Ok(Selection {
        partition: sink.partition,
        events: sink.select.events.clone(),
        namespaces: sink.select.namespaces.clone(),
        initial: sink.initial,
        changed: sink.changed.clone(),
        filter,
        on_filter_error: sink.on_filter_error,
        redaction,
    })
}

fn shape(body: &BodyConfig, wrong: &SinkErrors<'_>) -> Result<Shape, StartError> {
    Ok(match body {
        BodyConfig::CloudEvents => Shape::CloudEvents,
        BodyConfig::Json => Shape::Json,
        BodyConfig::Template { text, content_type } => {
            let (key, text) = (text.key(), text.read().map_err(wrong.at(text.key()))?);
            Shape::Template(Box::new(Template::compile(&text, content_type).map_err(wrong.at(key))?))
        }
        BodyConfig::Preset(preset) => Shape::Preset(*preset),
        _ => return Err(wrong.at("format")("this program is built without this format of events")),
    })
}

fn webhook(
    hook: &WebhookConfig,
    shape: Arc<Shape>,
    batched: bool,
    wrong: &SinkErrors<'_>,
) -> Result<WebhookParams, StartError> {
    let keys = hook.signing_secret.as_ref().map(|secret| {
        let text = secret.read().map_err(wrong.at("signing_secret"))?;
        SigningKeys::parse(&text).map_err(wrong.at("signing_secret"))
    });
    let pair = |header: &HeaderConfig| {
        header.value.read().map(|value| (header.name.clone(), value)).map_err(wrong.at("headers"))
    };
    let headers = hook.headers.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    let headers = ExtraHeaders::new(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    Ok(WebhookParams {
        signing_keys: keys.transpose()?,
        timeout: hook.timeout,
        ca_file: hook.ca_file.clone(),
        batched: batched && !shape.is_single(),
        shape,
        compression: hook.compression,
        headers: headers.map_err(wrong.at("headers"))?,
        client_cert: hook
            .client_cert
            .as_ref()
            .map(|cert| ClientCert { cert_file: cert.cert_file.clone(), key_file: cert.key_file.clone() }),
        ..WebhookParams::new(WebhookUrl::parse(&hook.url).map_err(wrong.at("url"))?)
    })
}

#[cfg(feature = "nats")]
fn nats(nats: &NatsConfig, shape: Arc<Shape>, name: &str, wrong: &SinkErrors<'_>) -> Result<NatsTransport, StartError> {
    let read = |key, secret: &Secret| secret.read().map_err(wrong.at(key));
    let auth = match &nats.auth {
        None => None,
        Some(config::NatsAuth::CredsFile(path)) => Some(NatsAuth::CredsFile(path.clone())),
        Some(config::NatsAuth::Token(token)) => Some(NatsAuth::Token(read("token", token)?)),
        Some(config::NatsAuth::Password { user, password }) => {
            Some(NatsAuth::Password { user: user.clone(), password: read("password", password)? })
        }
        Some(config::NatsAuth::Nkey(seed)) => Some(NatsAuth::Nkey(read("nkey", seed)?)),
        Some(_) => return Err(wrong.at("type")("this program is built without these credentials of NATS")),
    };
    Ok(NatsTransport::new(NatsParams {
        name: format!("informer-hub {name}"),
        urls: nats.urls.clone(),
        subject: nats.subject.parse().map_err(wrong.at("subject"))?,
        stream: nats.stream.clone(),
        auth,
        ca_file: nats.ca_file.clone(),
        client_cert: nats.client_cert.as_ref().map(|cert| (cert.cert_file.clone(), cert.key_file.clone())),
        timeout: nats.timeout,
        shape,
    }))
}

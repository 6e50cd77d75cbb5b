//! NATS connection: opened on demand, and replaced when the client library has lost it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, Event};
use parking_lot::Mutex;

use super::{IN_FLIGHT, NatsAuth, NatsParams};
use informer_hub_tls::{Identity, Roots, certificates, client_config};
use informer_hub_types::{exponential_backoff, rng};

/// Number of times that the client library tries to reconnect. A delivery attempt opens a new connection instead of
/// waiting for this.
const RECONNECTS: usize = 10;
/// Longest pause between two reconnect attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Open connection to the NATS servers.
#[derive(Clone)]
pub(super) struct Link {
    client: Client,
    pub(super) jetstream: Context,
}

/// The transport's single connection, if open.
pub(super) struct Links {
    params: Arc<NatsParams>,
    link: tokio::sync::Mutex<Option<Link>>,
    /// Last error that the server reported on the connection. It may have nothing to do with a message of the sink. It
    /// is shown with the errors of messages, and cleared when a connection is established.
    problem: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("urls", &self.params.urls).finish_non_exhaustive()
    }
}

impl Links {
    pub(super) fn new(params: Arc<NatsParams>) -> Self {
        Self { params, link: tokio::sync::Mutex::new(None), problem: Arc::default() }
    }

    /// Returns the connection, or opens a new one if there is none or it is lost. It does not wait for the client
    /// library to reconnect: messages of a lost connection are sent again anyway, and credential files may have
    /// changed.
    pub(super) async fn link(&self) -> Result<Link, String> {
        let mut link = self.link.lock().await;
        if let Some(link) = &*link
            && link.client.connection_state() == State::Connected
        {
            return Ok(link.clone());
        }
        *link = None;
        let new = self.connect().await?;
        self.problem.lock().take();
        *link = Some(new.clone());
        Ok(new)
    }

    /// Returns the last error of the connection as a suffix for an error message; empty if there is none.
    pub(super) fn last_problem(&self) -> String {
        self.problem.lock().as_ref().map(|problem| format!(" ({problem})")).unwrap_or_default()
    }

    async fn connect(&self) -> Result<Link, String> {
        let params = &self.params;
        let problem = Arc::clone(&self.problem);
        let mut options = ConnectOptions::new()
            .name(&params.name)
            .connection_timeout(params.timeout)
            .request_timeout(Some(params.timeout))
            .max_reconnects(RECONNECTS)
            .reconnect_delay_callback(pause)
            .event_callback(move |event| {
                let problem = Arc::clone(&problem);
                async move { note(&problem, &event) }
            });
        options = authenticate(options, params.auth.as_ref()).await?;
        let paths = Arc::clone(params);
        let tls = tokio::task::spawn_blocking(move || tls_config(&paths)).await;
        options = options.tls_client_config(tls.map_err(|_| "the runtime is shutting down".to_owned())??);
        if params.ca_file.is_some() || params.client_cert.is_some() {
            options = options.require_tls(true);
        }
        let connected = options.connect(&params.urls).await;
        let client = connected.map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("cannot connect to {}: {}{cause}", params.urls.join(", "), error.kind())
        })?;
        let jetstream = ContextBuilder::new()
            .timeout(params.timeout)
            .ack_timeout(params.timeout)
            .max_ack_inflight(IN_FLIGHT * 64)
            .backpressure_on_inflight(true)
            .build(client.clone());
        Ok(Link { client, jetstream })
    }
}

/// Builds the TLS settings from the certificate files.
fn tls_config(params: &NatsParams) -> Result<rustls::ClientConfig, String> {
    let read = |key: &str, path: &Path| {
        std::fs::read(path).map_err(|error| format!("cannot read {key} {}: {error}", path.display()))
    };
    let unusable = |error: rustls::Error| format!("cannot use the certificates: {error}");
    let identity = match &params.client_cert {
        None => None,
        Some((cert, key)) => {
            let found = Identity::from_pem(&read("client_cert_file", cert)?, &read("client_key_file", key)?);
            Some(found.map_err(|error| format!("cannot use client_cert_file {}: {error}", cert.display()))?)
        }
    };
    if let Some(path) = &params.ca_file {
        let roots = certificates(&read("ca_file", path)?);
        let roots = roots.map_err(|error| format!("cannot use ca_file {}: {error}", path.display()))?;
        return client_config(Roots::Only(roots), identity).map_err(unusable);
    }
    // A server without TLS needs no roots, so a machine without system roots must not fail.
    client_config(Roots::AnyOfSystem, identity).map_err(unusable)
}

async fn authenticate(options: ConnectOptions, auth: Option<&NatsAuth>) -> Result<ConnectOptions, String> {
    Ok(match auth {
        None => options,
        Some(NatsAuth::Token(token)) => options.token(token.clone()),
        Some(NatsAuth::Password { user, password }) => options.user_and_password(user.clone(), password.clone()),
        Some(NatsAuth::Nkey(seed)) => options.nkey(seed.clone()),
        Some(NatsAuth::CredsFile(path)) => options
            .credentials_file(path)
            .await
            .map_err(|error| format!("cannot use creds_file {}: {}", path.display(), error.kind()))?,
    })
}

/// Returns the pause before a reconnect attempt: exponential backoff with jitter.
fn pause(attempt: usize) -> Duration {
    let times = u32::try_from(attempt).unwrap_or(u32::MAX);
    let longest = exponential_backoff(Duration::from_millis(50), times, LONGEST_PAUSE);
    longest.mul_f64(0.5 + 0.5 * rng::unit())
}

fn note(problem: &Mutex<Option<String>>, event: &Event) {
    match event {
        Event::Connected => drop(problem.lock().take()),
        Event::SlowConsumer(_) => {}
        Event::Disconnected | Event::LameDuckMode | Event::Draining | Event::Closed => {
            // Keep an earlier error, since it is more specific.
            problem.lock().get_or_insert_with(|| event.to_string());
        }
        Event::ServerError(_) | Event::ClientError(_) => *problem.lock() = Some(event.to_string()),
    }
}

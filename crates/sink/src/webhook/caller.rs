//! HTTP client of a webhook: over TCP, or over connections that the embedding program opens (dials).
//!
//! Over TCP, the proxy variables of the environment (`HTTP_PROXY`, `NO_PROXY`, …) apply.

use std::error::Error;
use std::time::Duration;

use http::Request;
use http::header::HeaderMap;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::{Body, Client, Response, Url, redirect};

use super::{WebhookError, WebhookParams, tls};
use informer_hub_dial::{Dial, causes, server_of};
use informer_hub_tls::{Roots, http_config};
use informer_hub_types::with_causes;

const IDLE: Duration = Duration::from_secs(60);

/// HTTP client. A clone shares the connection pool.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// TCP, with TLS and proxies.
    Tcp(Client),
    /// HTTP/1.1 over connections that the embedding program opens.
    Dialled(Box<HttpClient<Dial, Body>>),
}

impl Caller {
    /// Builds the client. Reads the certificate files but does not connect.
    pub(super) fn new(params: &WebhookParams) -> Result<Self, WebhookError> {
        match &params.dial {
            Some(_) if params.url.is_https() => Err(WebhookError::DialledTls),
            Some(dial) => {
                let mut client = HttpClient::builder(TokioExecutor::new());
                client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
                Ok(Self::Dialled(Box::new(client.build(dial.clone()))))
            }
            None => over_tcp(params).map(Self::Tcp),
        }
    }

    /// Sends one request and waits for the head of the response. Error texts contain `route` instead of the receiver's
    /// address, whose other parts may be secret.
    pub(super) async fn post(
        &self,
        url: &Url,
        route: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, String> {
        match self {
            Self::Tcp(client) => {
                let answer = client.post(url.clone()).headers(headers).body(body).send().await;
                answer.map_err(|error| failed(error.is_connect(), route, &error.without_url()))
            }
            Self::Dialled(client) => {
                let request = Request::post(url.as_str()).body(Body::from(body));
                let mut request = request.map_err(|error| with_causes(&error))?;
                *request.headers_mut() = headers;
                let answer = client.request(request).await;
                let answer = answer.map_err(|error| failed(error.is_connect(), route, &error))?;
                Ok(answer.map(Body::wrap).into())
            }
        }
    }
}

fn over_tcp(params: &WebhookParams) -> Result<Client, WebhookError> {
    let roots = params.ca_file.as_deref().map(tls::read_roots).transpose()?.unwrap_or_default();
    // A receiver without TLS needs no roots, so a machine without system roots must not fail.
    let roots = if params.url.is_https() { Roots::SystemAnd(roots) } else { Roots::Only(roots) };
    let identity = params.client_cert.as_ref().map(tls::read_identity).transpose()?;
    let tls = http_config(roots, identity).map_err(|error| WebhookError::Client(error.into()))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .referer(false)
        .pool_idle_timeout(IDLE)
        .connect_timeout(params.timeout)
        .build()
        .map_err(|error| WebhookError::Client(error.into()))
}

/// Returns scheme, host and port of the receiver, and of the environment's proxy if there is one, for error texts.
/// Other parts of both addresses may be secret.
pub(super) fn route(params: &WebhookParams) -> String {
    let url = &params.url.0;
    let host = url.host_str().unwrap_or("unknown host");
    let port = url.port_or_known_default().map(|port| format!(":{port}")).unwrap_or_default();
    let server = format!("{}://{host}{port}", url.scheme());
    let uri = url.as_str().parse::<http::Uri>().ok().filter(|_| params.dial.is_none());
    // The client chooses its proxy in the same way.
    match uri.and_then(|uri| Matcher::from_system().intercept(&uri)) {
        Some(proxy) => format!("{server} through the proxy {}", server_of(proxy.uri())),
        None => server,
    }
}

/// Returns the error text for a failed request of the HTTP client.
fn failed(is_connect: bool, route: &str, error: &(dyn Error + 'static)) -> String {
    let causes = causes(error);
    if is_connect {
        format!("cannot connect to {route}: {causes}")
    } else {
        format!("the connection to {route} failed: {causes}")
    }
}

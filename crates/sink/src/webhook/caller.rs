//! Who makes a webhook's requests: a client over TCP, or one over connections of a program's own making.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use http::Request;
use http::header::HeaderMap;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::{Body, Client, Response, Url, redirect};

use super::{WebhookError, WebhookParams, tls};
use informer_hub_dial::{Dial, causes};

/// How long a connection is kept for the next batch.
const IDLE: Duration = Duration::from_secs(60);

/// See the module. Cheap to clone: one pool of connections.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// Over TCP, with TLS and proxies.
    Tcp(Client),
    /// HTTP/1.1 over what is dialled.
    Dialled(Box<HttpClient<Dial, Body>>),
}

impl Caller {
    /// Reads the files that the parameters name; connects to nothing.
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

    /// One request, up to the head of its answer. An error names host and port: the rest of the address may be secret.
    pub(super) async fn post(&self, url: &Url, headers: HeaderMap, body: Vec<u8>) -> Result<Response, String> {
        match self {
            Self::Tcp(client) => {
                let answer = client.post(url.clone()).headers(headers).body(body).send().await;
                answer.map_err(|error| failed(error.is_connect(), url, &error.without_url()))
            }
            Self::Dialled(client) => {
                let request = Request::post(url.as_str()).body(Body::from(body));
                let mut request = request.map_err(|error| chain(&error))?;
                *request.headers_mut() = headers;
                let answer = client.request(request).await;
                let answer = answer.map_err(|error| failed(error.is_connect(), url, &error))?;
                Ok(answer.map(Body::wrap).into())
            }
        }
    }
}

fn over_tcp(params: &WebhookParams) -> Result<Client, WebhookError> {
    // Whoever comes first decides on the process's TLS provider; that it was somebody else is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .referer(false)
        .pool_idle_timeout(IDLE)
        .connect_timeout(params.timeout);
    let roots = params.ca_file.as_deref().map(tls::read_roots).transpose()?.unwrap_or_default();
    // A plain receiver needs no roots, and a machine without any must not stop it.
    builder = if params.url.is_https() { builder.tls_certs_merge(roots) } else { builder.tls_certs_only(roots) };
    if let Some(cert) = &params.client_cert {
        builder = builder.identity(tls::read_identity(cert)?);
    }
    builder.build().map_err(WebhookError::Client)
}

/// The server of an address, without what may be secret.
pub(super) fn server(url: &Url) -> String {
    let host = url.host_str().unwrap_or("unknown host");
    let port = url.port_or_known_default().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", url.scheme())
}

/// What an error of the client says.
fn failed(is_connect: bool, url: &Url, error: &(dyn Error + 'static)) -> String {
    let (server, causes) = (server(url), causes(error));
    if is_connect {
        format!("cannot connect to {server}: {causes}")
    } else {
        format!("the connection to {server} broke: {causes}")
    }
}

/// The whole chain of causes.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        // Writing into a String cannot fail.
        let _ = write!(text, ": {source}");
        cause = source.source();
    }
    text
}

//! The HTTP stack: kube's layers over hyper's client, with settings for a process with a thousand connections that kube's
//! own stack does not offer.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::legacy::{Client as HttpClient, Error as HttpError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use percent_encoding::percent_decode_str;
use tower::filter::AsyncFilterLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use super::request::describe;
use super::tls::{self, TlsError};
use informer_hub_dial::{Dial, causes, server_of};

/// An authorized request, or the reason why it must not be sent.
pub(super) type Authorized = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// Deadline of a TCP and TLS connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept for the next page of a list, or for the watch after it. Each connection takes at
/// least 30 KB, in the apiserver too.
const IDLE: Duration = Duration::from_secs(2);

/// Read buffer limit of a connection. hyper's limit is 400 KiB, which a watch would keep after one long list. A list is read
/// as fast with this limit.
const READ: usize = 32 * 1024;

/// TCP keep-alive interval, to detect a dead peer before the watch times out. The interval of client-go's dialer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Builds a client that calls `authorize` last on each request. Blocks to read files; runs no plugin.
///
/// `dial` takes precedence over a proxy.
pub(super) fn open(
    config: &Config,
    dial: Option<Dial>,
    authorize: impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static,
) -> Result<Client, OpenError> {
    let authorize = AsyncFilterLayer::new(authorize);
    let server: Arc<str> = server_of(&config.cluster_url).into();
    if let Some(dial) = dial {
        return secured(dial, config, server, authorize);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    let Some(proxy) = &config.proxy_url else { return secured(tcp, config, server, authorize) };
    let shown = server_of(proxy);
    let server: Arc<str> = format!("{server} via proxy {shown}").into();
    match proxy.scheme_str() {
        Some("http") => secured(tunnel(proxy, tcp), config, server, authorize),
        Some("https") => secured(tunnel(proxy, tls::https(config, tcp)?), config, server, authorize),
        Some("socks5") => secured(SocksV5::new(proxy.clone(), tcp), config, server, authorize),
        _ => Err(OpenError::Proxy(shown)),
    }
}

/// Returns a connector through an HTTP proxy, with the user information of its address.
fn tunnel<C>(proxy: &Uri, connector: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.clone(), connector);
    let user = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
    let header = user.and_then(|(user, _)| {
        let user: Vec<u8> = percent_decode_str(user).collect();
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(user))).ok()
    });
    match header {
        Some(header) => tunnel.with_auth(header),
        None => tunnel,
    }
}

/// The client cannot be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The TLS settings are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The credentials or headers are unusable.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// The proxy's protocol is not supported.
    #[error("cannot use proxy {0}: it must be http, https or socks5")]
    Proxy(String),
}

impl OpenError {
    /// Describes the error and its causes, without secrets.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Kube(error) => describe(error),
            Self::Tls(_) | Self::Proxy(_) => causes(self),
        }
    }
}

/// The connection cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {server}")]
pub(super) struct CannotConnect {
    server: Arc<str>,
    source: BoxError,
}

/// The connection ended before the answer did.
#[derive(Debug, thiserror::Error)]
#[error("the connection to {server} broke")]
struct Broken {
    server: Arc<str>,
    source: BoxError,
}

/// Adds the server to an error of the HTTP client.
fn named(error: HttpError, server: &Arc<str>) -> BoxError {
    let server = Arc::clone(server);
    let is_connect = error.is_connect();
    let source = BoxError::from(error);
    if is_connect { CannotConnect { server, source }.into() } else { Broken { server, source }.into() }
}

/// Builds a client over these connections, with TLS if the address says so. A TLS client holds the system's roots, 70 KB,
/// which a plain one does not need.
fn secured<C>(
    connector: C,
    config: &Config,
    server: Arc<str>,
    authorize: AsyncFilterLayer<impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static>,
) -> Result<Client, OpenError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    if config.cluster_url.scheme_str() == Some("http") {
        return build(connector, config, server, authorize);
    }
    build(tls::https(config, connector)?, config, server, authorize)
}

fn build<C>(
    connector: C,
    config: &Config,
    server: Arc<str>,
    authorize: AsyncFilterLayer<impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static>,
) -> Result<Client, OpenError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    let connector = ServiceBuilder::new().map_future(Box::pin).timeout(CONNECT_TIMEOUT).service(connector);
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http1_max_buf_size(READ)
        .build(connector);
    let body_server = Arc::clone(&server);
    let service = ServiceBuilder::new()
        .layer(authorize)
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(move |error| named(error, &server))
        .map_response(move |response: Response<Incoming>| {
            let server = Arc::clone(&body_server);
            response.map(|body| body.map_err(move |error| Broken { server: Arc::clone(&server), source: error.into() }))
        })
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

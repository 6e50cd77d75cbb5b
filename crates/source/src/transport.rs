//! The HTTP stack of a cluster: kube's layers over its connection pool (`informer_hub_pool`).

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use percent_encoding::percent_decode_str;
use tower::filter::AsyncFilterLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::decompression::DecompressionLayer;

use super::request::describe;
use super::tls::{self, Fingerprint, H2, HTTP1, Tls, TlsError};
use informer_hub_dial::{Dial, causes, server_of};
use informer_hub_pool::{Dialer, Gauges, Offer, Opened, Pool, SendError};
use informer_hub_types::HttpVersions;

/// Future that returns a request with its credentials. Fails if the request must not be sent.
pub(super) type Authorized = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// Deadline of opening a connection with TCP and TLS.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// TCP keep-alive interval, as in client-go's dialer. It detects a dead peer before the watch times out.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Connection pool of a client, with the digest of the settings on which its connections depend.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    pool: Pool,
    fingerprint: Fingerprint,
}

/// Parts of a client that the next clients of the same cluster reuse.
#[derive(Clone, Debug, Default)]
pub(super) struct Wiring {
    /// Opens the connections, even if a proxy is configured; `None` uses TCP, through the proxy if there is one.
    pub(super) dial: Option<Dial>,
    /// Counts connections and requests.
    pub(super) gauges: Arc<Gauges>,
    /// Connections of the cluster's previous client, for reuse; `None` for the first client.
    pub(super) last: Option<Transport>,
}

/// Builds a client that calls `authorize` for each request just before it is sent. Blocks to read files; runs no
/// plugin.
///
/// The client takes over the connections of the cluster's previous client, unless the connection settings have changed.
pub(super) fn open(
    config: &Config,
    http: HttpVersions,
    wiring: Wiring,
    authorize: impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static,
) -> Result<(Client, Transport), OpenError> {
    let mut server: Arc<str> = server_of(&config.cluster_url).into();
    if let Some(proxy) = config.proxy_url.as_ref().filter(|_| wiring.dial.is_none()) {
        server = format!("{server} via proxy {}", server_of(proxy)).into();
    }
    let fingerprint = tls::fingerprint(config, http)?;
    let transport = if let Some(last) = wiring.last.filter(|last| last.fingerprint == fingerprint) {
        last
    } else {
        let dialer = dialer(config, http, wiring.dial)?;
        Transport { pool: Pool::new(http, dialer, wiring.gauges), fingerprint }
    };
    Ok((client(config, transport.pool.clone(), server, authorize)?, transport))
}

/// Returns a function that opens connections: by `dial`, through a proxy, or by TCP.
fn dialer(config: &Config, http: HttpVersions, dial: Option<Dial>) -> Result<Dialer, OpenError> {
    if let Some(dial) = dial {
        return secured(dial, config, http);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    let Some(proxy) = &config.proxy_url else { return secured(tcp, config, http) };
    match proxy.scheme_str() {
        Some("http") => secured(tunnel(proxy, tcp), config, http),
        Some("https") => secured(tunnel(proxy, Tls::of(config)?.connector(tcp, &[])), config, http),
        Some("socks5") => secured(SocksV5::new(proxy.clone(), tcp), config, http),
        _ => Err(OpenError::Proxy(server_of(proxy))),
    }
}

/// Returns a connector through an HTTP proxy, with the credentials in the proxy's address.
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

/// Error of a request whose connection could not be opened.
#[derive(Debug)]
struct CannotConnect {
    server: Arc<str>,
    /// Cause, shared by all requests that waited for the connection.
    source: Arc<dyn Error + Send + Sync>,
}

impl fmt::Display for CannotConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {}", self.server)
    }
}

impl Error for CannotConnect {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Return the error inside the `Arc`, since callers cannot downcast an `Arc`.
        Some(&*self.source)
    }
}

/// Error of a connection that ended before the answer was complete.
#[derive(Debug, thiserror::Error)]
#[error("the connection to {server} broke")]
struct Broken {
    server: Arc<str>,
    source: BoxError,
}

/// Adds the server's address to an error of the HTTP client.
fn named(error: SendError, server: &Arc<str>) -> BoxError {
    let server = Arc::clone(server);
    match error {
        SendError::Connect(source) => CannotConnect { server, source }.into(),
        SendError::Http1(error) if error.is_connect() => CannotConnect { server, source: Arc::new(error) }.into(),
        SendError::Http1(error) => Broken { server, source: error.into() }.into(),
        SendError::Stream(error) => Broken { server, source: error.into() }.into(),
    }
}

/// Returns a function that opens connections with `connector`, with TLS for an `https` address. For `http`, no TLS
/// settings are built: the system's roots take 70 KB.
fn secured<C>(connector: C, config: &Config, http: HttpVersions) -> Result<Dialer, OpenError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    let server = config.cluster_url.clone();
    if server.scheme_str() == Some("http") {
        let is_http2 = http == HttpVersions::Http2;
        return Ok(Dialer::new(move |_| {
            let opening = connector.clone().oneshot(server.clone());
            async move {
                let stream = opening.await.map_err(Into::into)?;
                Ok(Opened { stream: Box::new(TokioIo::new(stream)), is_http2 })
            }
        }));
    }
    let tls = Tls::of(config)?;
    let connectors: [_; 3] =
        [&[][..], &[H2], &[H2, HTTP1]].map(|protocols| tls.connector(connector.clone(), protocols));
    Ok(Dialer::new(move |offer| {
        let [http1, http2, both] = &connectors;
        let connector = match offer {
            Offer::Http1 => http1,
            Offer::Http2 => http2,
            Offer::Both => both,
        };
        let opening = connector.clone().oneshot(server.clone());
        async move {
            let stream = opening.await?;
            let is_http2 = stream.connected().is_negotiated_h2();
            Ok(Opened { stream: Box::new(TokioIo::new(stream)), is_http2 })
        }
    }))
}

fn client(
    config: &Config,
    pool: Pool,
    server: Arc<str>,
    authorize: impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static,
) -> Result<Client, OpenError> {
    let service = ServiceBuilder::new()
        .layer(AsyncFilterLayer::new(authorize))
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(service_fn(move |request| send(pool.clone(), Arc::clone(&server), request)));
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

async fn send(
    pool: Pool,
    server: Arc<str>,
    request: Request<Body>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = BoxError> + Send>, BoxError> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let response = pool.send(Request::from_parts(head, body)).await.map_err(|error| named(error, &server))?;
    Ok(response.map(|body| {
        body.map_err(move |error| -> BoxError { Broken { server: Arc::clone(&server), source: error.into() }.into() })
    }))
}

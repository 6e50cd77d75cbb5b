//! The HTTP stack: kube's layers over hyper's client, with settings for a process with a thousand connections that kube's
//! own stack does not offer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::legacy::{Client as HttpClient, Error as HttpError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::buffer::BufferLayer;
use tower::filter::AsyncFilterLayer;
use tower::util::MapErrLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use informer_hub_dial::{Dial, server_of};

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

/// Requests that may wait for a client behind a proxy; the bound of kube's client.
const REQUESTS: usize = 1024;

/// TCP keep-alive interval, to detect a dead peer before the watch times out. The interval of client-go's dialer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Builds a client that calls `authorize` last on each request. Blocks to read files; runs no plugin.
///
/// Behind a proxy, kube's own stack is used. `dial` takes precedence over a proxy.
///
/// # Errors
/// kube's error, if the TLS settings or credentials are invalid.
pub(super) fn open(
    config: Config,
    dial: Option<Dial>,
    authorize: impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static,
) -> Result<Client, kube::Error> {
    let authorize = AsyncFilterLayer::new(authorize);
    let server: Arc<str> = server_of(&config.cluster_url).into();
    let is_plain = config.cluster_url.scheme_str() == Some("http");
    match dial {
        Some(dial) if is_plain => return build(dial, &config, server, authorize),
        Some(dial) => {
            return build(config.rustls_https_connector_with_connector(dial)?, &config, server, authorize);
        }
        None => {}
    }
    if let Some(proxy) = &config.proxy_url {
        let server: Arc<str> = format!("{server} via proxy {}", server_of(proxy)).into();
        let name = MapErrLayer::new(move |error: BoxError| match error.downcast::<HttpError>() {
            Ok(error) => named(*error, &server),
            Err(error) => error,
        });
        // kube's own service is not `Clone`, which `authorize` requires.
        let shared = BufferLayer::new(REQUESTS);
        let client = ClientBuilder::try_from(config)?.with_layer(&name).with_layer(&shared).with_layer(&authorize);
        return Ok(client.build());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    if is_plain {
        // A TLS client would hold the system's roots, 70 KB, without need.
        return build(tcp, &config, server, authorize);
    }
    build(config.rustls_https_connector_with_connector(tcp)?, &config, server, authorize)
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

fn build<C>(
    connector: C,
    config: &Config,
    server: Arc<str>,
    authorize: AsyncFilterLayer<impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static>,
) -> Result<Client, kube::Error>
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

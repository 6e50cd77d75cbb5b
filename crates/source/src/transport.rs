//! The way from a client to the socket: kube's layers over hyper's client, with the few settings that a process of a
//! thousand connections needs and kube's own stack does not offer.

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

/// A request that may be sent, or why none may.
pub(super) type Authorized = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// How long a TCP (and TLS) connection may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection that has answered is kept for the next request: from one page of a list to the next, from a
/// list to its watch. Each takes 30 KB and more, in the apiserver too.
const IDLE: Duration = Duration::from_secs(2);

/// What a connection reads at once, at most. hyper's own limit is 400 KiB, which the connection of a watch would keep
/// for its life after one long list; in pieces of this size a list is read as fast.
const READ: usize = 32 * 1024;

/// Requests that may wait for a client behind a proxy; kube's client has the same bound.
const REQUESTS: usize = 1024;

/// Probes of connections on which nothing comes: a peer that has gone is noticed before its watch has run its time.
/// client-go's dialer has the same.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Builds a client whose requests pass `authorize` last. Blocks: it reads files, and runs no plugin.
///
/// Behind a proxy the way is kube's own; `dial` goes before a proxy.
///
/// # Errors
/// kube's, when the TLS settings or credentials come to nothing.
pub(super) fn open(
    config: Config,
    dial: Option<Dial>,
    authorize: impl Fn(Request<Body>) -> Authorized + Clone + Send + 'static,
) -> Result<Client, kube::Error> {
    let authorize = AsyncFilterLayer::new(authorize);
    let server: Arc<str> = server_of(&config.cluster_url).into();
    let is_plain = config.cluster_url.scheme_str() == Some("http");
    match dial {
        Some(dial) if is_plain => return over(dial, &config, server, authorize),
        Some(dial) => {
            return over(config.rustls_https_connector_with_connector(dial)?, &config, server, authorize);
        }
        None => {}
    }
    if let Some(proxy) = &config.proxy_url {
        let server: Arc<str> = format!("{server} by the proxy {}", server_of(proxy)).into();
        let name = MapErrLayer::new(move |error: BoxError| match error.downcast::<HttpError>() {
            Ok(error) => named(*error, &server),
            Err(error) => error,
        });
        // kube's own service cannot be cloned, which `authorize` asks for.
        let shared = BufferLayer::new(REQUESTS);
        let client = ClientBuilder::try_from(config)?.with_layer(&name).with_layer(&shared).with_layer(&authorize);
        return Ok(client.build());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    if is_plain {
        // A client with TLS would hold the system's roots, 70 KB, for nothing.
        return over(tcp, &config, server, authorize);
    }
    over(config.rustls_https_connector_with_connector(tcp)?, &config, server, authorize)
}

/// There is no connection.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {server}")]
pub(super) struct CannotConnect {
    server: Arc<str>,
    source: BoxError,
}

/// A connection ended before the answer did.
#[derive(Debug, thiserror::Error)]
#[error("the connection to {server} broke")]
struct Broken {
    server: Arc<str>,
    source: BoxError,
}

/// An error of the HTTP client that says which server it is about.
fn named(error: HttpError, server: &Arc<str>) -> BoxError {
    let server = Arc::clone(server);
    let is_connect = error.is_connect();
    let source = BoxError::from(error);
    if is_connect { CannotConnect { server, source }.into() } else { Broken { server, source }.into() }
}

fn over<C>(
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
    let of_bodies = Arc::clone(&server);
    let service = ServiceBuilder::new()
        .layer(authorize)
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(move |error| named(error, &server))
        .map_response(move |response: Response<Incoming>| {
            let server = Arc::clone(&of_bodies);
            response.map(|body| body.map_err(move |error| Broken { server: Arc::clone(&server), source: error.into() }))
        })
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

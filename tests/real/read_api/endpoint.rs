//! Endpoint of the Kubernetes API: an apiserver, or a root of the hub.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};

use crate::bed::RealCluster;

/// Deadline of one answer, with room for watches that end by themselves and for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// An apiserver or a root of the hub, with the credentials to read there.
#[derive(Clone)]
pub(super) struct Endpoint {
    url: String,
    token: Option<String>,
    ca: Option<PathBuf>,
    client: Client,
}

/// An unparsed answer.
#[derive(Clone, Debug)]
pub(super) struct RawAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// The body as bytes, for answers that are not text.
    pub(super) bytes: Bytes,
}

impl Endpoint {
    /// Returns an apiserver, read as admin.
    pub(super) async fn apiserver(cluster: &RealCluster) -> Self {
        Self {
            url: cluster.url().to_owned(),
            token: Some(cluster.token("admin").to_owned()),
            ca: Some(cluster.ca().to_owned()),
            client: cluster.client().await,
        }
    }

    /// Returns a root of a hub without access control. The client retries nothing.
    pub(super) fn root(hub: &str, root: &str) -> Self {
        let url = format!("{hub}{root}");
        let mut config = Config::new(url.parse().unwrap());
        config.default_retry = false;
        Self { url, token: None, ca: None, client: Client::try_from(config).unwrap() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Returns the file of the server's CA.
    pub(super) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn send(&self, path_and_query: &str, accept: Option<&str>) -> Result<Response<Body>, String> {
        // Decompression of a watch would wait for the end of a block.
        let mut request = Request::get(path_and_query).header("accept-encoding", "identity");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let request = request.body(Body::empty()).unwrap_or_else(|error| panic!("{path_and_query}: {error}"));
        self.client.send(request).await.map_err(|error| error.to_string())
    }

    /// Sends a GET request and reads the whole answer. Sends it again once if the server closes the connection without
    /// an answer, as HTTP clients do (RFC 9110, section 9.2.2).
    ///
    /// # Panics
    /// If the answer does not end before the deadline, or breaks.
    pub(super) async fn get(&self, path_and_query: &str, accept: Option<&str>) -> RawAnswer {
        let reading = async {
            let mut sent = self.send(path_and_query, accept).await;
            // The server closed the idle connection just when the client used it again.
            if sent.as_ref().is_err_and(|error| error.contains("SendRequest")) {
                sent = self.send(path_and_query, accept).await;
            }
            let (head, body) = sent?.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let body = String::from_utf8_lossy(&bytes).into_owned();
            Ok::<_, String>(RawAnswer { status: head.status, headers: head.headers, body, bytes })
        };
        let (at, url) = (path_and_query, &self.url);
        let answer = tokio::time::timeout(DEADLINE, reading).await;
        let answer = answer.unwrap_or_else(|_| panic!("{url} {at}: no end of the answer within {DEADLINE:?}"));
        answer.unwrap_or_else(|error| panic!("{url} {at}: {error}"))
    }
}

impl RawAnswer {
    /// Returns a header's value.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

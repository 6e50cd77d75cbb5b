//! Requests of a user, identified by a token, to an apiserver or to the hub.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::WAIT_DEADLINE;

/// Deadline of an answer that is not a stream.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server with a user's token.
#[derive(Clone)]
pub(super) struct User {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// Lines of a stream.
pub(super) struct Lines {
    answer: reqwest::Response,
    buffer: Vec<u8>,
}

impl User {
    /// Returns a user of a server whose certificate the CA in file `ca` has signed.
    pub(super) fn new(url: &str, ca: &Path, token: &str) -> Self {
        let ca = reqwest::Certificate::from_pem(&std::fs::read(ca).unwrap()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([ca]).build().unwrap();
        Self { http, url: url.to_owned(), token: token.to_owned() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Sends a GET. Returns code and JSON of the answer.
    pub(super) async fn get(&self, path: &str, accept: &str) -> (u16, Value) {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token).header("accept", accept);
        self.json(request, path).await
    }

    /// Sends a GET for JSON.
    pub(super) async fn read(&self, path: &str) -> (u16, Value) {
        self.get(path, "application/json").await
    }

    /// Sends a review below a root of the hub, or to an apiserver.
    pub(super) async fn review(&self, root: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}{root}{path}", self.url)).bearer_auth(&self.token);
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.json(request, path).await
    }

    /// Asks whether the user may do something.
    pub(super) async fn may(&self, root: &str, verb: &str, resource: &str, namespace: &str) -> bool {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": verb, "resource": resource, "namespace": namespace } },
        });
        let (code, answer) = self.review(root, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &body).await;
        assert_eq!(code, 201, "{root} {verb} {resource} {namespace}: {answer}");
        answer["status"]["allowed"] == true
    }

    async fn json(&self, request: reqwest::RequestBuilder, path: &str) -> (u16, Value) {
        let answer = request.timeout(DEADLINE).send().await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let code = answer.status().as_u16();
        let body = answer.text().await.unwrap_or_else(|error| panic!("{path}: {error}"));
        (code, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {code}: {body}")))
    }

    /// Opens a stream.
    pub(super) async fn open(&self, path: &str) -> Lines {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        let answer = request.header("accept", "application/json, application/x-ndjson").send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}: {}", answer.text().await.unwrap());
        Lines { answer, buffer: Vec::new() }
    }
}

impl Lines {
    /// Returns the next line as JSON; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let reading = async {
            loop {
                if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<_> = self.buffer.drain(..=end).collect();
                    return Some(serde_json::from_slice(&line).unwrap());
                }
                self.buffer.extend_from_slice(&self.answer.chunk().await.ok()??);
            }
        };
        tokio::time::timeout(WAIT_DEADLINE, reading).await.expect("a line of the stream")
    }

    /// Reads the present objects of a stream of `/v1/events`, as `east/web-0`.
    pub(super) async fn replayed(&mut self) -> BTreeSet<String> {
        let mut read = BTreeSet::new();
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ends after {read:?}"));
            let (kind, data) = (event["type"].as_str().unwrap_or_default(), &event["data"]);
            match (data["cluster"].as_str(), data["name"].as_str()) {
                (Some(cluster), Some(name)) => drop(read.insert(format!("{cluster}/{name}"))),
                _ if kind.contains(".synced") => return read,
                _ => {}
            }
        }
    }

    /// Reads watch events up to the one that is `last`, as `ADDED web-0`. Leaves bookmarks out.
    pub(super) async fn up_to(&mut self, last: &str) -> Vec<String> {
        let mut read = Vec::new();
        while read.last().is_none_or(|line| line != last) {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ends after {read:?}"));
            let metadata = &event["object"]["metadata"];
            let (kind, name) = (event["type"].as_str().unwrap_or("?"), metadata["name"].as_str().unwrap_or("?"));
            if kind != "BOOKMARK" {
                read.push(format!("{kind} {name}"));
            }
        }
        read
    }
}

//! Signed webhook requests, as the hub sends them or altered.

use std::time::Duration;

use informer_hub_sink::webhook::SigningKeys;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([]).timeout(Duration::from_secs(60)).build().unwrap()
}

/// Builder of requests to one receiver.
pub(crate) struct Sender {
    client: reqwest::Client,
    url: String,
}

/// A request that has not been sent.
pub(crate) struct Request {
    client: reqwest::Client,
    url: String,
    headers: HeaderMap,
    body: String,
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Returns a CloudEvent whose id and object have this name.
pub(crate) fn event(name: &str) -> String {
    json!({
        "specversion": "1.0", "id": name, "source": "/clusters/c9", "type": "io.informer-hub.resource.deleted.v1",
        "subject": format!("/v1/pods/shop/{name}"), "data": { "name": name, "note": "ü" },
    })
    .to_string()
}

impl Sender {
    pub(crate) fn to(receiver: &str) -> Self {
        Self { client: client(), url: format!("{receiver}/events") }
    }

    pub(crate) fn signed(&self, secret: &str, body: &str) -> Request {
        self.signed_at(0, secret, body)
    }

    /// Signs a request with a timestamp `offset` seconds from now.
    pub(crate) fn signed_at(&self, offset: i64, secret: &str, body: &str) -> Request {
        let (id, timestamp) = ("msg_1", now() + offset);
        let signature = SigningKeys::parse(secret).unwrap().sign(id, timestamp, body.as_bytes());
        let (client, url) = (self.client.clone(), self.url.clone());
        let request = Request { client, url, headers: HeaderMap::new(), body: body.to_owned() };
        let content_type =
            if body.starts_with('[') { "application/cloudevents-batch+json" } else { "application/cloudevents+json" };
        let request = request.with_header("content-type", content_type).with_header("webhook-id", id);
        request.with_header("webhook-timestamp", &timestamp.to_string()).with_header("webhook-signature", &signature)
    }
}

impl Request {
    pub(crate) fn with_body(mut self, body: &str) -> Self {
        assert_ne!(self.body, body);
        body.clone_into(&mut self.body);
        self
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    pub(crate) fn without_header(mut self, name: &'static str) -> Self {
        self.headers.remove(name).unwrap();
        self
    }

    /// Replaces the timestamp by the current time and keeps the signature.
    pub(crate) fn with_current_time(self) -> Self {
        self.with_header("webhook-timestamp", &now().to_string())
    }

    /// Sends the request and returns the status code.
    pub(crate) async fn send(self) -> u16 {
        let request = self.client.post(self.url).headers(self.headers).body(self.body);
        request.send().await.unwrap().status().as_u16()
    }
}

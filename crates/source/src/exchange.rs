//! Requests to an apiserver for one small object. Every complete answer is a result, even one with an error status.

use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use kube::client::Body;

use super::request::{about, collect, send, transient};
use informer_hub_reflector::{ObjectAnswer, ObjectRequest, SourceError};

/// Time limit for receiving the head of an answer. The answer's body has another limit of the same length.
const DEADLINE: Duration = Duration::from_secs(10);
/// Size limit of an answer, in bytes: well above the 256 KiB of annotations that an apiserver accepts in an object.
const MAX_ANSWER: usize = 1 << 20;

/// Sends a request and returns status and body of the answer, even for an error status.
///
/// # Errors
/// There is no complete answer. The message has the path.
pub(super) async fn exchange(client: &Client, request: ObjectRequest) -> Result<ObjectAnswer, SourceError> {
    let (method, path) = (request.method, request.path.clone());
    exchange_within(client, request, MAX_ANSWER).await.map_err(|error| about(method, &path, error))
}

/// Sends a request like [`exchange`], with `limit` as the maximum bytes of the answer. Error messages do not have the
/// path.
pub(super) async fn exchange_within(
    client: &Client,
    ObjectRequest { method, path, body }: ObjectRequest,
    limit: usize,
) -> Result<ObjectAnswer, SourceError> {
    let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Body::from(body)).map_err(|error| transient(format!("invalid request: {error}")))?;
    let response = send(client, request, DEADLINE).await?;
    let status = response.status().as_u16();
    let body = collect(response.into_body(), limit, DEADLINE).await?;
    Ok(ObjectAnswer { status, body })
}

#[cfg(test)]
mod tests {
    use super::super::testserver::{TestServer, failure, json};
    use super::*;
    use informer_hub_reflector::ErrorClass;

    fn put(body: &str) -> ObjectRequest {
        ObjectRequest { method: "PUT", path: "/apis/g/v1/namespaces/a/things/b".to_owned(), body: body.into() }
    }

    #[tokio::test]
    async fn answer_of_any_status_is_returned() {
        let server = TestServer::always(json("{}")).await;
        let answer = exchange(&server.client().await, put(r#"{"a":1}"#)).await.unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"{}"[..]));
        let sent = server.requests()[0].to_lowercase();
        assert!(sent.starts_with("put /apis/g/v1/namespaces/a/things/b "), "{sent}");
        assert!(sent.contains("content-type: application/json"), "{sent}");
        let server = TestServer::always(failure(409, "Conflict", "")).await;
        assert_eq!(exchange(&server.client().await, put("{}")).await.unwrap().status, 409);
    }

    #[tokio::test]
    async fn too_large_answer_is_an_error_that_names_the_request() {
        let large = format!("\"{}\"", "x".repeat(MAX_ANSWER));
        let server = TestServer::always(json(&large)).await;
        let get = ObjectRequest { method: "GET", path: "/a".to_owned(), body: Vec::new() };
        let error = exchange(&server.client().await, get).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Malformed);
        assert!(error.message.starts_with("GET /a: "), "{error}");
    }
}

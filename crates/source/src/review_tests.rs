//! Tests of the checks before a watch (`preflight`), against a loopback server with valid and invalid answers.

use super::super::testserver::{Act, TestServer, failure, head, json};
use super::*;
use informer_hub_types::{Gvr, View};

fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

fn scope(namespace: Option<&str>) -> Scope {
    Scope {
        namespace: namespace.map(Into::into),
        label_selector: None,
        field_selector: Some("status.phase=Running".into()),
        view: View::Shared,
    }
}

#[tokio::test]
async fn server_version_is_read() {
    let server = TestServer::always(json(r#"{"major":"1","gitVersion":"v1.35.2+k3s1"}"#)).await;
    assert_eq!(server_version(&server.client().await).await.unwrap(), "v1.35.2+k3s1");
    let server = TestServer::always(json(r#"{"secret":"hunter2"}"#)).await;
    let error = server_version(&server.client().await).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Malformed);
    assert!(error.message.starts_with("GET /version: ") && !error.message.contains("hunter2"), "{error}");
    let server = TestServer::always(failure(401, "Unauthorized", "")).await;
    assert_eq!(server_version(&server.client().await).await.unwrap_err().class, ErrorClass::Unauthorized);
}

#[tokio::test]
async fn document_is_json_whatever_the_index_of_openapi_declares() {
    let text = |body: &str| vec![head("200 OK", "Content-Type: text/plain; charset=utf-8\r\n"), Act::Send(body.into())];
    for (path, answer, is_read) in [
        ("/openapi/v3", text(r#"{"paths":{}}"#), true),
        ("/openapi/v3", text("<html>"), false),
        ("/openapi/v2", text("{}"), false),
        ("/openapi/v2", json("{}"), true),
    ] {
        let server = TestServer::always(answer).await;
        let document = document(path.to_owned(), &server.client().await).await;
        assert_eq!(document.is_ok(), is_read, "{path}: {document:?}");
    }
}

#[tokio::test]
async fn access_review_returns_verdict_or_error() {
    let server = TestServer::always(json(r#"{"status":{"allowed":true}}"#)).await;
    let yes = check_access(&server.client().await, "watch", &pods(), Some("shop")).await.unwrap();
    assert!(yes.allowed);
    assert!(server.requests()[0].starts_with(&format!("POST {REVIEWS} ")), "{:?}", server.requests());
    let server = TestServer::always(json(r#"{"status":{"reason":"no rule"}}"#)).await;
    let no = check_access(&server.client().await, "list", &pods(), None).await.unwrap();
    assert_eq!((no.allowed, no.reason.as_str()), (false, "no rule"));
    let server = TestServer::always(failure(404, "NotFound", "")).await;
    let error = check_access(&server.client().await, "list", &pods(), None).await.unwrap_err();
    assert!(error.class == ErrorClass::NotFound && error.message.contains(REVIEWS), "{error}");
}

#[tokio::test]
async fn whoami_reads_user_and_groups_and_detects_old_servers() {
    let status =
        r#"{"status":{"userInfo":{"username":"system:serviceaccount:a:b","groups":["g"],"extra":{"x":["y"]}}}}"#;
    let server = TestServer::always(json(status)).await;
    let who = whoami(&server.client().await).await.unwrap();
    assert_eq!((who.service_account(), &who.groups[..]), (Some(("a", "b")), &["g".to_owned()][..]));
    let request = server.requests().remove(0);
    assert!(request.starts_with(&format!("POST {SELF_REVIEWS} ")), "{request}");
    for (answer, class) in [
        (failure(404, "NotFound", ""), ErrorClass::NotFound),
        (json(r#"{"status":{"userInfo":{"username":7}}}"#), ErrorClass::Malformed),
        (json("[]"), ErrorClass::Malformed),
    ] {
        let server = TestServer::always(answer).await;
        assert_eq!(whoami(&server.client().await).await.unwrap_err().class, class);
    }
    let anonymous = Identity { username: "system:anonymous".to_owned(), groups: Vec::new() };
    assert!(anonymous.is_anonymous() && anonymous.service_account().is_none());
}

#[tokio::test]
async fn streaming_support_is_detected_by_the_bookmark() {
    let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    for (answer, expected) in [(json(bookmark), true), (json(""), false), (refused(), false)] {
        let server = TestServer::always(answer).await;
        assert_eq!(supports_streaming_lists(&server.client().await, &pods(), &scope(None)).await.unwrap(), expected);
        let request = server.requests().remove(0);
        assert!(request.starts_with("GET /api/v1/pods?fieldSelector=metadata.name%3D"), "{request}");
    }
    let server = TestServer::always(failure(403, "Forbidden", "")).await;
    let error = supports_streaming_lists(&server.client().await, &pods(), &scope(None)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Forbidden);
}

fn refused() -> Vec<Act> {
    let status = r#"{"kind":"Status","code":422,"reason":"Invalid","message":"sendInitialEvents: Forbidden"}"#;
    vec![head("422 X", "Content-Type: application/json\r\n"), Act::Send(status.into())]
}

#[tokio::test]
async fn estimate_adds_the_remaining_item_count() {
    let object = r#"{"metadata":{"name":"a"}}"#;
    for (metadata, items, objects) in [
        (r#"{"continue":"x","remainingItemCount":41}"#, object, Some(42)),
        (r#"{"continue":"x"}"#, object, None),
        (r"{}", object, Some(1)),
        (r"{}", "", Some(0)),
    ] {
        let server = TestServer::always(json(&format!(r#"{{"metadata":{metadata},"items":[{items}]}}"#))).await;
        let found = estimate(&server.client().await, &pods(), &scope(Some("a b")), false).await.unwrap();
        let sample = (!items.is_empty()).then_some(object.len());
        assert_eq!(found, Estimate { objects, sample });
        let request = server.requests().remove(0);
        let path = "GET /api/v1/namespaces/a%20b/pods?fieldSelector=status.phase%3DRunning&limit=1 ";
        assert!(request.starts_with(path), "{request}");
    }
}

//! Tests of failures: the texts are those that kube-apiserver writes.

use serde_json::{Value, json};

use crate::{Access, FieldError, Reason, Status};

fn text(status: &Status) -> String {
    String::from_utf8(status.json()).unwrap()
}

#[test]
fn failures_have_the_json_of_kube_apiserver() {
    let unset = FieldError::Forbidden {
        field: "resourceVersionMatch",
        detail: "resourceVersionMatch is forbidden unless resourceVersion is provided",
    };
    for (status, expected) in [
        (
            Status::object_not_found("", "pods", "x"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#,
        ),
        (
            Status::object_not_found("apps", "deployments", "x"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"x\" not found","reason":"NotFound","details":{"name":"x","group":"apps","kind":"deployments"},"code":404}"#,
        ),
        (
            Status::path_not_found(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        ),
        (
            Status::method_not_allowed(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}"#,
        ),
        (
            Status::bad_request("invalid selector: 'foo'; can't understand 'foo'"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"invalid selector: 'foo'; can't understand 'foo'","reason":"BadRequest","code":400}"#,
        ),
        (
            Status::invalid("meta.k8s.io", "ListOptions", "", &[unset]),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided","field":"resourceVersionMatch"}]},"code":422}"#,
        ),
        (
            Status::version_too_large(99_999_999, 222),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 99999999, current: 222","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        ),
        (
            Status::not_acceptable(&["application/json", "application/yaml"]),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406}"#,
        ),
        (
            Status::unauthorized(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
        ),
        (
            Status::internal_error("no disk"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: no disk","reason":"InternalError","details":{"causes":[{"message":"no disk"}]},"code":500}"#,
        ),
        (
            Status::too_many_requests("storage is (re)initializing", 1),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
        ),
        (
            Status::timeout("too slow", 0),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: too slow","reason":"Timeout","details":{},"code":504}"#,
        ),
    ] {
        assert_eq!(text(&status), expected);
    }
}

/// client-go classifies errors by their reason and code (`apierrors.IsNotFound` and others).
#[test]
fn failures_have_the_codes_and_reasons_that_client_go_recognizes() {
    for (status, code, reason, message) in [
        (Status::cluster_not_found("x"), 404, "NotFound", r#"clusters.informer-hub.io "x" not found"#),
        (
            Status::action_not_supported("apps", "deployments", "create"),
            405,
            "MethodNotAllowed",
            r#"create is not supported on resources of kind "deployments.apps""#,
        ),
        (
            Status::unsupported_media_type(&["application/json", "application/yaml"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml",
        ),
        (Status::list_expired(), 410, "Expired", "The resourceVersion for the provided list is too old."),
        (
            Status::continue_expired(),
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter.",
        ),
        (Status::watch_expired(5, 9), 410, "Expired", "too old resource version: 5 (9)"),
        (Status::service_unavailable("not ready"), 503, "ServiceUnavailable", "not ready"),
        (Status::timeout("too slow", 0), 504, "Timeout", "Timeout: too slow"),
        (
            Status::request_too_large("limit is 3145728"),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        ),
    ] {
        let json: Value = serde_json::from_slice(&status.json()).unwrap();
        assert_eq!(json["code"], code, "{status}");
        assert_eq!(json["reason"], reason, "{status}");
        assert_eq!(json["message"], message);
        assert_eq!(status.to_string(), message);
    }
}

#[test]
fn forbidden_names_user_verb_and_resource() {
    let list = Access { user: "jane", verb: "list", resource: "pods", ..Access::default() };
    let message = |access: &Access<'_>, reason| Status::forbidden(access, reason).message;
    assert_eq!(
        message(&list, ""),
        r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope"#
    );
    let get = Access { verb: "get", group: "apps", resource: "deployments", namespace: "x", name: "web", ..list };
    assert_eq!(
        message(&Access { subresource: "status", ..get }, "no rule allows it"),
        r#"deployments.apps "web" is forbidden: User "jane" cannot get resource "deployments/status" in API group "apps" in the namespace "x": no rule allows it"#
    );
    let status = Status::forbidden(&get, "");
    assert_eq!((status.code, status.reason), (403, Reason::Forbidden));
    let json: Value = serde_json::from_slice(&status.json()).unwrap();
    assert_eq!(json["details"], json!({"name": "web", "group": "apps", "kind": "deployments"}));
}

#[test]
fn forbidden_message_holds_no_html() {
    let status = Status::path_forbidden("<b>&", "get", "/metrics", "<reason>");
    assert_eq!(status.code, 403);
    assert_eq!(status.message, r#"forbidden: User "&lt;b&gt;&amp;" cannot get path "/metrics": <reason>"#);
    assert!(text(&status).contains(r#""details":{},"#));
}

#[test]
fn invalid_lists_each_problem_once_and_each_cause() {
    let error = || FieldError::NotSupported { field: "f", value: "a\"b".into(), supported: &["x", ""] };
    let message = r#"f: Unsupported value: "a\"b": supported values: "x", """#;
    let one = Status::invalid("", "Kind", "n", &[error()]);
    assert_eq!(one.message, format!("Kind \"n\" is invalid: {message}"));
    let twice = Status::invalid("", "Kind", "n", &[error(), error()]);
    assert_eq!((twice.message, twice.causes.len()), (one.message, 2));
    assert_eq!(Status::invalid("", "Kind", "n", &[]).message, r#"Kind "n" is invalid"#);
    let other = FieldError::Forbidden { field: "g", detail: "no" };
    assert_eq!(
        Status::invalid("", "Kind", "n", &[error(), other]).message,
        format!("Kind \"n\" is invalid: [{message}, g: Forbidden: no]")
    );
}

use super::super::testserver::{Act, TestServer, failure, json};
use super::*;

fn resource(name: &str, singular: &str, kind: &str, short: &str, verbs: &str) -> String {
    format!(
        r#"{{"name":"{name}","singularName":"{singular}","kind":"{kind}","namespaced":true,"verbs":[{verbs}],"shortNames":[{short}]}}"#
    )
}

fn list(resources: &[String]) -> Vec<Act> {
    json(&format!(r#"{{"kind":"APIResourceList","resources":[{}]}}"#, resources.join(",")))
}

const ALL: &str = r#""get","list","watch""#;

/// Starts a simulated cluster with a few API groups. The group `broken.example.com` does not answer.
async fn cluster() -> TestServer {
    TestServer::start(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        match path {
            "/api/v1" => list(&[
                resource("pods", "pod", "Pod", r#""po""#, ALL),
                resource("pods/status", "", "Pod", "", r#""get""#),
                resource("bindings", "binding", "Binding", "", r#""create""#),
            ]),
            "/apis" => json(
                r#"{"groups":[
                {"name":"broken.example.com","preferredVersion":{"version":"v1"},"versions":[{"version":"v1"}]},
                {"name":"apps","preferredVersion":{"version":"v1"},"versions":[{"version":"v1"}]},
                {"name":"shop.example.com","preferredVersion":{"version":"v2"},"versions":[{"version":"v2"},{"version":"v1"}]}]}"#,
            ),
            "/apis/apps" => json(r#"{"name":"apps","preferredVersion":{"version":"v1"},"versions":[{"version":"v1"}]}"#),
            "/apis/shop.example.com" => json(
                r#"{"name":"shop.example.com","preferredVersion":{"version":"v2"},"versions":[{"version":"v2"},{"version":"v1"}]}"#,
            ),
            "/apis/apps/v1" => list(&[resource("deployments", "deployment", "Deployment", r#""deploy""#, ALL)]),
            "/apis/shop.example.com/v2" => list(&[resource("orders", "", "Order", "", ALL), resource("pods", "", "Fake", "", ALL)]),
            "/apis/shop.example.com/v1" => {
                list(&[resource("orders", "", "Order", "", ALL), resource("carts", "cart", "Cart", "", ALL)])
            }
            path if path.starts_with("/apis/broken") => failure(503, "ServiceUnavailable", ""),
            _ => failure(404, "NotFound", ""),
        }
    })
    .await
}

async fn look(text: &str) -> Result<String, DiscoveryError> {
    let server = cluster().await;
    let found = resolve(&server.client().await, &text.parse().unwrap()).await?;
    assert!(found.namespaced);
    Ok(format!("{} {}", found.gvr.long(), found.kind))
}

#[tokio::test]
async fn resource_is_found_by_each_of_its_names() {
    for (text, found) in [
        ("pods", "pods.v1. Pod"),
        ("pod", "pods.v1. Pod"),
        ("po", "pods.v1. Pod"),
        ("pods.v1", "pods.v1. Pod"),
        ("deploy", "deployments.v1.apps Deployment"),
        ("deployments.apps", "deployments.v1.apps Deployment"),
        ("deployment.v1.apps", "deployments.v1.apps Deployment"),
        ("orders", "orders.v2.shop.example.com Order"),
        ("order.shop.example.com", "orders.v2.shop.example.com Order"),
        ("orders.v1.shop.example.com", "orders.v1.shop.example.com Order"),
        ("carts.shop.example.com", "carts.v1.shop.example.com Cart"),
        ("pods.shop.example.com", "pods.v2.shop.example.com Fake"),
    ] {
        assert_eq!(look(text).await.unwrap(), found, "{text}");
    }
}

#[tokio::test]
async fn missing_resource_error_suggests_similar_names() {
    for (text, near) in [
        ("deploymnets.apps", "deployments.apps"),
        ("order.v2.shop.exmaple.com", ""),
        ("pos.v1", "po"),
        ("deployments.app", "deployments.apps"),
    ] {
        let error = look(text).await.unwrap_err();
        assert!(matches!(error, DiscoveryError::NotFound { .. }), "{text}: {error}");
        assert!(error.to_string().contains(near), "{text}: {error}");
    }
    let error = look("bindings.v1").await.unwrap_err();
    assert!(matches!(error, DiscoveryError::NotFound { .. }), "what cannot be watched is not there: {error}");
}

#[tokio::test]
async fn group_that_is_down_matters_only_without_another_match() {
    assert!(look("deployments").await.is_ok());
    let error = look("nothing").await.unwrap_err();
    assert!(matches!(&error, DiscoveryError::Unavailable(e) if e.class == ErrorClass::Transient), "{error}");
    let error = look("x.broken.example.com").await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Unavailable(_)), "{error}");
}

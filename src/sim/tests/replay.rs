use super::super::replay::{ReplayConfig, ReplayServer, SENT};
use super::*;

fn server(pods: usize) -> (ReplayServer, SocketAddr) {
    let config = ReplayConfig { pods, small: true, ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, &Handle::current()).unwrap();
    let address = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    (server, address)
}

#[tokio::test]
async fn the_list_has_the_size_that_it_announces_and_parses() {
    let (server, address) = server(500);
    let body = within(try_get(address, "/api/v1/pods", &[])).await.unwrap().whole().await.unwrap();
    assert_eq!(body.len() as u64, server.list_size());
    let list: k8s_openapi::List<k8s_openapi::api::core::v1::Pod> = serde_json::from_slice(&body).unwrap();
    assert_eq!((list.items.len(), server.lists()), (500, 1));
    assert_eq!(list.metadata.resource_version.unwrap(), server.last_version().to_string());
    let annotations = list.items[0].metadata.annotations.as_ref().unwrap();
    assert_eq!(server.since_sent(&annotations[SENT]), None);
}

#[tokio::test]
async fn real_sized_pods_are_as_large_as_those_of_the_anchors() {
    let config = ReplayConfig { pods: 100, ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, &Handle::current()).unwrap();
    assert!((900_000..980_000).contains(&server.list_size()), "{}", server.list_size());
}

#[tokio::test]
async fn a_flood_brings_every_event_in_order_and_then_holds() {
    let (server, address) = server(50);
    let first = server.last_version();
    let path = format!("/api/v1/pods?watch=true&resourceVersion={first}");
    let mut watch = within(try_get(address, &path, &[])).await.unwrap();
    for round in 0..2 {
        server.flood(1000);
        for i in 0..1000 {
            let (kind, key, version) = watch.event().await;
            assert_eq!((kind.as_str(), version), ("MODIFIED", first + round * 1000 + i + 1));
            assert!(key.ends_with(&format!("-{}", (round * 1000 + i) % 50)), "{key}");
        }
        assert_eq!(server.last_version(), first + (round + 1) * 1000);
    }
    assert_eq!(server.sent(), 2000);
}

#[tokio::test]
async fn a_paced_event_says_when_it_was_sent() {
    let (server, address) = server(50);
    let path = format!("/api/v1/pods?watch=true&resourceVersion={}", server.last_version());
    let mut watch = within(try_get(address, &path, &[])).await.unwrap();
    watch.line().await.unwrap();
    let begin = crate::types::clock::now();
    server.pace(500, 50);
    for _ in 0..50 {
        let event = watch.line().await.unwrap().unwrap();
        let sent = event["object"]["metadata"]["annotations"][SENT].as_str().unwrap();
        let ago = server.since_sent(sent).unwrap();
        assert!(ago < begin.elapsed() + Duration::from_millis(1), "{ago:?}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(98), "49 gaps of 2 ms, but {:?}", begin.elapsed());
    assert_eq!(server.since_sent("nonsense"), None);
}

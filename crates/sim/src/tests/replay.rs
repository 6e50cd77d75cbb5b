//! Tests of the replay server.

use informer_hub_testing::tls::Ca;

use super::super::replay::{ReplayConfig, ReplayServer, SENT, Shape};
use super::*;

fn server(pods: usize) -> (ReplayServer, SocketAddr) {
    let config = ReplayConfig { pods, shape: Shape::SmallPods, ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, &Handle::current()).unwrap();
    let address = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    (server, address)
}

#[tokio::test]
async fn list_has_the_announced_size_and_parses() {
    let (server, address) = server(500);
    let body = within(try_get(address, "/api/v1/pods", &[])).await.unwrap().whole().await.unwrap();
    assert_eq!(body.len() as u64, server.list_size());
    let list: k8s_openapi::List<k8s_openapi::api::core::v1::Pod> = serde_json::from_slice(&body).unwrap();
    assert_eq!((list.items.len(), server.lists()), (500, 1));
    assert_eq!(list.metadata.resource_version.unwrap(), server.last_version().to_string());
    let annotations = list.items[0].metadata.annotations.as_ref().unwrap();
    assert_eq!(ReplayServer::since_sent(&annotations[SENT]), None);
}

#[tokio::test]
async fn default_pods_have_the_documented_size() {
    let config = ReplayConfig { pods: 100, ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, &Handle::current()).unwrap();
    assert!((900_000..980_000).contains(&server.list_size()), "{}", server.list_size());
}

#[tokio::test]
async fn flood_sends_every_event_in_order_and_then_waits() {
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
async fn paced_event_carries_its_send_time() {
    let (server, address) = server(50);
    let path = format!("/api/v1/pods?watch=true&resourceVersion={}", server.last_version());
    let mut watch = within(try_get(address, &path, &[])).await.unwrap();
    watch.line().await.unwrap();
    let begin = informer_hub_types::clock::now();
    server.pace(500, 50);
    for _ in 0..50 {
        let event = watch.line().await.unwrap().unwrap();
        let sent = event["object"]["metadata"]["annotations"][SENT].as_str().unwrap();
        let ago = ReplayServer::since_sent(sent).unwrap();
        assert!(ago < begin.elapsed() + Duration::from_millis(1), "{ago:?}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(98), "49 gaps of 2 ms, but {:?}", begin.elapsed());
    assert_eq!(ReplayServer::since_sent("nonsense"), None);
}

#[tokio::test]
async fn relist_shows_the_state_after_the_events() {
    let (server, address) = server(50);
    server.flood(70);
    let body = within(try_get(address, "/api/v1/pods", &[])).await.unwrap().whole().await.unwrap();
    assert_eq!(body.len() as u64, server.list_size());
    let list: Value = serde_json::from_slice(&body).unwrap();
    let version = |value: &Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let first = server.last_version() - 70;
    assert_eq!(version(&list), first + 70);
    // Events 0 and 50 changed the first pod, 19 and 69 the twentieth, and only 20 the next one.
    let items = list["items"].as_array().unwrap();
    assert_eq!([0, 19, 20, 49].map(|at| version(&items[at]) - first), [51, 70, 21, 50]);
}

#[tokio::test]
async fn expired_watch_ends_with_an_error_event_and_the_next_continues() {
    let (server, address) = server(50);
    let path = format!("/api/v1/pods?watch=true&resourceVersion={}", server.last_version());
    let mut watch = within(try_get(address, &path, &[])).await.unwrap();
    watch.line().await.unwrap();
    server.expire();
    let event = watch.line().await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
    assert!(watch.line().await.unwrap().is_none());
    let mut watch = within(try_get(address, &path, &[])).await.unwrap();
    server.flood(1);
    assert_eq!(watch.event().await.2, server.last_version());
}

#[tokio::test]
async fn pods_are_sorted_by_key_and_grouped_in_replica_sets() {
    let list = async |shape| {
        let config = ReplayConfig { pods: 400, shape, ..ReplayConfig::default() };
        let server = ReplayServer::start(&config, &Handle::current()).unwrap();
        let address = server.url().strip_prefix("http://").unwrap().parse().unwrap();
        let body = within(try_get(address, "/api/v1/pods", &[])).await.unwrap().whole().await.unwrap();
        let list: Value = serde_json::from_slice(&body).unwrap();
        let values_at = |path: &str| -> Vec<String> {
            list["items"].as_array().unwrap().iter().map(|pod| pod.pointer(path).unwrap().to_string()).collect()
        };
        let keys: Vec<_> = values_at("/metadata/namespace").into_iter().zip(values_at("/metadata/name")).collect();
        assert!(keys.is_sorted() && keys.len() == 400, "{shape:?}");
        ["/metadata/ownerReferences/0/uid", "/metadata/labels"].map(|path| {
            let mut values = values_at(path);
            values.sort();
            values.dedup();
            values.len()
        })
    };
    let [owners, labels] = list(Shape::Pods).await;
    assert!(owners == labels && (400 / 10..=400 / 3 + 1).contains(&owners), "{owners} owners, {labels} sets of labels");
    assert_eq!(list(Shape::LonePods).await, [400, 400]);
}

#[tokio::test]
async fn shards_divide_the_pods_and_their_events() {
    let (server, address) = server(10);
    let mut names = Vec::new();
    for shard in 0..3 {
        let path = format!("/shards/{shard}/3/api/v1/pods");
        let body = within(try_get(address, &path, &[])).await.unwrap().whole().await.unwrap();
        let list: Value = serde_json::from_slice(&body).unwrap();
        let items = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone());
        names.extend(items);
    }
    names.dedup();
    assert_eq!(names.len(), 10);
    let first = server.last_version();
    let path = format!("/shards/2/3/api/v1/pods?watch=true&resourceVersion={first}");
    let mut watch = within(try_get(address, &path, &[])).await.unwrap();
    server.flood(5);
    for (i, version_of) in (0..5).zip(first + 1..) {
        let (_, key, version) = watch.event().await;
        assert_eq!(version, version_of);
        assert!(key.ends_with(names[6 + i % 4].as_str().unwrap()), "{key}");
    }
}

#[tokio::test]
async fn metadata_request_gets_metadata_only() {
    let (_server, address) = server(3);
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let answer = within(try_get(address, "/api/v1/pods", &[("accept", accept)])).await.unwrap();
    let announced: usize = answer.headers["content-length"].to_str().unwrap().parse().unwrap();
    let body = answer.whole().await.unwrap();
    assert_eq!(body.len(), announced);
    let list: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"PartialObjectMetadataList".into(), &"meta.k8s.io/v1".into()));
    for item in list["items"].as_array().unwrap() {
        assert!(item["metadata"]["name"].is_string() && item.as_object().unwrap().len() == 1, "{item}");
    }
}

/// Parses a protobuf message whose fields are all bytes.
fn fields(mut message: &[u8]) -> Vec<(u8, &[u8])> {
    let mut fields = Vec::new();
    while let [tag, rest @ ..] = message {
        assert_eq!(tag & 7, 2, "not a field of bytes");
        let (mut length, mut at) = (0, 0);
        loop {
            length |= usize::from(rest[at] & 0x7f) << (7 * at);
            at += 1;
            if rest[at - 1] & 0x80 == 0 {
                break;
            }
        }
        fields.push((tag >> 3, &rest[at..at + length]));
        message = &rest[at + length..];
    }
    fields
}

fn only(message: &[u8], number: u8) -> &[u8] {
    let mut found = fields(message).into_iter().filter(|(at, _)| *at == number);
    let (_, bytes) = found.next().unwrap();
    assert!(found.next().is_none(), "field {number} twice");
    bytes
}

/// Encodes a field of fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

#[tokio::test]
async fn replay_server_serves_protobuf_pods() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let annotation = [field(1, SENT.as_bytes()), field(2, b"1000000000000002")].concat();
    let metadata = [field(1, b"web"), field(6, b"1000000000000001"), field(12, &annotation)].concat();
    let pod = [field(1, &metadata), field(2, &field(10, b"node-1"))].concat();
    let one = [&u32::try_from(pod.len()).unwrap().to_be_bytes(), &pod[..]].concat();
    std::fs::write(file.path(), one.repeat(2)).unwrap();
    let config = ReplayConfig { pods: 2, protobuf: Some(file.path().to_owned()), ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, &Handle::current()).unwrap();
    let address = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    let first = server.last_version();
    for (accept, kind, parts) in [
        ("application/vnd.kubernetes.protobuf", "Pod", 2),
        ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList", "PartialObjectMetadata", 1),
    ] {
        let answer = within(try_get(address, "/api/v1/pods", &[("accept", accept)])).await.unwrap();
        assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf");
        let announced: usize = answer.headers["content-length"].to_str().unwrap().parse().unwrap();
        let body = answer.whole().await.unwrap();
        assert_eq!(body.len(), announced);
        let envelope = body.strip_prefix(b"k8s\0").unwrap();
        assert_eq!(only(only(envelope, 1), 2), format!("{kind}List").as_bytes());
        let list = only(envelope, 2);
        assert_eq!(only(only(list, 1), 2), first.to_string().as_bytes());
        let items: Vec<_> = fields(list).into_iter().filter(|(number, _)| *number == 2).collect();
        assert_eq!(items.len(), 2);
        assert_eq!(only(only(items[1].1, 1), 6), first.to_string().as_bytes());
        assert_eq!(fields(items[1].1).len(), parts);
    }
    let path = format!("/api/v1/pods?watch=true&resourceVersion={first}");
    let accept = [("accept", "application/vnd.kubernetes.protobuf")];
    let mut watch = within(try_get(address, &path, &accept)).await.unwrap();
    server.flood(1);
    for (event, version) in [("BOOKMARK", first), ("MODIFIED", first + 1)] {
        let frame = watch.frame().await;
        assert_eq!(only(&frame, 1), event.as_bytes());
        let envelope = only(only(&frame, 2), 1).strip_prefix(b"k8s\0").unwrap();
        assert_eq!(only(only(envelope, 1), 2), b"Pod");
        assert_eq!(only(only(only(envelope, 2), 1), 6), version.to_string().as_bytes());
    }
}

impl Answer {
    /// Returns the next frame of a protobuf watch.
    async fn frame(&mut self) -> Vec<u8> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if rest.len() >= length {
                    return self.buffer.drain(..4 + length).skip(4).collect();
                }
            }
            assert!(within(self.more()).await.unwrap(), "the watch ended");
        }
    }
}

#[tokio::test]
async fn alpn_selects_the_protocol_that_the_server_offers() {
    // The first test of the process installs the crypto provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (protocols, expected) in [
        (&[b"http/1.1".as_slice()][..], reqwest::Version::HTTP_11),
        (&[b"h2".as_slice(), b"http/1.1"][..], reqwest::Version::HTTP_2),
    ] {
        let ca = Ca::new();
        let config = ReplayConfig { pods: 5, tls: Some(ca.server_config(protocols)), ..ReplayConfig::default() };
        let server = ReplayServer::start(&config, &Handle::current()).unwrap();
        let root = reqwest::Certificate::from_pem(ca.pem().as_bytes()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
        let url = format!("{}/api/v1/pods", server.url());
        let answer = within(client.get(url).send()).await.unwrap();
        assert_eq!(answer.version(), expected);
        assert_eq!(within(answer.bytes()).await.unwrap().len() as u64, server.list_size());
    }
}

//! Tests of credentials that change under a source.

use std::path::Path;

use super::super::client::Access;
use super::*;
use crate::kube::{KubeSource, KubeSourceOptions};
use crate::testserver::{Act, TEST_TIMEOUT, TestServer};
use informer_hub_codec::{Decoder, Projection};
use informer_hub_reflector::{ErrorClass, ListRequest, ListerWatcher, VersionMatch, WatchRequest};
use informer_hub_types::{ApiResource, Gvr, Scope};

fn kubeconfig(path: &Path, server: &str, token: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\ncurrent-context: x\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    );
    std::fs::write(path, text).unwrap();
}

async fn server() -> TestServer {
    TestServer::start(|head| {
        let body = if head.contains("Bearer stale") { "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n" } else if head.contains("watch=true") {
            return vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec()), Act::Hold];
        } else {
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 68\r\n\r\n{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[        ]}"
        };
        vec![Act::Send(body.as_bytes().to_vec())]
    })
    .await
}

async fn client(path: &Path) -> Arc<ReloadingClient> {
    let access = Access::Kubeconfig { path: path.to_owned(), context: None };
    ReloadingClient::connect(
        None,
        AccessSettings { compression: false, ..access.into() },
        Wiring::default(),
        &Threads::current(),
    )
    .await
    .unwrap()
}

fn source(client: &Arc<ReloadingClient>) -> KubeSource {
    let gvr = Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() };
    let resource = ApiResource { gvr, kind: "Pod".into(), namespaced: true };
    let decoder = Decoder::new(resource, &Projection::Drop(Vec::new()), Vec::new());
    KubeSource::new(Arc::clone(client), Scope::all(), decoder, KubeSourceOptions::default(), Threads::current())
}

fn list(version: VersionMatch) -> ListRequest {
    ListRequest { version, limit: None, continue_token: None }
}

/// Waits until the client has been replaced.
async fn wait_for_new_client(client: &ReloadingClient, old: &Arc<CurrentClient>) {
    let replaced = async {
        while Arc::ptr_eq(&client.current(), old) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, replaced).await.expect("the client is not replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthorized_answer_reloads_credentials_and_open_watch_continues() {
    let (server, dir) = (server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &server.url(), "good");
    let client = client(&path).await;
    let source = source(&client);
    let request = WatchRequest {
        version: VersionMatch::NotOlderThan(informer_hub_types::ResourceVersion::new("7")),
        timeout: Duration::from_secs(300),
        initial_events: false,
    };
    let mut watch = source.watch(request).await.unwrap();
    kubeconfig(&path, &server.url(), "stale");
    let first = client.current();
    client.credentials_refused();
    wait_for_new_client(&client, &first).await;
    let second = client.current();
    let error = source.list(list(VersionMatch::MostRecent)).await.err().unwrap();
    assert_eq!(error.class, ErrorClass::Unauthorized);
    kubeconfig(&path, &server.url(), "better");
    // The file has changed, so the retry interval does not apply.
    client.credentials_refused();
    wait_for_new_client(&client, &second).await;
    drop(source.list(list(VersionMatch::MostRecent)).await.unwrap());
    assert!(server.requests().last().unwrap().contains("Bearer better"), "{:?}", server.requests());
    assert!(futures::poll!(futures::StreamExt::next(&mut watch)).is_pending(), "the watch is still open");
    assert_eq!(client.current().epoch, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_encoding_applies_to_the_next_request() {
    let (server, dir) = (server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &server.url(), "good");
    let client = client(&path).await;
    let access = Access::Kubeconfig { path, context: None };
    for (encoding, accepted) in [
        (Encodings::Json, "accept: application/json\r\n"),
        (Encodings::Auto, "accept: application/vnd.kubernetes.protobuf,application/json\r\n"),
    ] {
        let before = client.current();
        client.change(AccessSettings { encoding, ..access.clone().into() });
        wait_for_new_client(&client, &before).await;
        drop(source(&client).list(list(VersionMatch::MostRecent)).await.unwrap());
        let requests = server.requests();
        assert!(requests.last().unwrap().to_lowercase().contains(accepted), "{encoding:?}: {requests:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_change_ends_watches_and_voids_versions() {
    let (first, second, dir) = (server().await, server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &first.url(), "t");
    let client = client(&path).await;
    let source = source(&client);
    let since = || VersionMatch::NotOlderThan(informer_hub_types::ResourceVersion::new("7"));
    let request = || WatchRequest { version: since(), timeout: Duration::from_secs(300), initial_events: false };
    let mut watch = source.watch(request()).await.unwrap();
    kubeconfig(&path, &second.url(), "t");
    client.credentials_refused();
    let ended = tokio::time::timeout(TEST_TIMEOUT, futures::StreamExt::next(&mut watch)).await;
    assert!(ended.expect("the watch ends").is_none());
    assert_eq!(source.current_version().await.err().unwrap().class, ErrorClass::Expired, "of another cluster");
    assert_eq!(source.watch(request()).await.err().unwrap().class, ErrorClass::Expired);
    drop(source.list(list(VersionMatch::MostRecent)).await.unwrap());
    drop(source.watch(request()).await.unwrap());
    assert_eq!(second.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_written_kubeconfig_keeps_the_client() {
    let (server, dir) = (server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &server.url(), "good");
    let client = client(&path).await;
    let before = client.current();
    std::fs::write(&path, "apiVersion: v1\nkind: Config\nclusters: [{name").unwrap();
    let mut last_attempt = None;
    client.credentials_refused();
    client.renew(&mut last_attempt).await;
    assert!(Arc::ptr_eq(&client.current(), &before) || last_attempt.is_none());
    let source = source(&client);
    drop(source.list(list(VersionMatch::MostRecent)).await.unwrap());
    kubeconfig(&path, &server.url(), "whole-again");
    client.credentials_refused();
    wait_for_new_client(&client, &before).await;
}

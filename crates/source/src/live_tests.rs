//! Credentials change under a source.

use std::path::Path;

use super::*;
use crate::kube::{KubeSource, KubeSourceOptions};
use crate::testserver::{Act, PATIENCE, TestServer};
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

async fn live(path: &Path) -> Arc<Live> {
    let access = Access::Kubeconfig { path: path.to_owned(), context: None };
    Live::connect(None, Way { access, compression: false }, None, &Threads::current()).await.unwrap()
}

fn source(live: &Arc<Live>) -> KubeSource {
    let gvr = Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() };
    let resource = ApiResource { gvr, kind: "Pod".into(), namespaced: true };
    let decoder = Decoder::new(resource, &Projection::Drop(Vec::new()), Vec::new());
    KubeSource::new(Arc::clone(live), Scope::all(), decoder, KubeSourceOptions::default(), Threads::current())
}

fn list(version: VersionMatch) -> ListRequest {
    ListRequest { version, limit: None, continue_token: None }
}

/// Waits until the client is another one.
async fn renewed(live: &Live, old: &Arc<Made>) {
    let anew = async {
        while Arc::ptr_eq(&live.made(), old) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, anew).await.expect("the client stays the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_401_the_credentials_are_read_again_and_the_open_watch_goes_on() {
    let (server, dir) = (server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &server.url(), "good");
    let live = live(&path).await;
    let source = source(&live);
    let request = WatchRequest {
        version: VersionMatch::NotOlderThan(informer_hub_types::ResourceVersion::new("7")),
        timeout: Duration::from_secs(300),
        initial_events: false,
    };
    let mut watch = source.watch(request).await.unwrap();
    kubeconfig(&path, &server.url(), "stale");
    live.refused();
    let first = live.made();
    renewed(&live, &first).await;
    let second = live.made();
    let error = source.list(list(VersionMatch::MostRecent)).await.err().unwrap();
    assert_eq!(error.class, ErrorClass::Unauthorized);
    kubeconfig(&path, &server.url(), "better");
    // The file is another one: it need not wait for its time.
    live.refused();
    renewed(&live, &second).await;
    drop(source.list(list(VersionMatch::MostRecent)).await.unwrap());
    assert!(server.requests().last().unwrap().contains("Bearer better"), "{:?}", server.requests());
    assert!(futures::poll!(futures::StreamExt::next(&mut watch)).is_pending(), "nobody ended it");
    assert_eq!(live.made().epoch, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_another_address_nothing_rests_on_what_the_first_one_said() {
    let (first, second, dir) = (server().await, server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &first.url(), "t");
    let live = live(&path).await;
    let source = source(&live);
    let since = || VersionMatch::NotOlderThan(informer_hub_types::ResourceVersion::new("7"));
    let request = || WatchRequest { version: since(), timeout: Duration::from_secs(300), initial_events: false };
    let mut watch = source.watch(request()).await.unwrap();
    kubeconfig(&path, &second.url(), "t");
    live.refused();
    let ended = tokio::time::timeout(PATIENCE, futures::StreamExt::next(&mut watch)).await;
    assert!(ended.expect("the watch ends").is_none());
    assert_eq!(source.watch(request()).await.err().unwrap().class, ErrorClass::Expired);
    drop(source.list(list(VersionMatch::MostRecent)).await.unwrap());
    drop(source.watch(request()).await.unwrap());
    assert_eq!(second.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_that_is_half_written_leaves_the_client_as_it_was() {
    let (server, dir) = (server().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    kubeconfig(&path, &server.url(), "good");
    let live = live(&path).await;
    let before = live.made();
    std::fs::write(&path, "apiVersion: v1\nkind: Config\nclusters: [{name").unwrap();
    let mut tried = None;
    live.refused();
    live.renew(&mut tried).await;
    assert!(Arc::ptr_eq(&live.made(), &before) || tried.is_none());
    let source = source(&live);
    drop(source.list(list(VersionMatch::MostRecent)).await.unwrap());
    kubeconfig(&path, &server.url(), "whole-again");
    live.refused();
    renewed(&live, &before).await;
}

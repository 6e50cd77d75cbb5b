//! Reader that decodes and stores nothing: the baseline for the cost of server, network and machine.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use http_body_util::BodyExt;
use informer_hub_sim::replay::SENT;
use kube::Client;
use memchr::memmem;

use crate::common::hub::Notified;

const VERSION: &str = "\"resourceVersion\":\"";

/// Lists all `count` pods, then watches them. Records the end of the list and each event.
pub(crate) async fn read(client: Client, count: u64, notified: Notified) {
    let mut version = None;
    each_piece(get(&client, "/api/v1/pods").await, |piece| {
        version = version.or_else(|| digits_after(piece, VERSION));
    })
    .await;
    notified.count.store(count, Relaxed);
    let from = version.expect("a list begins with its version");
    let watch = format!("/api/v1/pods?watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=3600");
    let mut line = Vec::new();
    each_piece(get(&client, &watch).await, |mut piece| {
        while let Some(end) = memchr::memchr(b'\n', piece) {
            line.extend_from_slice(&piece[..end]);
            event(&line, &notified);
            line.clear();
            piece = &piece[end + 1..];
        }
        line.extend_from_slice(piece);
    })
    .await;
}

/// Reads a streaming list and records its end.
pub(crate) async fn stream(client: Client, count: u64, notified: Notified) {
    let uri = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
               &timeoutSeconds=3600";
    let (mark, mut unseen) = (b"k8s.io/initial-events-end", Vec::new());
    each_piece(get(&client, uri).await, |piece| {
        unseen.extend_from_slice(piece);
        if memmem::find(&unseen, mark).is_some() {
            notified.count.store(count, Relaxed);
        }
        // The mark may be split between two pieces.
        unseen.drain(..unseen.len().saturating_sub(mark.len()));
    })
    .await;
}

async fn get(client: &Client, uri: &str) -> kube::client::Body {
    // The client cannot decompress a watch of kube-apiserver, which has several gzip members.
    let request = http::Request::get(uri).header("accept", "application/json").header("accept-encoding", "identity");
    client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap().into_body()
}

async fn each_piece(mut body: kube::client::Body, mut take: impl FnMut(&[u8])) {
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.unwrap().into_data() {
            take(&piece);
        }
    }
}

/// Records the event of a line.
pub(crate) fn event(line: &[u8], notified: &Notified) {
    let called = Instant::now();
    let sent = || digits_after(line, &format!("\"{SENT}\":\"")).map(|digits| digits.to_string());
    if let Some(version) = digits_after(line, VERSION) {
        notified.update(called, version, sent);
    }
}

fn digits_after(text: &[u8], key: &str) -> Option<u64> {
    let digits = &text[memmem::find(text, key.as_bytes())? + key.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

//! Streams of HTTP/2 whose client does not read, reads slowly, or gives up.

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use futures::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::api::kubernetes::tests::{Bench, pod, pods};

const SHORT: Duration = Duration::from_millis(300);

/// Maximum number of unread bytes of one stream.
const STREAM_WINDOW: u32 = 16 << 10;
/// Maximum number of unread bytes of all streams of the connection.
const WINDOW: u32 = 16 << 20;

/// A hub with 3,000 pods in cluster `a`. A reader may have five lists in progress.
fn bench() -> Bench {
    let mut bench = Bench::with_pods();
    let many = (0..3000).map(|i| pod("shop", &format!("p{i:04}"), i + 1, "web", "n1")).collect();
    bench.list(&pods(), "a", many, 5000);
    bench
}

async fn client(port: &Port) -> SendRequest<Empty<Bytes>> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(WINDOW);
    let (sender, connection) = builder.handshake(TokioIo::new(port.connect().await)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn asking(client: &SendRequest<Empty<Bytes>>, path: &str) -> impl Future<Output = Response<Incoming>> + use<> {
    let request = Request::get(format!("http://127.0.0.1{path}")).body(Empty::new()).unwrap();
    let mut client = client.clone();
    async move {
        let answer = tokio::time::timeout(PATIENCE, client.send_request(request)).await;
        answer.expect("an answer").unwrap()
    }
}

/// Waits until no list is in progress.
async fn until_free(bench: &Bench) {
    let free = async {
        let mut tick = tokio::time::interval(SHORT / 10);
        while bench.api().counts().in_progress > 0 {
            tick.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, free).await.expect("the lists that are not read end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_are_not_read_end_without_the_watch_of_their_connection() {
    let bench = bench();
    let limits = Limits { taking: SHORT, ..Limits::default() };
    let port = Port::open_with(Protection { limits, ..Protection::default() }, Some(bench.api())).await;
    let client = client(&port).await;
    let watch = asking(&client, "/clusters/a/api/v1/pods?watch=1&resourceVersion=5000").await;
    let mut lists = Vec::new();
    for _ in 0..5 {
        lists.push(asking(&client, "/clusters/a/api/v1/pods").await);
    }
    assert!(lists.iter().all(|list| list.status() == StatusCode::OK));
    let refused = asking(&client, "/clusters/a/api/v1/pods").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    until_free(&bench).await;
    for list in lists {
        let read = tokio::time::timeout(PATIENCE, list.into_body().collect()).await.expect("an end");
        assert!(read.is_err(), "a list that broke off must not look complete");
    }
    bench.change("a", pod("shop", "p0000", 5001, "web", "n2"));
    let mut events = watch.into_body().into_data_stream();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event").unwrap().unwrap();
    assert!(event.starts_with(b"{\"type\":\"MODIFIED\""), "{event:?}");
    assert_eq!(asking(&client, "/clusters/a/version").await.status(), StatusCode::OK);
    drop((events, client));
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_given_up_leaves_an_idle_connection() {
    let port =
        Port::open(Protection { limits: Limits { connections: 1, ..Limits::default() }, ..Protection::default() });
    let port = port.await;
    port.hold();
    let client = client(&port).await;
    let given_up = tokio::spawn(asking(&client, "/readyz"));
    port.asked(1).await;
    given_up.abort();
    // The only connection is idle again, so it is evicted for the next.
    assert!(port.get("/livez").await.ends_with("ok\n"));
    drop(client);
    port.may_answer.add_permits(1);
    port.end().await;
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_read_very_slowly_breaks_off() {
    let grace = Duration::from_secs(60);
    for (pause, part, is_whole) in [(59, 128 << 10, false), (1, 128 << 10, true), (1, 4 << 10, false)] {
        let part = Bytes::from(vec![b'x'; part]);
        let parts = futures::stream::iter(vec![Ok::<_, std::convert::Infallible>(part); 200]);
        let mut body = connections::with_pace(Body::from_stream(parts), grace).into_data_stream();
        let mut taken = 0;
        let end = loop {
            match body.next().await {
                Some(Ok(_)) => taken += 1,
                end => break end,
            }
            tokio::time::sleep(Duration::from_secs(pause)).await;
        };
        assert_eq!((end.is_none(), taken == 200), (is_whole, is_whole), "{taken} parts every {pause} s");
    }
}

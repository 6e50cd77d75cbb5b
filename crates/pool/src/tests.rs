//! Tests against servers on pipes, with a paused clock.

mod server;

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use informer_hub_types::{CloseCounts, HttpVersions, OpenCounts, clock};
use tokio::time::{sleep, timeout};

use super::{Answer, Lane, Pool, SendError, StreamError};
use server::{Kind, Server, ServerConfig};

fn get(path: &str) -> Request<Bytes> {
    Request::get(format!("https://server{path}")).body(Bytes::new()).unwrap()
}

fn bulk(path: &str) -> Request<Bytes> {
    let mut request = get(path);
    request.extensions_mut().insert(Lane::Bulk);
    request
}

async fn text(response: Response<Answer>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Returns the next data of an answer.
async fn next(response: &mut Response<Answer>) -> Result<Bytes, String> {
    let frame = timeout(Duration::from_secs(60), response.body_mut().frame()).await.expect("no data for a minute");
    frame.expect("the answer has ended").map(|frame| frame.into_data().unwrap()).map_err(|error| error.to_string())
}

async fn open(pool: &Pool, request: Request<Bytes>) -> Response<Answer> {
    timeout(Duration::from_secs(60), pool.send(request)).await.expect("no answer for a minute").unwrap()
}

/// Waits until no other task can run without an event or the passing of time.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_share_one_connection() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let answers = futures::future::join_all((0..50).map(|_| open(&pool, get("/watch")))).await;
    assert_eq!((server.connections(), server.traffic().requests), (1, 50));
    assert_eq!(server.traffic().protocol, Some("HTTP/2"));
    drop(answers);
    assert_eq!(server.traffic().requests, 0);
    assert_eq!(text(open(&pool, get("/echo/hello")).await).await, "hello");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn limit_of_the_server_opens_further_connections() {
    let server = Server::start(ServerConfig { max_streams: 100, ..ServerConfig::default() });
    let pool = server.pool(HttpVersions::Auto);
    let answers = futures::future::join_all((0..300).map(|_| open(&pool, get("/watch")))).await;
    assert_eq!((answers.len(), server.connections()), (300, 3));
    assert_eq!(server.traffic().opened, OpenCounts { first: 1, stream_limit: 2, ..OpenCounts::default() });
    assert_eq!(server.open_streams(), [100, 100, 100]);
}

#[tokio::test(start_paused = true)]
async fn lists_have_a_connection_of_their_own() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let _watch = open(&pool, get("/watch")).await;
    let _list = open(&pool, bulk("/watch")).await;
    assert_eq!((server.connections(), server.open_streams()), (2, vec![1, 1]));
}

#[tokio::test(start_paused = true)]
async fn dropped_answer_frees_its_stream() {
    let server = Server::start(ServerConfig { max_streams: 1, ..ServerConfig::default() });
    let pool = server.pool(HttpVersions::Auto);
    for _ in 0..5 {
        drop(open(&pool, get("/watch")).await);
        settle().await;
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn unread_answers_do_not_delay_others_and_are_bounded() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let _unread = futures::future::join_all((0..240).map(|_| open(&pool, get("/flood")))).await;
    sleep(Duration::from_secs(5)).await;
    let flooded = server.bytes_accepted();
    let mut prompt = open(&pool, get("/watch")).await;
    for i in 0..100 {
        server.send_to_watches(format!("event {i}"));
        let began = clock::now();
        assert_eq!(next(&mut prompt).await.unwrap(), format!("event {i}"));
        assert!(began.elapsed() < Duration::from_millis(100));
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(flooded, 240 * 128 * 1024, "each unread answer fills its own window only");
}

#[tokio::test(start_paused = true)]
async fn windows_grow_while_readers_wait() {
    for (request, largest) in [(get as fn(&str) -> _, 512 * 1024), (bulk, 2 * 1024 * 1024)] {
        let server = Server::start(ServerConfig::default());
        let pool = server.pool(HttpVersions::Auto);
        let mut watch = open(&pool, request("/watch")).await;
        for _ in 0..600 {
            let send = async {
                settle().await;
                server.send_to_watches(vec![b'x'; 8 * 1024]);
            };
            assert_eq!(tokio::join!(next(&mut watch), send).0.unwrap().len(), 8 * 1024);
        }
        let _unread = open(&pool, request("/flood")).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!((server.connections(), server.bytes_accepted()), (1, largest));
    }
}

#[tokio::test(start_paused = true)]
async fn goaway_ends_no_answer_and_moves_new_requests() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let mut first = open(&pool, get("/watch")).await;
    server.go_away(0);
    settle().await;
    let mut second = open(&pool, get("/watch")).await;
    assert_eq!(server.open_streams(), [1, 1]);
    server.send_to_watches("later");
    assert_eq!(next(&mut first).await.unwrap(), "later");
    assert_eq!(next(&mut second).await.unwrap(), "later");
    // The old connection closes with its last answer.
    drop(first);
    settle().await;
    assert_eq!(server.traffic().connections, 1);
    assert_eq!(server.traffic().closed, CloseCounts { goaway: 1, ..CloseCounts::default() });
}

#[tokio::test(start_paused = true)]
async fn requests_that_meet_a_goaway_are_sent_again() {
    for seed in 0..20 {
        let server = Server::start(ServerConfig::default());
        let pool = server.pool(HttpVersions::Auto);
        let _first = open(&pool, get("/watch")).await;
        let requests = futures::future::join_all((0..20).map(|_| open(&pool, get("/watch"))));
        let go_away = async {
            for _ in 0..seed {
                tokio::task::yield_now().await;
            }
            server.go_away(0);
        };
        let (answers, ()) = tokio::join!(requests, go_away);
        assert_eq!(answers.len(), 20, "after {seed} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_request_is_sent_again_on_another_connection() {
    let server = Server::start(ServerConfig { refuses_above: Some(3), ..ServerConfig::default() });
    let pool = server.pool(HttpVersions::Auto);
    let answers = futures::future::join_all((0..10).map(|_| open(&pool, get("/watch")))).await;
    assert_eq!(answers.len(), 10);
    assert!((4..=10).contains(&server.connections()), "{}", server.connections());
    let opened = server.traffic().opened;
    assert!(opened.first == 1 && opened.stream_limit + 1 == server.connections() as u64, "{opened:?}");
    // If the server refuses every stream, the request fails.
    let server = Server::start(ServerConfig { refuses_above: Some(0), ..ServerConfig::default() });
    let error = server.pool(HttpVersions::Auto).send(get("/watch")).await.unwrap_err();
    assert!(matches!(error, SendError::Stream(StreamError::Reset(h2::Reason::REFUSED_STREAM))), "{error}");
    assert!(server.traffic().closed.stream_limit > 0, "{:?}", server.traffic());
}

#[tokio::test(start_paused = true)]
async fn dead_connection_is_noticed_within_30_seconds() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let mut watch = open(&pool, get("/watch")).await;
    for seconds in 0..20 {
        sleep(Duration::from_secs(seconds)).await;
        server.send_to_watches("alive");
        assert_eq!(next(&mut watch).await.unwrap(), "alive");
    }
    server.fall_silent(0);
    let died = clock::now();
    assert_eq!(next(&mut watch).await.unwrap_err(), "no answer to a PING within 10 s");
    assert!(died.elapsed() <= Duration::from_secs(30), "{:?}", died.elapsed());
    let mut watch = open(&pool, get("/watch")).await;
    assert_eq!(server.connections(), 2);
    server.send_to_watches("again");
    assert_eq!(next(&mut watch).await.unwrap(), "again");
    assert_eq!(server.traffic().closed, CloseCounts { ping_timeout: 1, ..CloseCounts::default() });
}

#[tokio::test(start_paused = true)]
async fn idle_connection_closes_and_requests_open_another() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    drop(open(&pool, get("/watch")).await);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.traffic().connections, 1);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(server.traffic().connections, 0);
    assert_eq!(server.traffic().closed, CloseCounts { idle: 1, ..CloseCounts::default() });
    let _watch = open(&pool, get("/watch")).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((server.traffic().connections, server.connections()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn connections_close_with_the_last_answer_of_a_dropped_pool() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let mut watch = open(&pool, get("/watch")).await;
    drop(pool);
    sleep(Duration::from_secs(60)).await;
    server.send_to_watches("still");
    assert_eq!(next(&mut watch).await.unwrap(), "still");
    drop(watch);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.traffic().connections, 0);
}

#[tokio::test(start_paused = true)]
async fn broken_connection_is_replaced_for_safe_requests() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let mut watch = open(&pool, get("/watch")).await;
    // The request is sent while the connection breaks.
    let (answer, ()) = tokio::join!(open(&pool, get("/echo/x")), async { server.cut(0) });
    assert_eq!(text(answer).await, "x");
    assert_eq!(next(&mut watch).await.unwrap_err(), "the server closed the connection");
    assert_eq!(server.traffic().closed, CloseCounts { failed: 1, ..CloseCounts::default() });
}

#[tokio::test(start_paused = true)]
async fn reset_stream_fails_alone() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let mut watch = open(&pool, get("/watch")).await;
    let mut reset = open(&pool, get("/reset")).await;
    let error = next(&mut reset).await.unwrap_err();
    assert!(error.starts_with("the server reset the stream: "), "{error}");
    server.send_to_watches("on");
    assert_eq!(next(&mut watch).await.unwrap(), "on");
}

#[tokio::test(start_paused = true)]
async fn http1_server_is_used_over_the_connection_that_found_it() {
    let server = Server::start(ServerConfig { kind: Kind::Http1, ..ServerConfig::default() });
    let pool = server.pool(HttpVersions::Auto);
    assert_eq!(text(open(&pool, get("/echo/a")).await).await, "a");
    assert_eq!(text(open(&pool, get("/echo/b")).await).await, "b");
    assert_eq!(server.connections(), 1);
    assert_eq!(server.traffic().protocol, Some("HTTP/1.1"));
    let held = futures::future::join_all((0..3).map(|_| open(&pool, get("/watch")))).await;
    assert_eq!((held.len(), server.traffic().requests), (3, 3));
    assert_eq!(server.traffic().opened, OpenCounts { http1: 3, ..OpenCounts::default() });
    // After ten minutes, HTTP/2 is offered again. The request uses the connection on which the server chose HTTP/1.1.
    drop(held);
    sleep(Duration::from_secs(700)).await;
    assert_eq!(server.traffic().closed, CloseCounts { http1: 3, ..CloseCounts::default() });
    let before = server.connections();
    assert_eq!(text(open(&pool, get("/echo/c")).await).await, "c");
    assert_eq!(server.connections(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn versions_are_those_that_are_allowed() {
    let server = Server::start(ServerConfig { kind: Kind::Http1, ..ServerConfig::default() });
    let error = server.pool(HttpVersions::Http2).send(get("/echo/a")).await.unwrap_err();
    let SendError::Connect(cause) = error else { panic!("{error}") };
    assert!(cause.to_string().contains("does not offer HTTP/2"), "{cause}");
    let server = Server::start(ServerConfig::default());
    assert_eq!(text(open(&server.pool(HttpVersions::Http1), get("/echo/a")).await).await, "a");
    assert_eq!(server.traffic().protocol, Some("HTTP/1.1"));
    assert_eq!(text(open(&server.pool(HttpVersions::Http2), get("/echo/a")).await).await, "a");
    assert_eq!(server.traffic().protocol, Some("HTTP/2"));
}

#[tokio::test(start_paused = true)]
async fn failed_connection_fails_all_that_wait_for_it() {
    let server = Server::start(ServerConfig { kind: Kind::Refusing, ..ServerConfig::default() });
    let pool = server.pool(HttpVersions::Auto);
    for round in 1..=3 {
        let results = futures::future::join_all((0..10).map(|_| pool.send(get("/watch")))).await;
        assert!(results.iter().all(|result| matches!(result, Err(SendError::Connect(_)))));
        assert_eq!(server.connections(), round, "waiting requests share an attempt");
    }
    let server = Server::start(ServerConfig { kind: Kind::Silent, ..ServerConfig::default() });
    let pool = server.pool(HttpVersions::Auto);
    let began = clock::now();
    let Err(SendError::Connect(cause)) = pool.send(get("/watch")).await else { panic!("a silent server answers") };
    assert_eq!((cause.to_string().as_str(), began.elapsed()), ("connecting took too long", Duration::from_secs(10)));
    let server = Server::start(ServerConfig { max_streams: 0, ..ServerConfig::default() });
    let Err(SendError::Connect(cause)) = server.pool(HttpVersions::Auto).send(get("/watch")).await else { panic!() };
    assert!(cause.to_string().contains("accepts no request"), "{cause}");
    settle().await;
    assert_eq!(server.traffic().connections, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_leaves_the_attempt_to_others() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    assert!(pool.send(get("/watch")).now_or_never().is_none());
    let _watch = open(&pool, get("/watch")).await;
    assert_eq!((server.connections(), server.traffic().requests), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn body_and_headers_are_sent() {
    let server = Server::start(ServerConfig::default());
    let pool = server.pool(HttpVersions::Auto);
    let request = Request::post("https://server/body").header("host", "server").header("connection", "keep-alive");
    let answer = open(&pool, request.body(Bytes::from("review")).unwrap()).await;
    assert_eq!(text(answer).await, "POST 6 review");
}

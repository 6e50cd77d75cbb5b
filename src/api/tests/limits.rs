//! Limits of requests and connections.

use super::*;

pub(super) const SHORT: Duration = Duration::from_millis(300);

fn limited(limits: Limits) -> Protection {
    Protection { limits, ..Protection::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_request_head_is_cut_off() {
    let port = Port::open(limited(Limits { head: SHORT, ..Limits::default() })).await;
    let mut stream = port.connect().await;
    let dripping = async {
        let mut tick = tokio::time::interval(SHORT / 10);
        for byte in head("GET", "/livez", &[&format!("X: {}", "x".repeat(5000))]).bytes() {
            tick.tick().await;
            if stream.write_all(&[byte]).await.is_err() {
                return;
            }
        }
        panic!("the slow request was accepted");
    };
    tokio::time::timeout(PATIENCE, dripping).await.expect("the connection is closed");
    assert_eq!(read_rest(&mut port.connect().await).await, "", "a silent connection is closed too");
    assert!(port.get("/livez").await.ends_with("ok\n"));
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_handshake_is_closed() {
    let files = protection::files();
    let tls = Some(files.tls(false));
    let limits = Limits { head: SHORT, ..Limits::default() };
    let port = Port::open(Protection { tls, limits, ..Protection::default() }).await;
    // The beginning of a TLS record that announces more bytes, plain HTTP, and no bytes at all.
    for beginning in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET /livez HTTP/1.1\r\n\r\n", b""] {
        let mut stream = port.connect().await;
        stream.write_all(beginning).await.unwrap();
        assert!(!read_rest(&mut stream).await.contains("HTTP/1.1 200"), "{beginning:?}");
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_head_or_body_is_rejected_before_it_is_read() {
    let port = Port::open(limited(Limits { body_bytes: 1000, ..Limits::default() })).await;
    let path = "/v1/sinks/a/dead-letters/purge";
    let json = "Content-Type: application/json";
    let answer = port.exchange(&head("POST", path, &[json, "Content-Length: 1000000000"])).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("{\"error\":\""), "{answer}");
    let chunk = format!("7d0\r\n{}\r\n", "x".repeat(2000));
    let answer = port.exchange(&(head("POST", path, &[json, "Transfer-Encoding: chunked"]) + &chunk)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let answer = port.exchange(&head("GET", "/livez", &[&format!("X: {}", "x".repeat(40_000))])).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let answer = port.exchange(&(head("POST", path, &[json, "Connection: close", "Content-Length: 2"]) + "{}")).await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("there is no sink"), "{answer}");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_body_times_out() {
    let port = Port::open(limited(Limits { request: SHORT, ..Limits::default() })).await;
    let headers = ["Content-Type: application/json", "Content-Length: 10"];
    let answer = port.exchange(&(head("POST", "/v1/sinks/a/dead-letters/purge", &headers) + "{")).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("within 300ms"), "{answer}");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_response_is_dropped() {
    let port = Port::open(limited(Limits { taking: SHORT, ..Limits::default() })).await;
    let mut stream = port.connect().await;
    stream.write_all(head("GET", "/v1/status", &[]).as_bytes()).await.unwrap();
    // Reads only the first bytes; the rest stays in buffers.
    stream.read_exact(&mut [0; 100]).await.unwrap();
    drop(port.stop);
    tokio::time::timeout(PATIENCE, port.serving).await.expect("the service stops").unwrap();
    assert!(read_rest(&mut stream).await.len() < LARGE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_port_evicts_the_oldest_idle_connection_and_answers_probes() {
    let port = Port::open(limited(Limits { connections: 32, ..Limits::default() })).await;
    let mut first = port.connect().await;
    first.write_all(head("GET", "/livez", &[]).as_bytes()).await.unwrap();
    read_one(&mut first, "ok\n").await;
    let mut idle = Vec::new();
    for _ in 0..2000 {
        idle.push(port.connect().await);
        if idle.len() % 100 == 0 {
            assert!(port.get("/livez").await.ends_with("ok\n"));
        }
    }
    assert_eq!(read_rest(&mut first).await, "", "the idle connection was closed");
    assert_eq!(read_rest(&mut idle[0]).await, "");
    let mut last = idle.pop().unwrap();
    last.write_all(head("GET", "/readyz", &["Connection: close"]).as_bytes()).await.unwrap();
    assert!(read_rest(&mut last).await.starts_with("HTTP/1.1 200 "));
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_connection_keeps_its_slot_and_the_next_waits() {
    let port = Port::open(limited(Limits { connections: 4, ..Limits::default() })).await;
    port.hold();
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = port.connect().await;
        stream.write_all(head("GET", "/readyz", &["Connection: close"]).as_bytes()).await.unwrap();
        busy.push(stream);
    }
    port.asked(4).await;
    let mut waiting = Box::pin(port.get("/livez"));
    assert!(tokio::time::timeout(SHORT, waiting.as_mut()).await.is_err(), "no slot is free");
    port.may_answer.add_permits(4);
    assert!(waiting.as_mut().await.ends_with("ok\n"));
    drop(waiting);
    for mut stream in busy {
        assert!(read_rest(&mut stream).await.starts_with("HTTP/1.1 200 "));
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_requests_and_closes_idle_connections() {
    let port = Port::open(Protection::default()).await;
    port.hold();
    let (mut silent, mut idle, mut busy) = (port.connect().await, port.connect().await, port.connect().await);
    idle.write_all(head("GET", "/livez", &[]).as_bytes()).await.unwrap();
    read_one(&mut idle, "ok\n").await;
    busy.write_all(head("GET", "/readyz", &[]).as_bytes()).await.unwrap();
    port.asked(1).await;
    drop(port.stop);
    for stream in [&mut silent, &mut idle] {
        assert_eq!(read_rest(stream).await, "");
    }
    port.may_answer.add_permits(1);
    let answer = read_rest(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    tokio::time::timeout(PATIENCE, port.serving).await.expect("the service stops").unwrap();
}

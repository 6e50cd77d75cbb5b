//! Bandwidth of a reader over real connections: what is counted, and what is refused.

use super::*;
use crate::api::kubernetes::tests::Bench;
use informer_hub_access::{ReaderLimits, ResourceMatch, Rule};
use informer_hub_types::{ClusterSelector, Groups};

const ANN: &str = "ann-0123456789abcdef";

fn protection() -> Protection {
    let all = vec![ResourceMatch::Groups(Groups::All)];
    let ann = ReaderEntry {
        name: "ann".to_owned(),
        identity: IdentityFrom::Token(token(ANN)),
        rules: vec![Rule::new(ClusterSelector::All, ["*"], all, Vec::new())],
        limits: ReaderLimits { bytes_per_second: Some(64 << 10), ..ReaderLimits::default() },
        may_change: false,
    };
    let readers = ReaderSettings { readers: vec![ann], ..ReaderSettings::default() };
    Protection { token: Some(token(TOKEN)), readers, ..Protection::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_beyond_its_bandwidth_is_refused_with_the_time_to_wait() {
    let bench = Bench::with_pods();
    let port = Port::open_with(protection(), Some(bench.api())).await;
    let get = async |path: &str, token: &str| {
        let authorization = format!("Authorization: Bearer {token}");
        port.exchange(&head("GET", path, &["Connection: close", &authorization])).await
    };
    let paths = ["/clusters/a/api/v1/namespaces/shop/pods/x", "/v1/query?resource=pods", "/v1/status"];
    let mut bytes = 0;
    for path in &paths[..2] {
        let answer = get(path, ANN).await;
        let (headers, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(headers.starts_with("HTTP/1.1 200"), "{headers}");
        // A chunked body also contains the lengths of its chunks, which do not count.
        bytes += if headers.contains("chunked") {
            body.rfind("}\n").unwrap() + 2 - body.find('{').unwrap()
        } else {
            body.len()
        };
    }
    let usage = port.access.usage();
    assert_eq!(usage.counts()["ann"].sent, bytes as u64);
    let ann = port.access.identify(&authorization(ANN), None).await.unwrap();
    usage.bandwidth(&ann).unwrap().take(1 << 20);
    for path in paths {
        let answer = get(path, ANN).await;
        let (headers, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(headers.starts_with("HTTP/1.1 429"), "{path}: {answer}");
        let seconds = headers.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
        let seconds: u32 = seconds.parse().unwrap();
        assert!((10..=15).contains(&seconds), "{seconds}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        if path.starts_with("/clusters/") {
            assert_eq!(
                (&body["reason"], &body["details"]["retryAfterSeconds"]),
                (&"TooManyRequests".into(), &seconds.into())
            );
        } else {
            assert_eq!(body["error"], "too many bytes per second, please try again later");
        }
    }
    assert_eq!(usage.counts()["ann"].refused[&Limit::BytesPerSecond], 3);
    assert!(get(paths[1], TOKEN).await.starts_with("HTTP/1.1 200"), "others are not affected");
    assert!(get("/readyz", ANN).await.starts_with("HTTP/1.1 200"), "nor are probes");
    assert!(usage.delay("ann") > Duration::from_secs(5) && !usage.counts().contains_key("informer-hub:administrator"));
    port.end().await;
}

fn authorization(token: &str) -> axum::http::HeaderMap {
    let value = format!("Bearer {token}").parse().unwrap();
    [(axum::http::header::AUTHORIZATION, value)].into_iter().collect()
}

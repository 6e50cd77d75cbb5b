//! Tests of the example receivers in `examples/receivers`, with a running hub and with forged requests.
//!
//! The Rust receiver is compiled into this test. Those in Python and Go are ignored unless `make test-real`
//! runs them, since they need those languages (`docs/webhooks.md` has the versions).
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod hub;
mod requests;
mod running;
#[path = "../../examples/receivers/rust/main.rs"]
#[allow(dead_code, reason = "an example is a program: main is not used")]
mod rust;
#[path = "../run/wait.rs"]
mod wait;

use hub::Hub;
use requests::{Sender, event};
use running::Running;

/// The current and the previous signing key, as during a key rotation.
const NEW: &str = "whsec_cmVjZWl2ZXJzLXRlc3RzLXRoZS1uZXcta2V5";
const OLD: &str = "whsec_cmVjZWl2ZXJzLXRlc3RzLXRoZS1vbGQta2V5";
const FOREIGN: &str = "whsec_cmVjZWl2ZXJzLXRlc3RzLWFub3RoZXItb25l";

/// Verifies the behaviour that every example receiver must have.
async fn verify_receiver(receiver: Running) {
    let hub = Hub::start(&receiver.url, NEW);
    let line = |subject| format!("io.informer-hub.resource.added.v1 /clusters/c0 {subject}");
    let mut expected: Vec<_> = hub.subjects().into_iter().map(line).collect();
    receiver.has_printed(expected.len(), "the hub's events").await;
    let mut lines = receiver.lines();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected, "each object once");
    hub.has_delivered(expected.len()).await;
    drop(hub);

    let sender = Sender::to(&receiver.url);
    let before = lines.len();
    let (first, second, third) = (event("first"), event("second"), event("third"));
    for (what, request, answer) in [
        ("an event", sender.signed(NEW, &first), 204),
        ("a repeated event", sender.signed(NEW, &first), 204),
        ("a batch with a repetition", sender.signed(OLD, &format!("[{first},{second}]")), 204),
        ("two signatures, one valid", sender.signed(&format!("{FOREIGN} {NEW}"), &second), 204),
        ("a foreign key", sender.signed(FOREIGN, &third), 401),
        ("a changed body", sender.signed(NEW, &third).with_body(&third.replace("third", "thind")), 401),
        ("a changed id", sender.signed(NEW, &third).with_header("webhook-id", "another"), 401),
        ("an old timestamp", sender.signed_at(-600, NEW, &third), 401),
        ("a future timestamp", sender.signed_at(600, NEW, &third), 401),
        ("an old signature with a new timestamp", sender.signed_at(-600, NEW, &third).with_current_time(), 401),
        ("an invalid timestamp", sender.signed(NEW, &third).with_header("webhook-timestamp", "soon"), 401),
        ("an invalid signature header", sender.signed(NEW, &third).with_header("webhook-signature", "v1,é v2 v1"), 401),
        ("no signature", sender.signed(NEW, &third).without_header("webhook-signature"), 401),
        ("not JSON", sender.signed(NEW, "hello"), 400),
        ("an event without an id", sender.signed(NEW, "[{}]"), 400),
        ("no events", sender.signed(NEW, "[]"), 204),
    ] {
        assert_eq!(request.send().await, answer, "{what}");
    }
    assert_eq!(sender.signed(NEW, &event("last")).send().await, 204);
    receiver.has_printed(before + 3, "the last event").await;
    let later: Vec<_> =
        receiver.lines()[before..].iter().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(later, ["first", "second", "last"], "each accepted event once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_receiver_accepts_signed_events_once() {
    verify_receiver(Running::rust(&format!("{OLD} {NEW}")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Python"]
async fn python_receiver_accepts_signed_events_once() {
    verify_receiver(Running::python(&format!("{OLD} {NEW}")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go"]
async fn go_receiver_accepts_signed_events_once() {
    verify_receiver(Running::go(&format!("{OLD} {NEW}")).await).await;
}

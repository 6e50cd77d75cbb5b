//! The receivers of `examples/receivers`, each for real: before a hub, and before requests that nobody should believe.
//!
//! The one in Rust is compiled into this. Those in Python and Go need these, as `docs/webhooks.md` says, and are tested
//! with the feature `real-tests`.
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

/// What the hub signs with, and the one before it, while a key is being replaced.
const NEW: &str = "whsec_cmVjZWl2ZXJzLXRlc3RzLXRoZS1uZXcta2V5";
const OLD: &str = "whsec_cmVjZWl2ZXJzLXRlc3RzLXRoZS1vbGQta2V5";
const FOREIGN: &str = "whsec_cmVjZWl2ZXJzLXRlc3RzLWFub3RoZXItb25l";

/// What every receiver does.
async fn is_a_receiver(receiver: Running) {
    let hub = Hub::start(&receiver.url, NEW);
    let line = |subject| format!("io.informer-hub.resource.added.v1 /clusters/c0 {subject}");
    let mut told: Vec<_> = hub.subjects().into_iter().map(line).collect();
    receiver.has_told(told.len(), "the hub's events").await;
    let mut lines = receiver.lines();
    lines.sort();
    told.sort();
    assert_eq!(lines, told, "each object once");
    hub.has_delivered(told.len()).await;
    drop(hub);

    let sender = Sender::to(&receiver.url);
    let before = lines.len();
    let (first, second, third) = (event("first"), event("second"), event("third"));
    for (what, request, answer) in [
        ("an event", sender.signed(NEW, &first), 204),
        ("the same once more", sender.signed(NEW, &first), 204),
        ("a batch with a repetition", sender.signed(OLD, &format!("[{first},{second}]")), 204),
        ("two signatures, of which one is right", sender.signed(&format!("{FOREIGN} {NEW}"), &second), 204),
        ("another's key", sender.signed(FOREIGN, &third), 401),
        ("a changed body", sender.signed(NEW, &third).with_body(&third.replace("third", "thind")), 401),
        ("a changed id", sender.signed(NEW, &third).with_header("webhook-id", "another"), 401),
        ("ten minutes old", sender.signed_at(-600, NEW, &third), 401),
        ("from the future", sender.signed_at(600, NEW, &third), 401),
        ("an old one with a new time", sender.signed_at(-600, NEW, &third).of_now(), 401),
        ("a time that is none", sender.signed(NEW, &third).with_header("webhook-timestamp", "soon"), 401),
        ("a signature that is none", sender.signed(NEW, &third).with_header("webhook-signature", "v1,é v2 v1"), 401),
        ("not signed", sender.signed(NEW, &third).without_header("webhook-signature"), 401),
        ("not JSON", sender.signed(NEW, "hello"), 400),
        ("an event without an id", sender.signed(NEW, "[{}]"), 400),
        ("no events", sender.signed(NEW, "[]"), 204),
    ] {
        assert_eq!(request.send().await, answer, "{what}");
    }
    assert_eq!(sender.signed(NEW, &event("last")).send().await, 204);
    receiver.has_told(before + 3, "the last event").await;
    let later: Vec<_> =
        receiver.lines()[before..].iter().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(later, ["first", "second", "last"], "each once, and nothing else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_in_rust_believes_what_is_signed_and_drops_repetitions() {
    is_a_receiver(Running::rust(&format!("{OLD} {NEW}")).await).await;
}

#[cfg(feature = "real-tests")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_in_python_believes_what_is_signed_and_drops_repetitions() {
    is_a_receiver(Running::python(&format!("{OLD} {NEW}")).await).await;
}

#[cfg(feature = "real-tests")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_in_go_believes_what_is_signed_and_drops_repetitions() {
    is_a_receiver(Running::go(&format!("{OLD} {NEW}")).await).await;
}

//! `[sinks.<name>]`: four shapes, one for each type.

use serde_json::{Value, json};

use super::node::{
    bytes, choice, default, duration, human, list, node, pattern, secret, size, table, text, truth, whole,
};
use super::{URL, namespaces, paths, selector};
use crate::sinks::{BATCH_WAIT, BYTES_PER_BATCH, EVENTS_PER_BATCH, FILES, GIVE_UP, RATE, REFUSED, RETRY_DELAY};
use crate::transports::{CONCURRENCY, FILE_SIZE, KEEP, SECRET_WORDS, TIMEOUT};
use crate::{BatchConfig, RetryConfig, WebhookConfig};
use informer_hub_types::StoreLimits;

/// Addresses of NATS servers, separated by commas, without a user.
const NATS_URLS: &str = "^\\s*(nats|tls)://[^/?#@,\\s]+/?\\s*(,\\s*(nats|tls)://[^/?#@,\\s]+/?\\s*)*$";

pub(super) fn sink() -> Value {
    node("Who is told of changes, and how.", json!({ "oneOf": [webhook(), nats(), file(), stdout()] }))
}

/// A shape: what all sinks have, and what this one has besides.
fn shape(name: &str, description: &str, required: &[&str], own: Vec<(&str, Value)>) -> Value {
    let kind = node("What it is.", json!({ "const": name }));
    let mut shape = table(description, [vec![("type", kind)], common(), own].concat());
    shape["required"] = json!([&["type"], required].concat());
    shape["dependentRequired"] = json!({ "on_filter_error": ["filter"] });
    shape
}

fn common() -> Vec<(&'static str, Value)> {
    let limits = StoreLimits::default();
    vec![
        ("match", select()),
        ("filter", text("A CEL expression over object, oldObject, cluster and event. Unset: everything.")),
        (
            "on_filter_error",
            default(choice("What becomes of an event that the filter fails for.", &["deliver", "drop"]), "deliver"),
        ),
        ("changed", paths("Updates only if one of these paths changed. Unset: all.", true)),
        ("initial", default(choice("What was there before the hub.", &["skip", "replay"]), "skip")),
        ("include_old", default(truth("Whether an update carries the object as it was before."), true)),
        ("redact", paths("What does not leave the process, besides the values of Secrets.", false)),
        ("rate_limit", rate_limit()),
        ("journal_limit", default(size("What its journal may take on disk.", &FILES), bytes(limits.journal))),
        ("dead_letter_limit", default(size("What its dead letters may take on disk.", &FILES), bytes(limits.letters))),
        ("batch", batch()),
        ("retry", retry()),
        ("format", default(choice("The form of the events.", &["cloudevents", "json"]), "cloudevents")),
    ]
}

fn select() -> Value {
    let names = json!({ "type": "string", "pattern": "\\S" });
    let events = json!({ "enum": ["added", "updated", "deleted", "synced"] });
    let mut resources = list("Keys of [resources]. Unset: all.", 1, &names);
    let mut events = default(list("Which events.", 1, &events), json!(["added", "updated", "deleted"]));
    for list in [&mut resources, &mut events] {
        list["uniqueItems"] = json!(true);
    }
    let select = vec![
        ("resources", resources),
        ("clusters", selector("Names, or labels that they have. Unset: all.")),
        ("namespaces", namespaces("Unset: all.")),
        ("events", events),
    ];
    default(table("Which notifications.", select), json!({}))
}

fn rate_limit() -> Value {
    let mut limit = table(
        "How many events may go. Unset: no limit.",
        vec![
            ("events_per_second", whole("In the long run.", &RATE)),
            ("burst", whole("At once after a pause. Unset: those of one second.", &RATE)),
        ],
    );
    limit["required"] = json!(["events_per_second"]);
    limit
}

fn batch() -> Value {
    let is = BatchConfig::default();
    let batch = vec![
        ("max_events", default(whole("Events per message.", &EVENTS_PER_BATCH), is.max_events)),
        (
            "max_bytes",
            default(
                size("Bytes per message; a larger event goes alone.", &BYTES_PER_BATCH),
                bytes(is.max_bytes as u64),
            ),
        ),
        ("max_wait", default(duration("How long the first event waits for more.", &BATCH_WAIT), human(is.max_wait))),
    ];
    default(table("How events are put together.", batch), json!({}))
}

fn retry() -> Value {
    const REFUSED_FOR: &str = "How long an event that the receiver refuses is tried, while others go on.";
    let is = RetryConfig::default();
    let retry = vec![
        ("first", default(duration("First delay; it doubles.", &RETRY_DELAY), human(is.first))),
        ("max", default(duration("Longest delay.", &RETRY_DELAY), human(is.max))),
        ("give_up_after", default(duration("How long a batch is tried.", &GIVE_UP), human(is.give_up_after))),
        ("refused_for", default(duration(REFUSED_FOR, &REFUSED), human(is.refused_for))),
    ];
    default(table("What happens when a delivery fails.", retry), json!({}))
}

/// Keys of what is reached over the network.
fn network() -> Vec<(&'static str, Value)> {
    let is = WebhookConfig::default();
    vec![
        ("timeout", default(duration("One attempt.", &TIMEOUT), human(is.timeout))),
        ("concurrency", default(whole("Attempts in flight.", &CONCURRENCY), is.concurrency)),
        ("ca_file", text("PEM file with the receiver's CA. Unset: the system's.")),
        ("client_cert_file", text("PEM file with the certificate that the receiver is shown.")),
        ("client_key_file", text("PEM file with its key.")),
    ]
}

fn webhook() -> Value {
    let own = vec![
        ("url", pattern("Where to POST.", URL)),
        ("signing_secret", secret("Key of the Standard Webhooks signature. Unset: not signed.")),
        ("compression", choice("How bodies are compressed. Unset: not at all.", &["gzip", "zstd"])),
        ("headers", headers()),
        ("template", text("A template of your own for one event, in Jinja's language.")),
        ("template_file", text("The same in a file.")),
        ("content_type", default(pattern("The media type of what the template makes.", "/"), "application/json")),
        ("preset", choice("A message for people.", &["slack", "teams", "discord"])),
    ];
    let mut webhook = shape("webhook", "A webhook.", &["url"], [own, network()].concat());
    webhook["dependentRequired"] = json!({
        "on_filter_error": ["filter"],
        "client_cert_file": ["client_key_file"], "client_key_file": ["client_cert_file"],
    });
    let given = |key: &str| json!({ "required": [key] });
    let template = json!({ "anyOf": [given("template"), given("template_file")] });
    webhook["dependentSchemas"] = json!({
        "content_type": template, "client_cert_file": { "properties": { "url": { "pattern": "^https:" } } },
    });
    let forms = ["format", "template", "template_file", "preset"].map(given);
    let none = json!({ "not": { "anyOf": forms } });
    webhook["oneOf"] = json!([none, forms[0], forms[1], forms[2], forms[3]]);
    webhook["if"] = json!({ "anyOf": [forms[1], forms[2], forms[3]] });
    webhook["then"] = json!({ "properties": { "batch": { "properties": { "max_events": { "maximum": 1 } } } } });
    webhook
}

fn headers() -> Value {
    // Names of headers have no case, and patterns of JSON Schema no way to say so.
    let either = |c: char| {
        if c.is_ascii_alphabetic() { format!("[{c}{}]", c.to_ascii_uppercase()) } else { c.to_string() }
    };
    let words: Vec<String> = SECRET_WORDS.iter().map(|word| word.chars().map(either).collect()).collect();
    let hidden = secret("A header whose value gives access to something.");
    let plain = json!({ "anyOf": [{ "type": "string" }, hidden] });
    let empty_or_hidden = json!({ "anyOf": [{ "const": "" }, hidden] });
    let all = json!({
        "type": "object", "patternProperties": { words.join("|"): empty_or_hidden }, "additionalProperties": plain,
    });
    node("Headers that go with each request.", all)
}

fn nats() -> Value {
    let subject = "k8s.{cluster}.{resource}.{namespace}.{name}";
    let own = vec![
        ("url", pattern("Servers of one cluster, separated by commas.", NATS_URLS)),
        ("subject", default(text("The pattern of subjects."), subject)),
        ("stream", pattern("The stream that must take the events.", "^[^\\s.*>/\\\\]+$")),
        ("creds_file", text("File with the JWT and the key of the hub.")),
        ("token", secret("The hub's token.")),
        ("user", text("The hub's name.")),
        ("password", secret("Its password.")),
        ("nkey", secret("The seed of the hub's key.")),
    ];
    let mut nats = shape("nats", "A stream of NATS JetStream.", &["url"], [own, network()].concat());
    nats["dependentRequired"] = json!({
        "on_filter_error": ["filter"], "user": ["password"], "password": ["user"],
        "client_cert_file": ["client_key_file"], "client_key_file": ["client_cert_file"],
    });
    let ways = ["creds_file", "token", "user", "nkey"].map(|key| json!({ "required": [key] }));
    let none = json!({ "not": { "anyOf": ways } });
    nats["oneOf"] = json!([none, ways[0], ways[1], ways[2], ways[3]]);
    nats
}

fn file() -> Value {
    let own = vec![
        ("path", text("The file.")),
        ("max_size", default(size("Bytes at which a new file is begun.", &FILE_SIZE), bytes(100 << 20))),
        ("keep", default(whole("Full files that are kept.", &KEEP), 5)),
        ("fsync", default(truth("Whether an event is acknowledged only when it is on disk."), true)),
    ];
    shape("file", "A file with a line for each event.", &["path"], own)
}

fn stdout() -> Value {
    shape("stdout", "The standard output, a line for each event.", &[], Vec::new())
}

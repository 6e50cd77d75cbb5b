//! Schema of `[sinks.<name>]`, with one form per type.

use serde_json::{Value, json};

use super::node::{
    boolean, bytes, choice, default, duration, human, list, node, pattern, secret, size, table, text, whole,
};
use super::{URL, namespaces, paths, selector};
use crate::sinks::{
    BATCH_WAIT, BYTES_PER_BATCH, EVENTS_PER_BATCH, FILES, GIVE_UP, PARTITIONS, RATE, REFUSED, RETRY_DELAY,
};
use crate::transports::{CONCURRENCY, FILE_SIZE, KEEP, SECRET_WORDS, TIMEOUT};
use crate::{BatchConfig, RetryConfig, WebhookConfig};
use informer_hub_types::StoreLimits;

/// Pattern of comma-separated addresses of NATS servers, without a user.
const NATS_URLS: &str = "^\\s*(nats|tls)://[^/?#@,\\s]+/?\\s*(,\\s*(nats|tls)://[^/?#@,\\s]+/?\\s*)*$";

pub(super) fn sink() -> Value {
    node("Receiver of changes.", json!({ "oneOf": [webhook(), nats(), file(), stdout()] }))
}

/// Builds the schema of one type of sink: the keys of all sinks and its own.
fn shape(name: &str, description: &str, required: &[&str], own: Vec<(&str, Value)>) -> Value {
    let kind = node("Type of the sink.", json!({ "const": name }));
    let mut shape = table(description, [vec![("type", kind)], common(), own].concat());
    shape["required"] = json!([&["type"], required].concat());
    shape["dependentRequired"] = json!({ "on_filter_error": ["filter"] });
    shape
}

fn common() -> Vec<(&'static str, Value)> {
    let limits = StoreLimits::default();
    vec![
        ("match", select()),
        ("filter", text("CEL expression over object, oldObject, cluster and event. Unset: everything.")),
        (
            "on_filter_error",
            default(choice("What happens to an event for which the filter fails.", &["deliver", "drop"]), "deliver"),
        ),
        ("changed", paths("Delivers updates only if a value at one of these paths changed. Unset: all.", true)),
        ("initial", default(choice("Whether objects that already exist are delivered.", &["skip", "replay"]), "skip")),
        ("include_old", default(boolean("Whether an update includes the previous object."), true)),
        ("redact", paths("Paths whose values are redacted, besides the values of Secrets.", false)),
        ("rate_limit", rate_limit()),
        ("journal_limit", default(size("Maximum size of its journal on disk.", &FILES), bytes(limits.journal))),
        (
            "dead_letter_limit",
            default(size("Maximum size of its dead letters on disk.", &FILES), bytes(limits.letters)),
        ),
        ("batch", batch()),
        ("retry", retry()),
        ("format", default(choice("Format of the events.", &["cloudevents", "json"]), "cloudevents")),
    ]
}

fn select() -> Value {
    let names = json!({ "type": "string", "pattern": "\\S" });
    let events = json!({ "enum": ["added", "updated", "deleted", "synced"] });
    let mut resources = list("Keys of [resources]. Unset: all.", 1, &names);
    let mut events = default(list("Selected event types.", 1, &events), json!(["added", "updated", "deleted"]));
    for list in [&mut resources, &mut events] {
        list["uniqueItems"] = json!(true);
    }
    let select = vec![
        ("resources", resources),
        ("clusters", selector("Selected clusters, by name or by label. Unset: all.")),
        ("namespaces", namespaces("Selected namespaces. Unset: all.")),
        ("events", events),
    ];
    default(table("Selected notifications.", select), json!({}))
}

fn rate_limit() -> Value {
    let mut limit = table(
        "Rate limit of deliveries. Unset: no limit.",
        vec![
            ("events_per_second", whole("Long-term rate.", &RATE)),
            ("burst", whole("Events sent at once after a pause. Unset: the events of one second.", &RATE)),
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
                size("Bytes per message; a larger event is sent alone.", &BYTES_PER_BATCH),
                bytes(is.max_bytes as u64),
            ),
        ),
        (
            "max_wait",
            default(duration("How long the first event of a batch waits for more.", &BATCH_WAIT), human(is.max_wait)),
        ),
    ];
    default(table("Batch limits.", batch), json!({}))
}

fn retry() -> Value {
    const REFUSED_FOR: &str = "How long an event that the receiver refuses is retried, while others are delivered.";
    let is = RetryConfig::default();
    let retry = vec![
        ("first", default(duration("First delay between attempts; it doubles.", &RETRY_DELAY), human(is.first))),
        ("max", default(duration("Longest delay between attempts.", &RETRY_DELAY), human(is.max))),
        ("give_up_after", default(duration("How long a batch is retried.", &GIVE_UP), human(is.give_up_after))),
        ("refused_for", default(duration(REFUSED_FOR, &REFUSED), human(is.refused_for))),
    ];
    default(table("Delays and limits of retries.", retry), json!({}))
}

/// Returns the keys of sinks that are reached over the network, with their schemas.
fn network() -> Vec<(&'static str, Value)> {
    let is = WebhookConfig::new("");
    vec![
        (
            "timeout",
            default(
                duration("Time limit of one attempt; of a webhook, up to the head of the answer.", &TIMEOUT),
                human(is.timeout),
            ),
        ),
        ("concurrency", default(whole("Maximum number of attempts in flight.", &CONCURRENCY), is.concurrency)),
        (
            "partitions",
            default(whole("Number of parts of the objects, each delivered as a sink of its own.", &PARTITIONS), 1),
        ),
        ("ca_file", text("PEM file with the receiver's CA. Unset: the system's.")),
        ("client_cert_file", text("PEM file with the client certificate.")),
        ("client_key_file", text("PEM file with the key of the client certificate.")),
    ]
}

fn webhook() -> Value {
    let own = vec![
        ("url", pattern("Address for the POST.", URL)),
        ("signing_secret", secret("Key of the Standard Webhooks signature. Unset: unsigned.")),
        ("compression", choice("Compression of bodies. Unset: none.", &["gzip", "zstd"])),
        ("headers", headers()),
        ("template", text("Jinja template for one event.")),
        ("template_file", text("File with a Jinja template for one event.")),
        ("content_type", default(pattern("Media type of the template's output.", "/"), "application/json")),
        ("preset", choice("Chat message format.", &["slack", "teams", "discord"])),
    ];
    let mut webhook = shape("webhook", "Webhook.", &["url"], [own, network()].concat());
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
    // Header names are case-insensitive, which JSON Schema patterns cannot express.
    let either = |c: char| {
        if c.is_ascii_alphabetic() { format!("[{c}{}]", c.to_ascii_uppercase()) } else { c.to_string() }
    };
    let words: Vec<String> = SECRET_WORDS.iter().map(|word| word.chars().map(either).collect()).collect();
    let hidden = secret("Header with a secret value.");
    let plain = json!({ "anyOf": [{ "type": "string" }, hidden] });
    let empty_or_hidden = json!({ "anyOf": [{ "const": "" }, hidden] });
    let all = json!({
        "type": "object", "patternProperties": { words.join("|"): empty_or_hidden }, "additionalProperties": plain,
    });
    node("Additional headers of each request.", all)
}

fn nats() -> Value {
    let subject = "k8s.{cluster}.{resource}.{namespace}.{name}";
    let own = vec![
        ("url", pattern("Servers of one NATS cluster, separated by commas.", NATS_URLS)),
        ("subject", default(text("Subject pattern."), subject)),
        ("stream", pattern("Required stream. Unset: the stream that listens to the subject.", "^[^\\s.*>/\\\\]+$")),
        ("creds_file", text("File with the hub's JWT and key.")),
        ("token", secret("The hub's token.")),
        ("user", text("User name of the hub.")),
        ("password", secret("Password of the user.")),
        ("nkey", secret("Seed of the hub's NKey.")),
    ];
    let mut nats = shape("nats", "NATS JetStream.", &["url"], [own, network()].concat());
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
        ("path", text("Path of the file.")),
        ("max_size", default(size("Size at which the file is rotated.", &FILE_SIZE), bytes(100 << 20))),
        ("keep", default(whole("Number of rotated files to keep.", &KEEP), 5)),
        ("fsync", default(boolean("Whether an event is synced to disk before it is acknowledged."), true)),
    ];
    shape("file", "File with one line per event.", &["path"], own)
}

fn stdout() -> Value {
    shape("stdout", "Standard output with one line per event.", &[], Vec::new())
}

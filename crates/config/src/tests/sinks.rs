//! Tests of sinks: transports, formats, batches and retries.

use super::*;

/// Like [`only_in_sink`], but `lines` are all lines of the sink after its header, counted from 1.
#[track_caller]
fn only_in(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}[sinks.audit]\n{lines}"), line + 5, words);
}

fn sink(lines: &str) -> SinkConfig {
    Config::from_toml(&format!("{BASE}[sinks.audit]\n{lines}"))
        .unwrap_or_else(|errors| panic!("{errors}"))
        .sinks
        .remove(0)
}

#[test]
fn sinks_are_checked() {
    let bare = format!("{BASE}[sinks.audit]\n");
    let found = problems(&bare);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("write type = \"webhook\"") && found[1].contains("write url = "), "{found:?}");
    only(
        &format!("{BASE}{}", SINK.replace("webhook", "kafka")),
        6,
        "there is no type of sink \"kafka\"; known: webhook, nats, file, stdout",
    );
    only(&format!("{BASE}{}", SINK.replace("https://", "https://u:hunter2@")), 7, "does not belong in the address");
    only(&format!("{BASE}{}", SINK.replace("url", "uri")), 7, "uri: unknown key; did you mean \"url\"?");
    only_in_sink("initial = \"skipp\"\n", 1, "there is no choice \"skipp\"; did you mean \"skip\"?");
    only_in_sink("timeout = \"1ms\"\n", 1, "1ms is out of range: from 100ms to 5m");
    only_in_sink("concurrency = 0\n", 1, "expected a whole number from 1 to 256, found 0");
    only_in_sink("concurrency = 1.5\n", 1, "expected a whole number from 1 to 256, found 1.5");
    only_in_sink("filter = \" \"\n", 1, "is empty");
    only_in_sink("batches = {}\n", 1, "unknown key; did you mean \"batch\"?");
    only(&format!("{BASE}{}", SINK.replace("sinks.audit", "sinks.\"a b\"")), 5, "is not a valid sink name");
}

#[test]
fn sink_formats_and_limits_are_checked() {
    let both = "filter = \"true\"\non_filter_error = \"dropp\"\n";
    only_in_sink(both, 2, "there is no choice \"dropp\"; did you mean \"drop\"?");
    only_in_sink("on_filter_error = \"drop\"\n", 1, "requires filter, which is missing");
    only_in_sink("include_old = \"no\"\n", 1, "expected true or false");
    only_in_sink("redact = [\"spec\", \"a b\"]\n", 1, "redact[1]: \"a b\" is not a path");
    only_in_sink("redact = [\"metadata.name\"]\n", 1, "identifies the object and cannot be redacted");
    only_in_sink("rate_limit = { burst = 3 }\n", 1, "has no events_per_second; write { events_per_second");
    only_in_sink("rate_limit = { events_per_secnd = 3 }\n", 1, "did you mean \"events_per_second\"?");
    only_in_sink("rate_limit = { events_per_second = 0 }\n", 1, "expected a whole number from 1 to 1000000, found 0");
    only_in_sink("format = \"cloudevent\"\n", 1, "there is no format \"cloudevent\"; did you mean \"cloudevents\"?");
    let both = "type = \"webhook\"\nurl = \"https://x\"\nformat = \"json\"\npreset = \"slack\"\n";
    only_in(both, 0, "sinks.audit: has format and preset; keep one of them");
    only_in_sink("preset = \"slak\"\n", 1, "there is no preset \"slak\"; did you mean \"slack\"?");
    only_in_sink("preset = \"slack\"\nbatch = { max_events = 2 }\n", 2, "sends one event at a time; remove the key");
    only_in_sink("content_type = \"text/plain\"\n", 1, "requires template, which is missing");
    only_in_sink("template = \"x\"\ncontent_type = \"text\"\n", 2, "is not a media type");
    only_in_sink("template_file = \"nowhere\"\n", 1, "there is no such file");
    let slack = sink("type = \"webhook\"\nurl = \"https://x\"\npreset = \"slack\"\n");
    assert_eq!((slack.body, slack.batch.max_events), (BodyConfig::Preset(Preset::Slack), 1));
    let limited =
        sink("type = \"stdout\"\nrate_limit = { events_per_second = 7 }\nredact = [\"spec\"]\ninclude_old = false\n");
    let limit = limited.rate_limit.unwrap();
    assert_eq!((limit.events_per_second.get(), limit.burst.get()), (7, 7));
    assert_eq!((limited.redact.len(), limited.include_old), (1, false));
}

#[test]
fn webhook_keys_are_checked() {
    only_in_sink("compression = \"gz\"\n", 1, "there is no compression \"gz\"; known: gzip, zstd");
    only_in_sink("client_cert_file = \"Cargo.toml\"\n", 1, "needs its key; write client_key_file");
    only_in_sink("client_key_file = \"Cargo.toml\"\n", 1, "needs its certificate; write client_cert_file");
    only_in_sink("client_cert_file = \"Cargo.toml\"\nclient_key_fil = \"a\"\n", 2, "did you mean \"client_key_file\"?");
    let plain =
        "type = \"webhook\"\nurl = \"http://x\"\nclient_cert_file = \"Cargo.toml\"\nclient_key_file = \"Cargo.toml\"\n";
    only_in(plain, 3, "has no effect if url is http");
    only_in_sink("headers = { x-api-key = \"hunter2\" }\n", 1, "headers.x-api-key: a secret does not belong");
    only_in_sink("headers = { Authorization = \"Bearer hunter2\" }\n", 1, "a secret does not belong");
    only_in_sink("headers = { x-a = 1 }\n", 1, "expected a text or { env = \"NAME\" }, found a number");
    only_in_sink("headers = { x-a = \"1\", X-A = \"2\" }\n", 1, "is duplicated");
    let misspelt = problems(&format!("{BASE}{SINK}headers = {{ x-api-key = {{ enf = \"A\" }} }}\n")).concat();
    assert!(misspelt.contains("headers.x-api-key.enf: unknown key; did you mean \"env\"?"), "{misspelt}");
    let found =
        sink("type = \"webhook\"\nurl = \"https://x\"\nheaders = { x-api-key = { env = \"K\" }, x-team = \"a\" }\n");
    let TransportConfig::Webhook(webhook) = found.transport else { panic!("another type") };
    let values: Vec<_> = webhook.headers.into_iter().map(|header| header.value).collect();
    assert_eq!(values, [HeaderText::Secret(Secret::Env("K".into())), HeaderText::Plain("a".into())]);
}

#[test]
fn nats_keys_are_checked() {
    let nats = |lines: &str| format!("type = \"nats\"\nurl = \"nats://a, tls://b:4222\"\n{lines}");
    let only =
        |lines: &str, line: usize, words: &str| only_in(&nats(lines), if line == 0 { 0 } else { line + 2 }, words);
    only_in("type = \"nats\"\n", 0, "has no url; write url = \"nats://");
    only_in("type = \"nats\"\nurl = \"https://a\"\n", 2, "the address does not begin with nats:// or tls://");
    only_in("type = \"nats\"\nurl = \"nats://u:hunter2@a\"\n", 2, "use creds_file, token, user or nkey");
    only_in("type = \"natss\"\nurl = \"nats://a\"\n", 1, "did you mean \"nats\"?");
    only("user = \"u\"\n", 1, "needs a password");
    only("password = { env = \"P\" }\n", 1, "requires user, which is missing");
    only("token = \"hunter2\"\n", 1, "a secret does not belong in the configuration");
    only("token = { env = \"T\" }\nnkey = { env = \"N\" }\n", 0, "has token and nkey; keep one of them");
    only("stream = \"a.b\"\n", 1, "is not the name of a stream");
    only("signing_secret = { env = \"S\" }\n", 1, "unknown key");
    let found = sink(&nats("user = \"u\"\npassword = { env = \"P\" }\n"));
    assert_eq!(found.transport.concurrency(), 4);
    let TransportConfig::Nats(config) = found.transport else { panic!("another type") };
    assert_eq!(config.urls, ["nats://a", "tls://b:4222"]);
    assert_eq!(config.subject, "k8s.{cluster}.{resource}.{namespace}.{name}");
    assert!(matches!(config.auth, Some(NatsAuth::Password { .. })));
}

#[test]
fn file_keys_are_checked() {
    only_in("type = \"file\"\n", 0, "has no path; write path = \"events.jsonl\"");
    only_in("type = \"file\"\npath = \"src\"\n", 2, "src is a directory");
    only_in("type = \"file\"\npath = \"nowhere/a.jsonl\"\n", 2, "nowhere; create it first");
    only_in("type = \"file\"\npath = \"a.jsonl\"\nmax_size = 10\n", 3, "10B is out of range: from 1KiB to 1TiB");
    only_in("type = \"file\"\npath = \"a.jsonl\"\nkeep = 0\n", 3, "expected a whole number from 1 to 1000, found 0");
    only_in("type = \"file\"\npath = \"a.jsonl\"\nconcurrency = 2\n", 3, "unknown key");
    only_in("type = \"stdout\"\npath = \"a.jsonl\"\n", 2, "unknown key");
    let twice = "type = \"file\"\npath = \"a.jsonl\"\n[sinks.b]\ntype = \"file\"\npath = \"a.jsonl\"\n";
    only_in(twice, 5, "is also the path of sinks.audit; write different paths");
    let TransportConfig::File(file) = sink("type = \"file\"\npath = \"a.jsonl\"\n").transport else {
        panic!("another type")
    };
    assert_eq!((file.max_size, file.keep, file.fsync), (100 << 20, 5, true));
    assert_eq!(sink("type = \"stdout\"\n").transport.concurrency(), 1);
}

#[test]
fn output_files_are_not_shared() {
    let two = |one: &str, other: &str, problem: &str| {
        let sinks = format!(
            "type = \"file\"\npath = {one:?}\nkeep = 3\n[sinks.b]\ntype = \"file\"\npath = {other:?}\nkeep = 3\n"
        );
        match problem {
            "" => assert_eq!(problems(&format!("{BASE}[sinks.audit]\n{sinks}")), [""; 0]),
            problem => only_in(&sinks, 6, problem),
        }
    };
    let same = "is also the path of sinks.audit; write different paths";
    let absolute = std::env::current_dir().unwrap().join("a.jsonl");
    let absolute = absolute.to_str().unwrap();
    for (one, other) in [("a.jsonl", "./a.jsonl"), ("src/../a.jsonl", "a.jsonl"), ("a.jsonl", absolute)] {
        two(one, other, same);
        two(other, one, same);
    }
    for number in [1, 3] {
        two("a.jsonl", &format!("{absolute}.{number}"), "is a name to which sinks.audit rotates its file");
        two(&format!("{absolute}.{number}"), "./a.jsonl", "when rotated, would replace the file of sinks.audit");
    }
    for other in ["a.jsonl.0", "a.jsonl.01", "a.jsonl.4", "a.jsonl.1.1", "a.jsonl1", "src/a.jsonl"] {
        two("a.jsonl", other, "");
        two(other, "a.jsonl", "");
    }
}

#[test]
fn sink_does_not_share_the_file_of_the_audit_log() {
    let with_audit = |path: &str, line: usize, problem: &str| {
        let audit = "[hub.audit]\npath = \"src/../audit.log\"\nkeep = 7\n";
        only(&format!("{BASE}{audit}[sinks.a]\ntype = \"file\"\npath = {path:?}\n"), line, problem);
    };
    with_audit("./audit.log", 10, "is also the path of hub.audit; write different paths");
    with_audit("audit.log.7", 10, "is a name to which hub.audit rotates its file");
}

#[test]
fn partitions_are_sinks_of_their_own() {
    let sinks = |lines: &str| Config::from_toml(&format!("{BASE}{SINK}{lines}")).unwrap().sinks;
    let divided = sinks("partitions = 3\ninitial = \"replay\"\n");
    let names: Vec<_> = divided.iter().map(|sink| (sink.name.as_str(), sink.table())).collect();
    assert_eq!(names, [("audit-1-of-3", "audit"), ("audit-2-of-3", "audit"), ("audit-3-of-3", "audit")]);
    assert!(divided.iter().all(|sink| sink.initial == Initial::Replay && sink.partition.is_some()));
    let whole = sinks("partitions = 1\n");
    assert_eq!(
        (whole.len(), whole[0].name.as_str(), whole[0].table(), whole[0].partition),
        (1, "audit", "audit", None)
    );
    only_in_sink("partitions = 0\n", 1, "expected a whole number from 1 to 64, found 0");
    only_in_sink("partitions = 65\n", 1, "expected a whole number from 1 to 64, found 65");
    only_in("type = \"file\"\npath = \"a.jsonl\"\npartitions = 2\n", 3, "unknown key");
    let synced = "partitions = 2\nmatch = { events = [\"added\", \"synced\"] }\n";
    only_in_sink(synced, 1, "does not work with match.events = [\"synced\"]");
    let other = format!("partitions = 2\n{}", SINK.replace("audit]", "audit-2-of-2]"));
    only_in_sink(&other, 2, "has the name audit-2-of-2, as sinks.audit or one of its partitions");
    let long = SINK.replace("[sinks.audit]", &format!("[sinks.{}]", "a".repeat(60)));
    only(&format!("{BASE}{long}partitions = 2\n"), 5, "has a name of more than 63 characters");
}

#[test]
fn batches_and_retries_have_bounds() {
    only_in_sink("batch = { max_events = 10001 }\n", 1, "batch.max_events: expected a whole number from 1 to 10000");
    only_in_sink("batch = { max_bytes = 10 }\n", 1, "10B is out of range: from 1KiB to 64MiB");
    only_in_sink("batch = { max_bytes = true }\n", 1, "expected a size such as \"64MiB\", found true or false");
    only_in_sink("batch = { max_wait = \"2m\" }\n", 1, "2m is out of range: from 0s to 1m");
    only_in_sink("retry = { first = \"1ms\" }\n", 1, "1ms is out of range: from 10ms to 1d");
    only_in_sink("retry = { first = \"2s\", max = \"1s\" }\n", 1, "retry.first: 2s is longer than max, which is 1s");
    only_in_sink(
        "retry = { max = \"2m\", give_up_after = \"1m\" }\n",
        1,
        "2m is longer than give_up_after, which is 1m",
    );
    only_in_sink("retry = { first = \"2m\", give_up_after = \"1m\" }\n", 1, "2m is longer than give_up_after");
    only_in_sink("retry = { refused_for = \"2m\", give_up_after = \"1m\" }\n", 1, "2m is longer than give_up_after");
    only_in_sink("retry = { refused_for = \"31d\" }\n", 1, "31d is out of range: from 0s to 30d");
}

#[test]
fn retry_defaults_adapt_to_written_values() {
    let retry = |text: &str| {
        let config = Config::from_toml(&format!("{BASE}{SINK}retry = {{ {text} }}\n")).unwrap();
        let retry = &config.sinks[0].retry;
        [retry.first, retry.max, retry.give_up_after].map(|d| HumanDuration(d).to_string()).join(" ")
    };
    assert_eq!(retry("give_up_after = \"1m\""), "500ms 1m 1m");
    assert_eq!(retry("max = \"100ms\""), "100ms 100ms 1d");
    assert_eq!(retry("first = \"10m\""), "10m 10m 1d");
    let refused_for = |text: &str| {
        let config = Config::from_toml(&format!("{BASE}{SINK}retry = {{ {text} }}\n")).unwrap();
        let retry = &config.sinks[0].retry;
        [retry.give_up_after, retry.refused_for].map(|d| HumanDuration(d).to_string()).join(" ")
    };
    assert_eq!(refused_for("first = \"1s\""), "1d 10m");
    assert_eq!(refused_for("give_up_after = \"1m\""), "1m 1m");
    assert_eq!(refused_for("refused_for = \"0s\""), "1d 0s");
    assert_eq!(refused_for("refused_for = \"2d\""), "2d 2d");
}

#[test]
fn sink_match_must_refer_to_existing_entries() {
    only_in_sink("match = { resources = [\"pod\"] }\n", 1, "there is no [resources.pod]; did you mean \"pods\"?");
    only_in_sink("match = { resources = [\"pods\", \"pods\"] }\n", 1, "\"pods\" is in the list twice");
    only_in_sink("match = { resources = [] }\n", 1, "is empty; remove the key to select all resources");
    only_in_sink(
        "match = { events = [\"adedd\"] }\n",
        1,
        "events[0]: there is no event \"adedd\"; did you mean \"added\"?",
    );
    only_in_sink("match = { events = [] }\n", 1, "is empty; remove the key");
    only_in_sink("match = { clusters = { tier = \"dev\" } }\n", 1, "sinks.audit.match.clusters: matches no cluster");
    let elsewhere = "[clusters.two]\nserver = \"https://two\"\n[resources.nodes]\nclusters = [\"two\"]\n";
    let text = format!("{BASE}{elsewhere}{SINK}match = {{ resources = [\"nodes\"], clusters = [\"one\"] }}\n");
    only(&text, 12, "sinks.audit.match: matches nothing: none of its resources is watched in its clusters");
}

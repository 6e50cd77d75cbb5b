//! Tests that no command prints control characters of untrusted text to a terminal.
//!
//! Other outputs are tested with the same text where they are written: log lines in `telemetry`, chat messages and
//! answers of receivers in `sink`, JSON and TOML in `types::printable` and `import`.

use serde_json::{Value, json};

use super::{check, dead_letters, print, status};
use informer_hub_codec::classify_status;
use informer_hub_types::printable::hostile::{TEXT, assert_harmless};
use informer_hub_types::printable_lines;

fn status() -> Value {
    let informer =
        json!({ "resource": TEXT, "scope": TEXT, "state": "stale", "lastError": TEXT, "freshness": { "state": TEXT } });
    json!({
        "ready": false,
        "configuration": { "lastError": TEXT, "needsRestart": [TEXT] },
        "clusters": [{
            "name": TEXT, "state": "unreachable", "lastError": TEXT, "source": TEXT, "informers": [informer],
            "discovery": { "state": "polling", "lastError": TEXT },
            "patterns": [{ "name": TEXT, "pattern": TEXT, "watched": [TEXT], "leftOut": [TEXT] }],
        }],
        "clusterSources": [{ "name": TEXT, "type": TEXT, "state": "unreachable", "lastError": TEXT, "problems": [{ "object": TEXT, "problem": TEXT }] }],
        "sinks": [{ "name": TEXT, "circuitOpen": true, "lastError": TEXT, "lastDelivery": TEXT }],
    })
}

#[test]
fn tables_escape_untrusted_text() {
    let plain = status().to_string().replace(&json!(TEXT).to_string(), "\"end\"");
    let plain: Value = serde_json::from_str(&plain).unwrap();
    for (command, screen) in status::screens(&status()) {
        let own = status::screens(&plain).into_iter().find(|(plain, _)| *plain == command).unwrap().1;
        assert_harmless(command, &printable_lines(&screen, false), own.matches('\n').count());
    }
    let letter = json!({ "number": 1, "at": TEXT, "cluster": TEXT, "event": TEXT, "subject": TEXT, "attempts": 1, "error": TEXT });
    assert_harmless(
        "dead-letters list",
        &printable_lines(&dead_letters::screen(std::slice::from_ref(&letter)), false),
        1,
    );
    assert_harmless("dead-letters show", &print::json(&letter).unwrap(), 8);
    let yaml = print::yaml(&letter).unwrap();
    assert_harmless("dead-letters show -o yaml", &yaml, 9);
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), letter, "the text is unchanged");
    let (screen, own) = check::screens(TEXT);
    assert_harmless("check", &printable_lines(&screen, false), own.matches('\n').count());
}

#[test]
fn errors_escape_untrusted_text() {
    let body = json!({ "kind": "Status", "code": 403, "reason": TEXT, "message": TEXT }).to_string();
    assert_harmless("an apiserver's error", &classify_status(403, body.as_bytes(), None).message, 0);
    let error = anyhow::Error::new(std::io::Error::other(TEXT)).context(TEXT);
    let own = format!("{error:#}").matches('\n').count();
    assert_harmless("a command's error", &print::complaint(&error), own);
}

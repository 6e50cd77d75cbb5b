//! Tests of the `demo` command: its output and exit code.

use std::process::Command;

use serde_json::Value;

#[test]
fn demo_ends_with_equal_copies_and_prints_json() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    demo.args(["demo", "--duration", "2s", "--pods", "30", "--seed", "7", "-o", "json"]);
    let output = demo.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}\n{problems}", output.status);

    let summary: Value = serde_json::from_str(&text).expect("exactly one JSON document");
    assert_eq!((&summary["ok"], &summary["seed"]), (&Value::from(true), &Value::from(7)));
    let clusters = summary["clusters"].as_array().unwrap();
    assert_eq!(clusters.len(), 3);
    for cluster in clusters {
        let truth = cluster["truth"].as_u64().unwrap();
        assert!(truth >= 15, "{cluster}");
        assert_eq!((&cluster["cache"], &cluster["receiver"]), (&truth.into(), &truth.into()));
        assert_eq!(cluster["differences"], 0);
    }
    let total = |name: &str| summary["totals"][name].as_u64().unwrap();
    assert!(total("operations") > 0 && total("batches") > 0, "{summary:#}");
    assert!(total("delivered") >= 3 * 30, "{summary:#}");
    assert!(total("delivered") >= total("batches"));
    assert_eq!((total("signatureFailures"), total("violations"), total("unreadable")), (0, 0, 0));
}

#[test]
fn demo_prints_an_introduction_within_80_columns() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    demo.args(["demo", "--duration", "2s", "--pods", "30", "--seed", "7"]);
    let output = demo.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}\n{text}", output.status);
    let first = "A hub watches 3 simulated clusters and sends every change to a receiver.\n\
                 For 2s things fail on purpose, then all copies must be equal. Ctrl-C stops.\n\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.matches(" CLUSTER ").count(), 1, "one table, at the end:\n{text}");
    assert!(text.contains("\nequal: hub and receiver hold exactly") && text.contains("\nTry next:\n"), "{text}");
}

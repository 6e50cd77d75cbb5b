//! Tests of the commands `state` and `dead-letters`: output, errors, exit codes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::durable::{StoppedHub, damage, launch, stopped_with_a_failing_receiver};
use crate::receiver::{Mode, Receiver};
use crate::wait::until;

/// Output and exit code of a command.
struct Outcome {
    code: i32,
    out: String,
    err: String,
}

impl Outcome {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Returns the words of the line that starts with these words.
    fn line<'s>(&'s self, beginning: &[&str]) -> Vec<&'s str> {
        let words = |line: &'s str| line.split_whitespace().collect::<Vec<_>>();
        let found = self.out.lines().map(words).find(|words| words.starts_with(beginning));
        found.unwrap_or_else(|| panic!("no {beginning:?} in\n{}", self.out))
    }
}

fn command(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    let output = command.args(arguments).env_remove("INFORMER_HUB_URL").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Outcome { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn state(what: &str, dir: &Path, more: &[&str]) -> Outcome {
    command(&[&["state", what, "--dir", dir.to_str().unwrap()], more].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_and_verify_print_the_state_directory() {
    let StoppedHub { sim, state: dir, .. } = stopped_with_a_failing_receiver(21).await;
    for what in ["inspect", "verify"] {
        let outcome = state(what, dir.path(), &[]);
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{}", outcome.out);
        assert_eq!(outcome.out.ends_with("\nnothing is damaged or lost\n"), what == "verify");
        outcome.line(&["CACHE", "CLUSTER", "SCOPE", "OBJECTS", "VERSION", "SYNCED", "ALIVE", "BYTES", "DAMAGED"]);
        let pods = outcome.line(&["core/v1/pods", "c0"]);
        assert!(pods.contains(&"50") && pods.contains(&"true"), "{pods:?}");
        assert_eq!(outcome.line(&["core/v1/pods", "all"])[2], "50");
        outcome.line(&["READER", "LOG", "FILE", "RECORDS", "PENDING", "BYTES", "LOST", "DAMAGED"]);
        let journal = outcome.line(&["hook", "journal", "all"]);
        let numbers: Vec<u64> = journal[3..].iter().map(|number| number.parse().unwrap()).collect();
        let [records, pending, bytes, lost, damaged] = numbers[..] else { panic!("{journal:?}") };
        assert!(records >= 50 && pending == records && bytes > 0 && (lost, damaged) == (0, 0), "{journal:?}");
        outcome.line(&["hook", "dead", "letters", "all", "0", "0"]);
    }
    let json = state("verify", dir.path(), &["-o", "json"]).json();
    let caches = json["caches"].as_array().unwrap();
    let pods = caches.iter().find(|cache| cache["directory"] == "core/v1/pods").unwrap();
    assert_eq!((&pods["partitions"][0]["cluster"], &pods["partitions"][0]["objects"]), (&"c0".into(), &50.into()));
    assert_eq!((&json["readers"][0]["name"], &json["readers"][0]["journal"]["lost"]), (&"hook".into(), &0.into()));
    drop(sim);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_reported_and_fails_only_verify() {
    let StoppedHub { state: dir, .. } = stopped_with_a_failing_receiver(22).await;
    let segment = damage(&dir.path().join("sinks/hook/journal"), ".log");
    let outcome = state("verify", dir.path(), &[]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.out.contains(&format!("hook: {segment} is damaged from byte ")), "{}", outcome.out);
    assert_eq!(outcome.line(&["hook", "journal", "all"])[6], "1", "one record is lost");
    assert!(outcome.out.ends_with("\nparts are damaged or lost: see above\n"), "{}", outcome.out);
    assert_eq!(state("inspect", dir.path(), &[]).code, 0);
    damage(&dir.path().join("caches/core/v1/pods"), "snapshot-");
    let outcome = state("verify", dir.path(), &[]);
    assert!(outcome.code == 1 && outcome.out.contains("core/v1/pods: snapshot-"), "{}", outcome.out);
    let json = state("verify", dir.path(), &["-o", "json"]);
    assert_eq!((json.code, &json.json()["readers"][0]["journal"]["lost"]), (1, &1.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_clusters_are_inspected_and_verified() {
    let StoppedHub { state: dir, .. } = stopped_with_a_failing_receiver(25).await;
    let file = dir.path().join("fleet.json");
    let outcome = state("inspect", dir.path(), &[]);
    assert!(!outcome.out.contains("FOUND IN"), "no source clusters: {}", outcome.out);
    let clusters = r#"{"clusters":[{"name":"eu-1","labels":{"tier":"prod"},"source":"folder","object":"eu-1.yaml"}]}"#;
    std::fs::write(&file, clusters).unwrap();
    let outcome = state("verify", dir.path(), &[]);
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{}", outcome.out);
    outcome.line(&["CLUSTER", "LABELS", "SOURCE", "FOUND", "IN"]);
    assert_eq!(outcome.line(&["eu-1"]), ["eu-1", "tier=prod", "folder", "eu-1.yaml"]);
    let json = state("inspect", dir.path(), &["-o", "json"]).json();
    assert_eq!(json["fleet"]["clusters"][0]["name"], "eu-1");
    assert_eq!(json["fleet"]["bytes"], clusters.len());
    let yaml = state("inspect", dir.path(), &["-o", "yaml"]);
    assert!(yaml.code == 0 && yaml.out.contains("object: eu-1.yaml"), "{}", yaml.out);
    let twice = clusters.replace("}]}", r#"},{"name":"eu-1","source":"folder","object":"x"}]}"#);
    for (bytes, words) in [
        (&clusters.as_bytes()[..40], "fleet.json: cannot read the file; its clusters are listed again: EOF"),
        (&b"{}"[..], "fleet.json: cannot read the file; its clusters are listed again: missing field `clusters`"),
        (&b"\xff\x00"[..], "fleet.json: cannot read the file"),
        (twice.as_bytes(), "fleet.json: duplicate cluster eu-1"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let outcome = state("verify", dir.path(), &[]);
        assert!(outcome.code == 1 && outcome.out.contains(words), "{words}: {}", outcome.out);
        assert_eq!(state("inspect", dir.path(), &[]).code, 0);
        assert!(state("verify", dir.path(), &["-o", "json"]).json()["fleet"]["damage"].is_string());
    }
    std::fs::write(&file, clusters).unwrap();
    std::fs::write(dir.path().join("names.json"), "{").unwrap();
    let outcome = state("verify", dir.path(), &[]);
    assert!(outcome.code == 1 && outcome.out.contains("names.json: cannot read the file"), "{}", outcome.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prune_removes_a_sinks_state_only_while_no_hub_runs() {
    let StoppedHub { sim, receiver, state: dir, .. } = stopped_with_a_failing_receiver(23).await;
    let unknown = state("prune", dir.path(), &["hook", "audit"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("\"audit\" is not in ") && unknown.err.contains("known: hook"), "{}", unknown.err);
    let hub = launch(&sim, &receiver, dir.path());
    hub.ready().await;
    let in_use = state("prune", dir.path(), &["hook"]);
    assert!(in_use.code == 1 && in_use.err.contains("is in use by process"), "{}", in_use.err);
    let looked = state("inspect", dir.path(), &[]);
    assert!(looked.code == 0 && looked.err.contains("a hub uses this directory (process "), "{}", looked.err);
    drop(hub);
    let pruned = state("prune", dir.path(), &["hook"]);
    assert_eq!((pruned.code, pruned.out.as_str(), pruned.err.as_str()), (0, "hook: removed\n", ""));
    assert!(!dir.path().join("sinks/hook").exists() && dir.path().join("caches/core/v1/pods").exists());
    assert_eq!(state("verify", dir.path(), &["-o", "json"]).json()["readers"], serde_json::json!([]));
}

#[test]
fn foreign_state_directory_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, foreign, future) =
        (folder.path().join("missing"), folder.path().join("foreign"), folder.path().join("future"));
    for (dir, file, text) in [(&foreign, "notes.txt", "mine"), (&future, "FORMAT", "informer-hub state 9\n")] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }
    for what in [&["inspect"][..], &["verify"], &["prune", "hook"]] {
        for (dir, words) in [(&missing, "missing"), (&foreign, "no file FORMAT"), (&future, "has format 9")] {
            let outcome = state(what[0], dir, &what[1..]);
            assert_eq!((outcome.code, outcome.out.as_str()), (1, ""), "{what:?} {words}");
            assert!(
                outcome.err.starts_with("informer-hub: ") && outcome.err.contains(words),
                "{what:?}: {}",
                outcome.err
            );
            assert!(outcome.err.contains(dir.to_str().unwrap()) && outcome.err.lines().count() == 1, "{}", outcome.err);
        }
    }
    assert!(!missing.exists());
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);
    for wrong in [&["state"][..], &["state", "inspect"], &["state", "verify", "--dir", "x", "-o", "toml"]] {
        assert_eq!(command(wrong).code, 2, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_command_prints_a_table_and_explains_mistakes() {
    let (sim, dir) = (crate::process::sim(24, 6), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(Mode::Unprocessable);
    let hub = launch(&sim, &receiver, dir.path());
    hub.ready().await;
    let url = hub.url().await;
    let letters = |arguments: &[&str]| command(&[&["dead-letters", "--url", &url], arguments].concat());
    let list = until("dead letters of pods", async || {
        let outcome = letters(&["list", "hook", "--subject", "/v1/pods/"]);
        (outcome.code == 0 && outcome.out.lines().count() == 7).then_some(outcome)
    })
    .await;
    list.line(&["NUMBER", "GIVEN", "UP", "CLUSTER", "EVENT", "SUBJECT", "TRIES", "ERROR"]);
    let row: Vec<_> = list.out.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(
        row[0].parse::<u64>().is_ok() && row[2..4] == ["c0", "added"] && row[4].starts_with("/v1/pods/"),
        "{row:?}"
    );
    assert!(
        row[5].parse::<u32>().is_ok_and(|tries| tries > 1) && list.out.contains("receiver answered 422"),
        "{}",
        list.out
    );
    let none = letters(&["list", "hook", "--subject", "nothing of that name"]);
    assert_eq!((none.code, none.out.as_str()), (0, "no dead letters\n"));
    let purged = letters(&["purge", "hook", "--subject", row[4]]);
    assert_eq!((purged.code, purged.out.as_str()), (0, "1 deleted\n"));
    for (arguments, code, words) in [
        (&["list", "audit"][..], 1, "audit"),
        (&["show", "hook", "9999"], 1, "no dead letter with this number"),
        (&["replay", "hook"], 2, "select dead letters with a filter, or give --all"),
        (&["replay", "hook", "--all", "--error", "x"], 2, "cannot be used with"),
        (&["purge", "hook", "--before", "yesterday"], 2, "yesterday"),
        (&["show", "hook", "first"], 2, "first"),
    ] {
        let outcome = letters(arguments);
        assert!(outcome.code == code && outcome.err.contains(words), "{arguments:?}: {} {}", outcome.code, outcome.err);
    }
    drop(hub);
    let unreachable = letters(&["list", "hook"]);
    assert!(
        unreachable.code == 1 && unreachable.err.contains("nothing listens at http://127.0.0.1:"),
        "{}",
        unreachable.err
    );
}

//! `state` and `dead-letters` as an operator meets them: what they print, what they refuse, how they end.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::durable::{Ended, damage, ended_with_a_dead_receiver, launch};
use crate::receiver::{Mode, Receiver};
use crate::waiting::until;

/// What a command has printed and how it ended.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// The words of a line that begins with these.
    fn line<'s>(&'s self, beginning: &[&str]) -> Vec<&'s str> {
        let words = |line: &'s str| line.split_whitespace().collect::<Vec<_>>();
        let found = self.out.lines().map(words).find(|words| words.starts_with(beginning));
        found.unwrap_or_else(|| panic!("no {beginning:?} in\n{}", self.out))
    }
}

fn command(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    let output = command.args(arguments).env_remove("INFORMER_HUB_URL").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Said { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn state(what: &str, dir: &Path, more: &[&str]) -> Said {
    command(&[&["state", what, "--dir", dir.to_str().unwrap()], more].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hub_has_left_is_shown_in_columns_and_as_json_and_is_sound() {
    let Ended { sim, state: dir, .. } = ended_with_a_dead_receiver(21).await;
    for what in ["inspect", "verify"] {
        let said = state(what, dir.path(), &[]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
        said.line(&["CACHE", "CLUSTER", "SCOPE", "OBJECTS", "VERSION", "SYNCED", "ALIVE", "BYTES", "DAMAGED"]);
        let pods = said.line(&["core/v1/pods", "c0"]);
        assert!(pods.contains(&"50") && pods.contains(&"true"), "{pods:?}");
        assert_eq!(said.line(&["core/v1/pods", "all"])[2], "50");
        said.line(&["READER", "LOG", "FILE", "RECORDS", "PENDING", "BYTES", "LOST", "DAMAGED"]);
        let journal = said.line(&["hook", "journal", "all"]);
        let numbers: Vec<u64> = journal[3..].iter().map(|number| number.parse().unwrap()).collect();
        let [records, pending, bytes, lost, damaged] = numbers[..] else { panic!("{journal:?}") };
        assert!(records >= 50 && pending == records && bytes > 0 && (lost, damaged) == (0, 0), "{journal:?}");
        said.line(&["hook", "dead", "letters", "all", "0", "0"]);
    }
    let json = state("verify", dir.path(), &["-o", "json"]).json();
    let caches = json["caches"].as_array().unwrap();
    let pods = caches.iter().find(|cache| cache["directory"] == "core/v1/pods").unwrap();
    assert_eq!((&pods["partitions"][0]["cluster"], &pods["partitions"][0]["objects"]), (&"c0".into(), &50.into()));
    assert_eq!((&json["readers"][0]["name"], &json["readers"][0]["journal"]["lost"]), (&"hook".into(), &0.into()));
    drop(sim);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_named_and_fails_the_verification_alone() {
    let Ended { state: dir, .. } = ended_with_a_dead_receiver(22).await;
    let segment = damage(&dir.path().join("sinks/hook/journal"), ".log");
    let said = state("verify", dir.path(), &[]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains(&format!("hook: {segment} is damaged from byte ")), "{}", said.out);
    assert_eq!(said.line(&["hook", "journal", "all"])[6], "1", "one record is lost");
    assert_eq!(state("inspect", dir.path(), &[]).code, 0);
    damage(&dir.path().join("caches/core/v1/pods"), "snapshot-");
    let said = state("verify", dir.path(), &[]);
    assert!(said.code == 1 && said.out.contains("core/v1/pods: snapshot-"), "{}", said.out);
    let json = state("verify", dir.path(), &["-o", "json"]);
    assert_eq!((json.code, &json.json()["readers"][0]["journal"]["lost"]), (1, &1.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_that_sources_had_brought_are_shown_and_their_file_is_verified() {
    let Ended { state: dir, .. } = ended_with_a_dead_receiver(25).await;
    let file = dir.path().join("fleet.json");
    let said = state("inspect", dir.path(), &[]);
    assert!(!said.out.contains("FOUND IN"), "there are none: {}", said.out);
    let clusters = r#"{"clusters":[{"name":"eu-1","labels":{"tier":"prod"},"source":"folder","object":"eu-1.yaml"}]}"#;
    std::fs::write(&file, clusters).unwrap();
    let said = state("verify", dir.path(), &[]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    said.line(&["CLUSTER", "LABELS", "SOURCE", "FOUND", "IN"]);
    assert_eq!(said.line(&["eu-1"]), ["eu-1", "tier=prod", "folder", "eu-1.yaml"]);
    let json = state("inspect", dir.path(), &["-o", "json"]).json();
    assert_eq!(json["fleet"]["clusters"][0]["name"], "eu-1");
    assert_eq!(json["fleet"]["bytes"], clusters.len());
    let yaml = state("inspect", dir.path(), &["-o", "yaml"]);
    assert!(yaml.code == 0 && yaml.out.contains("object: eu-1.yaml"), "{}", yaml.out);
    let twice = clusters.replace("}]}", r#"},{"name":"eu-1","source":"folder","object":"x"}]}"#);
    for (bytes, words) in [
        (&clusters.as_bytes()[..40], "fleet.json: cannot read the file, its clusters are listed again: EOF"),
        (&b"{}"[..], "fleet.json: cannot read the file, its clusters are listed again: missing field `clusters`"),
        (&b"\xff\x00"[..], "fleet.json: cannot read the file"),
        (twice.as_bytes(), "fleet.json: duplicate cluster eu-1"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let said = state("verify", dir.path(), &[]);
        assert!(said.code == 1 && said.out.contains(words), "{words}: {}", said.out);
        assert_eq!(state("inspect", dir.path(), &[]).code, 0);
        assert!(state("verify", dir.path(), &["-o", "json"]).json()["fleet"]["damage"].is_string());
    }
    std::fs::write(&file, clusters).unwrap();
    std::fs::write(dir.path().join("names.json"), "{").unwrap();
    let said = state("verify", dir.path(), &[]);
    assert!(said.code == 1 && said.out.contains("names.json: cannot read the file"), "{}", said.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_for_a_sink_that_is_gone_is_pruned_by_name_and_only_while_no_hub_runs() {
    let Ended { sim, receiver, state: dir, .. } = ended_with_a_dead_receiver(23).await;
    let unknown = state("prune", dir.path(), &["hook", "audit"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("\"audit\" is not in ") && unknown.err.contains("there are: hook"), "{}", unknown.err);
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
fn a_directory_that_is_none_of_a_hub_is_refused_in_words_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, foreign, future) =
        (folder.path().join("missing"), folder.path().join("foreign"), folder.path().join("future"));
    for (dir, file, text) in [(&foreign, "notes.txt", "mine"), (&future, "FORMAT", "informer-hub state 9\n")] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }
    for what in [&["inspect"][..], &["verify"], &["prune", "hook"]] {
        for (dir, words) in [(&missing, "missing"), (&foreign, "no FORMAT"), (&future, "has format 9")] {
            let said = state(what[0], dir, &what[1..]);
            assert_eq!((said.code, said.out.as_str()), (1, ""), "{what:?} {words}");
            assert!(said.err.starts_with("informer-hub: ") && said.err.contains(words), "{what:?}: {}", said.err);
            assert!(said.err.contains(dir.to_str().unwrap()) && said.err.lines().count() == 1, "{}", said.err);
        }
    }
    assert!(!missing.exists());
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);
    for wrong in [&["state"][..], &["state", "inspect"], &["state", "verify", "--dir", "x", "-o", "toml"]] {
        assert_eq!(command(wrong).code, 2, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_a_table_for_people_and_mistakes_are_said_in_words() {
    let (sim, dir) = (crate::process::sim(24, 6), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(Mode::Unprocessable);
    let hub = launch(&sim, &receiver, dir.path());
    hub.ready().await;
    let url = hub.url().await;
    let letters = |arguments: &[&str]| command(&[&["dead-letters", "--url", &url], arguments].concat());
    let list = until("pods are given up", async || {
        let said = letters(&["list", "hook", "--subject", "/v1/pods/"]);
        (said.code == 0 && said.out.lines().count() == 7).then_some(said)
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
        (&["show", "hook", "9999"], 1, "no dead letter of that number"),
        (&["replay", "hook"], 1, "select dead letters with a filter, or give --all"),
        (&["replay", "hook", "--all", "--error", "x"], 2, "cannot be used with"),
        (&["purge", "hook", "--before", "yesterday"], 2, "yesterday"),
        (&["show", "hook", "first"], 2, "first"),
    ] {
        let said = letters(arguments);
        assert!(said.code == code && said.err.contains(words), "{arguments:?}: {} {}", said.code, said.err);
    }
    drop(hub);
    let gone = letters(&["list", "hook"]);
    assert!(gone.code == 1 && gone.err.contains("nothing listens at http://127.0.0.1:"), "{}", gone.err);
}

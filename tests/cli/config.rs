//! Tests of `config`, `completions` and `man`.

use std::path::Path;

use serde_json::Value;

use crate::command::Workdir;

const CONFIG: &str = "[hub]\ncheckpoint = \"1s\"\n[clusters.a]\nserver = \"https://a\"\n[resources.pods]\n";

#[tokio::test(flavor = "multi_thread")]
async fn config_show_prints_effective_values_with_their_origins() {
    let dir = Workdir::with(CONFIG);
    let environment = [("INFORMER_HUB_HUB__LISTEN", "127.0.0.1:1")];
    let outcome = dir.run_with(&["config", "show", "-c", "hub.toml"], &environment).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    for line in [
        "[hub]\n",
        "checkpoint = \"1s\"  # line 2\n",
        "listen = \"127.0.0.1:1\"  # environment INFORMER_HUB_HUB__LISTEN\n",
        "shutdown_deadline = \"20s\"  # default\n",
        "[resources.pods]\n",
    ] {
        assert!(outcome.out.contains(line), "{line}: {}", outcome.out);
    }
    let outcome = dir.run(&["config", "show", "-c", "hub.toml", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&outcome.out).unwrap();
    let checkpoint = all.as_array().unwrap().iter().find(|it| it["key"] == "hub.checkpoint").unwrap();
    assert_eq!(checkpoint["origin"]["file"]["line"], 2, "{checkpoint}");
    assert_eq!(dir.run_for_head(&["config", "show", "-c", "hub.toml"]).await.err, "");
    let outcome = Workdir::with("[hub]\nlisten = 1\n").run(&["config", "show", "-c", "hub.toml"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("hub.toml:2: hub.listen: "), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn config_schema_equals_the_file_in_config() {
    let outcome = Workdir::new().run(&["config", "schema"]).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/schema.json");
    assert!(
        outcome.code == 0 && outcome.out == std::fs::read_to_string(file).unwrap(),
        "run: informer-hub config schema > config/schema.json"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn config_reference_equals_the_page_in_docs() {
    let dir = Workdir::new();
    let outcome = dir.run(&["config", "reference"]).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    assert!(outcome.code == 0 && outcome.out == std::fs::read_to_string(file).unwrap(), "run: make reference");
    assert_eq!(dir.run_for_head(&["config", "reference"]).await.err, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_and_man_pages_are_printed() {
    let dir = Workdir::new();
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef informer-hub"), ("fish", "complete -c informer-hub")]
    {
        let outcome = dir.run(&["completions", shell]).await;
        assert!(
            outcome.code == 0 && outcome.out.contains(word) && outcome.out.contains("import-kubeconfig"),
            "{shell}"
        );
    }
    let outcome = dir.run(&["man"]).await;
    assert!(outcome.code == 0 && outcome.out.contains(".TH informer-hub 1"), "{}", outcome.out);
    let outcome = dir.run(&["man", "--dir", "man"]).await;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(dir.path().join("man/informer-hub-check.1").is_file());
    let outcome = dir.run(&["completions", "tcsh"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("bash"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn config_show_prints_no_secrets() {
    let sink =
        "[sinks.a]\ntype = \"webhook\"\nurl = \"https://a.example.com/k8s\"\nsigning_secret = { env = \"NOT_SET\" }\n";
    let dir = Workdir::with(&format!("{CONFIG}{sink}"));
    let outcome = dir.run(&["config", "show", "-c", "hub.toml"]).await;
    assert!(
        outcome.code == 0 && outcome.out.contains("\nurl = \"https://a.example.com/k8s\"  # line 8\n"),
        "{outcome:?}"
    );
}

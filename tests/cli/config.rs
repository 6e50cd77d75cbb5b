//! `config`, `completions` and `man`.

use std::path::Path;

use serde_json::Value;

use crate::command::Place;

const CONFIG: &str = "[hub]\ncheckpoint = \"1s\"\n[clusters.a]\nserver = \"https://a\"\n[resources.pods]\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_force_is_shown_with_its_origins() {
    let place = Place::with(CONFIG);
    let environment = [("INFORMER_HUB_HUB__LISTEN", "127.0.0.1:1")];
    let done = place.run_with(&["config", "show", "-c", "hub.toml"], &environment).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    for line in [
        "[hub]\n",
        "checkpoint = \"1s\"  # line 2\n",
        "listen = \"127.0.0.1:1\"  # environment INFORMER_HUB_HUB__LISTEN\n",
        "shutdown_deadline = \"20s\"  # default\n",
        "[resources.pods]\n",
    ] {
        assert!(done.out.contains(line), "{line}: {}", done.out);
    }
    let done = place.run(&["config", "show", "-c", "hub.toml", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&done.out).unwrap();
    let checkpoint = all.as_array().unwrap().iter().find(|it| it["key"] == "hub.checkpoint").unwrap();
    assert_eq!(checkpoint["origin"]["file"]["line"], 2, "{checkpoint}");
    assert_eq!(place.run_for_head(&["config", "show", "-c", "hub.toml"]).await.err, "");
    let done = Place::with("[hub]\nlisten = 1\n").run(&["config", "show", "-c", "hub.toml"]).await;
    assert!(done.code == 2 && done.err.contains("hub.toml:2: hub.listen: "), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_the_one_in_config() {
    let done = Place::new().run(&["config", "schema"]).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/schema.json");
    assert!(
        done.code == 0 && done.out == std::fs::read_to_string(file).unwrap(),
        "run: informer-hub config schema > config/schema.json"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_is_the_page_in_docs() {
    let place = Place::new();
    let done = place.run(&["config", "reference"]).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    assert!(done.code == 0 && done.out == std::fs::read_to_string(file).unwrap(), "run: make reference");
    assert_eq!(place.run_for_head(&["config", "reference"]).await.err, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_and_man_get_what_they_take() {
    let place = Place::new();
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef informer-hub"), ("fish", "complete -c informer-hub")]
    {
        let done = place.run(&["completions", shell]).await;
        assert!(done.code == 0 && done.out.contains(word) && done.out.contains("import-kubeconfig"), "{shell}");
    }
    let done = place.run(&["man"]).await;
    assert!(done.code == 0 && done.out.contains(".TH informer-hub 1"), "{}", done.out);
    let done = place.run(&["man", "--dir", "man"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(place.path().join("man/informer-hub-check.1").is_file());
    let done = place.run(&["completions", "tcsh"]).await;
    assert!(done.code == 2 && done.err.contains("bash"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_shown_without_the_secrets_that_it_names() {
    let sink =
        "[sinks.a]\ntype = \"webhook\"\nurl = \"https://a.example.com/k8s\"\nsigning_secret = { env = \"NOT_SET\" }\n";
    let place = Place::with(&format!("{CONFIG}{sink}"));
    let done = place.run(&["config", "show", "-c", "hub.toml"]).await;
    assert!(done.code == 0 && done.out.contains("\nurl = \"https://a.example.com/k8s\"  # line 8\n"), "{done:?}");
}

//! Tests of `kubeconfig` against a running hub.

use std::process::{Command, Output};

use kube::config::Kubeconfig;

use crate::process::{Launch, cluster, sim};

fn kubeconfig(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    for name in ["INFORMER_HUB_URL", "INFORMER_HUB_TOKEN", "INFORMER_HUB_TOKEN_FILE", "INFORMER_HUB_CA_FILE"] {
        command.env_remove(name);
    }
    command.arg("kubeconfig").args(arguments).output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfig_has_a_context_for_each_cluster_of_the_hub() {
    let sim = sim(71, 3);
    let toml = cluster("prod-eu", &sim.url())
        + "labels = { tier = \"prod\" }\n"
        + &cluster("away", "http://127.0.0.1:1")
        + "[resources.pods]\n[hub.auth]\nread_token = { file = \"token\" }\n";
    let hub = Launch::new(&toml).file("token", "hunter2-hunter2-hunter2\n").start();
    let url = hub.url().await;
    let token = hub.path().join("token");
    let token = token.to_str().unwrap();
    let selections = ["--selection", "prod=tier=prod", "--selection", "none=tier=x"];
    let output = kubeconfig(&[&["--url", url.as_str(), "--token-file", token], &selections[..]].concat());
    let (text, problems) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{problems}");
    assert!(!text.contains("hunter2"), "{text}");
    let read = Kubeconfig::from_yaml(&text).unwrap();
    let contexts: Vec<_> = read.contexts.iter().map(|context| context.name.as_str()).collect();
    assert_eq!(contexts, ["fleet", "fleet-unique", "prod", "none", "away", "prod-eu"]);
    let servers: Vec<_> = read.clusters.iter().map(|it| it.cluster.clone().unwrap().server.unwrap()).collect();
    let roots =
        ["clusters/*", "unique/*", "clusters/tier=prod", "clusters/tier=x", "clusters/away", "clusters/prod-eu"];
    assert_eq!(servers, roots.map(|root| format!("{url}/{root}")));
    assert_eq!(read.auth_infos[0].auth_info.as_ref().unwrap().token_file.as_deref(), Some(token));
    assert!(problems.contains("--selection none: no cluster of the hub matches now"), "{problems}");
    assert!(!problems.contains("--selection prod"), "{problems}");
    assert!(problems.contains("kubectl sends no credentials to an http:// address"), "{problems}");

    let refused = kubeconfig(&["--url", &url]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("requires a token; give --token-file"), "{refused:?}");
}

#[test]
fn kubeconfig_for_given_clusters_asks_no_hub() {
    let output = kubeconfig(&["--url", "http://127.0.0.1:1", "--clusters", "b,a", "--prefix", "hub-"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = Kubeconfig::from_yaml(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let contexts: Vec<_> = read.contexts.iter().map(|context| context.name.as_str()).collect();
    assert_eq!(contexts, ["hub-fleet", "hub-fleet-unique", "hub-a", "hub-b"]);
    assert_eq!(output.stderr, b"");
    let wrong = kubeconfig(&["--clusters", "a/b"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("cluster name \"a/b\" is not valid"), "{wrong:?}");
}

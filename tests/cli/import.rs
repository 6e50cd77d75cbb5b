//! Tests of `import-kubeconfig`.

use crate::command::{Workdir, sim};

fn kubeconfig(url: &str) -> String {
    let context = |name: &str| format!("- {{name: {name}, context: {{cluster: c, user: u}}}}\n");
    format!(
        "clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\nusers: [{{name: u, user: {{token: hunter2}}}}]\n\
         contexts:\n{}{}{}",
        context("prod-eu"),
        context("prod-us"),
        context("dev")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_configuration_passes_check() {
    let sim = sim(5);
    let dir = Workdir::new().file("kube", &kubeconfig(&sim.url()));
    let outcome = dir.run(&["import-kubeconfig", "kube", "--context", "prod-*"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    assert!(!outcome.out.contains("hunter2"), "{}", outcome.out);
    let dir = dir.file("hub.toml", &outcome.out);
    let outcome = dir.run(&["check", "-c", "hub.toml"]).await;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(
        outcome.out.contains("prod-eu") && outcome.out.contains("prod-us") && !outcome.out.contains("dev"),
        "{}",
        outcome.out
    );
    assert!(outcome.out.contains("2 clusters: 0 errors, 0 warnings; 10 objects"), "{}", outcome.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn import_finds_the_kubeconfig_like_kubectl() {
    let dir = Workdir::new().file("kube", &kubeconfig("https://x"));
    let outcome = dir.run(&["import-kubeconfig"]).await;
    assert_eq!(outcome.code, 1);
    let advice = ".kube/config; give the path of one as FILE, or set KUBECONFIG\n";
    assert!(outcome.err.contains("there is no kubeconfig /") && outcome.err.ends_with(advice), "{}", outcome.err);
    let dir = dir.file("other", "apiVersion: v1\n").file("broken", "contexts: [\n");
    for (file, text) in [
        ("none", "there is no kubeconfig none; give the path of one as FILE"),
        ("other", "no context in other; give the FILE of a kubeconfig, whose contexts `kubectl"),
        ("broken", "cannot use kubeconfig broken: not a valid kubeconfig: error at line 1, column 11"),
        (".", "cannot use kubeconfig .: Is a directory"),
    ] {
        let outcome = dir.run(&["import-kubeconfig", file]).await;
        assert!(outcome.code == 1 && outcome.err.contains(text), "{file}: {outcome:?}");
    }
    let outcome = dir.run_with(&["import-kubeconfig", "--clusters-only"], &[("KUBECONFIG", "kube")]).await;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.out.contains("kubeconfig = \"~/kube\"") && !outcome.out.contains("[resources"), "{}", outcome.out);
    let outcome = dir.run(&["import-kubeconfig", "kube", "--context", "prd"]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("no context matches \"prd\"; known: prod-eu, prod-us, dev"), "{}", outcome.err);
    assert_eq!(dir.run_for_head(&["import-kubeconfig", "kube"]).await.err, "");
}

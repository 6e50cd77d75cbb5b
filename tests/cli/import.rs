//! `import-kubeconfig`: from a kubeconfig to a configuration that `check` takes.

use crate::command::{Place, sim};

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
async fn what_is_imported_passes_the_check() {
    let sim = sim(5);
    let place = Place::new().file("kube", &kubeconfig(&sim.url()));
    let done = place.run(&["import-kubeconfig", "kube", "--context", "prod-*"]).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    assert!(!done.out.contains("hunter2"), "{}", done.out);
    let place = place.file("hub.toml", &done.out);
    let done = place.run(&["check", "-c", "hub.toml"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("prod-eu") && done.out.contains("prod-us") && !done.out.contains("dev"), "{}", done.out);
    assert!(done.out.contains("2 clusters: 0 errors, 0 warnings; 10 objects"), "{}", done.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubeconfig_is_found_where_kubectl_finds_it() {
    let place = Place::new().file("kube", &kubeconfig("https://x"));
    let done = place.run(&["import-kubeconfig"]).await;
    assert_eq!(done.code, 1);
    assert!(done.err.contains(".kube/config"), "{}", done.err);
    let done = place.run_with(&["import-kubeconfig", "--clusters-only"], &[("KUBECONFIG", "kube")]).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("kubeconfig = \"~/kube\"") && !done.out.contains("[resources"), "{}", done.out);
    let done = place.run(&["import-kubeconfig", "kube", "--context", "prd"]).await;
    assert_eq!(done.code, 1);
    assert!(done.err.contains("no context matches \"prd\"; there is prod-eu, prod-us, dev"), "{}", done.err);
    assert_eq!(place.run_for_head(&["import-kubeconfig", "kube"]).await.err, "");
}

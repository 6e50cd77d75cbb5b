//! `rbac`: objects that a cluster would take.

use serde_json::Value;

use crate::command::{Place, sim};

const CONFIG: &str = "[clusters.a]\nserver = \"http://127.0.0.1:1\"\nlabels = { tier = \"prod\" }\n[clusters.b]\n\
                      in_cluster = true\n[resources.po]\nnamespaces = [\"shop\"]\n[resources.deploy]\n\
                      [resources.all-nodes]\nresource = \"nodes\"\nclusters = { tier = \"prod\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_account_that_is_printed_need_not_be_there_yet() {
    let toml = "[clusters.a]\nserver = \"https://127.0.0.1:1\"\nca_file = \"a.crt\"\ntoken = { file = \"a.token\" }\n\
                [resources.pods]\n[sinks.audit]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:1\"\n\
                signing_secret = { env = \"NOT_SET_YET\" }\n";
    let place = Place::with(toml);
    let done = place.run(&["rbac", "-c", "hub.toml"]).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    assert!(done.out.contains("create token informer-hub") && done.out.contains("- pods\n"), "{}", done.out);
    // Who asks the clusters needs it, and what is wrong in the file itself is wrong.
    let done = place.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(done.code == 2 && done.err.contains("cannot read") && done.err.contains("a.token"), "{done:?}");
    let place = place.file("hub.toml", &toml.replace("[resources.pods]", "[resources.pods]\nnamespace = [\"a\"]"));
    let done = place.run(&["rbac", "-c", "hub.toml"]).await;
    assert!(
        done.code == 2 && done.err.contains("did you mean \"namespaces\"") && !done.err.contains("a.token"),
        "{done:?}"
    );
}

/// Kind and namespace of each object.
fn objects(yaml: &str) -> Vec<String> {
    let object = |text: &str| {
        let object: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let place = object["metadata"]["namespace"].as_str().unwrap_or("-");
        format!("{} {place}", object["kind"].as_str().unwrap())
    };
    yaml.split("---\n").skip(1).map(object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cluster_gets_what_its_entries_need_and_no_more() {
    let place = Place::with(CONFIG);
    let done = place.run(&["rbac", "-c", "hub.toml", "--cluster", "a", "-n", "tools"]).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    let wanted = ["ServiceAccount tools", "ClusterRole -", "ClusterRoleBinding -", "Role shop", "RoleBinding shop"];
    assert_eq!(objects(&done.out), wanted, "{}", done.out);
    for word in ["deployments", "apps", "nodes", "pods", "list", "watch"] {
        assert!(done.out.contains(&format!("- {word}\n")), "{word}: {}", done.out);
    }
    for word in ["get", "create", "'*'", "secrets"] {
        assert!(!done.out.contains(&format!("- {word}\n")), "{word}: {}", done.out);
    }
    let done = place.run(&["rbac", "-c", "hub.toml", "--cluster", "b"]).await;
    assert!(!done.out.contains("- nodes\n"), "not of this cluster: {}", done.out);
    assert!(!done.out.contains("create token"), "a pod has its own: {}", done.out);
    let done = place.run(&["rbac", "-c", "hub.toml", "--dir", "out"]).await;
    assert_eq!((done.code, done.out.as_str()), (0, "out/a.yaml\nout/b.yaml\n"), "{done:?}");
    assert_eq!(place.run_for_head(&["rbac", "-c", "hub.toml"]).await.err, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_is_all_of_its_group_and_of_many_groups_what_the_cluster_has() {
    let sim = sim(2);
    let config = format!("[clusters.a]\nserver = \"{}\"\n[resources.\"*.example.com\"]\n", sim.url());
    let place = Place::with(&config);
    let done = place.run(&["rbac", "-c", "hub.toml"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    for word in ["example.com", "\"*\"", "customresourcedefinitions", "apiservices"] {
        assert!(done.out.contains(&format!("- {word}\n")), "{word}: {}", done.out);
    }
    let place = place.file("hub.toml", &config.replace("*.example.com", "*"));
    let done = place.run(&["rbac", "-c", "hub.toml"]).await;
    assert!(done.code == 1 && done.err.contains("only a cluster knows"), "{done:?}");
    let done = place.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    for word in ["example.com", "\"*\"", "pods", "nodes"] {
        assert!(done.out.contains(&format!("- {word}\n")), "{word}: {}", done.out);
    }
    let done = place.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    for word in ["widgets.v1.example.com", "pods.v1.", "nodes.v1."] {
        assert!(done.out.contains(word), "{word}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nobody_knows_is_asked_for_or_refused() {
    let sim = sim(1);
    let widgets = format!("[clusters.a]\nserver = \"{}\"\n[resources.nothings]\n", sim.url());
    let place = Place::with(&widgets);
    let done = place.run(&["rbac", "-c", "hub.toml"]).await;
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains("resources.nothings: nothings is not built into Kubernetes"), "{}", done.err);
    let done = place.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(done.code == 1 && done.err.contains("no resource \"nothings\""), "{done:?}");
    let place = place.file("hub.toml", &widgets.replace("nothings", "po"));
    let done = place.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(done.code == 0 && done.out.contains("- pods\n"), "{done:?}");
    let place = place.file("hub.toml", &widgets.replace("nothings", "\"widgets.example.com\""));
    let done = place.run(&["rbac", "-c", "hub.toml"]).await;
    assert!(done.out.contains("Taken as written") && done.out.contains("- example.com\n"), "{done:?}");
    let place = place.file("hub.toml", &widgets.replace("nothings", "\"gears.example.org\""));
    let done = place.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(done.out.contains("does not have them yet: gears.example.org"), "{done:?}");
    assert!(done.code == 0 && done.out.contains("- gears\n"), "{done:?}");
    let done = place.run(&["rbac", "-c", "hub.toml", "--role", "Bad_Name"]).await;
    assert!(done.code == 2 && done.err.contains("is not a Kubernetes name"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_groups_and_accounts_are_the_subjects_of_the_bindings() {
    let place = Place::with(CONFIG);
    let run = async |more: &[&str]| place.run(&[&["rbac", "-c", "hub.toml", "--cluster", "a"], more].concat()).await;
    let done = run(&["--user", "jane@example.com", "--group", "dev", "--user=- x: {"]).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    assert_eq!(objects(&done.out), ["ClusterRole -", "ClusterRoleBinding -", "Role shop", "RoleBinding shop"]);
    let binding: Value = serde_saphyr::from_str(done.out.split("---\n").nth(2).unwrap()).unwrap();
    let subjects: Vec<_> =
        binding["subjects"].as_array().unwrap().iter().map(|it| (&it["kind"], &it["name"])).collect();
    let wanted = [("User", "jane@example.com"), ("User", "- x: {"), ("Group", "dev")];
    let wanted = wanted.map(|(kind, name)| (Value::from(kind), Value::from(name)));
    assert_eq!(subjects, wanted.iter().map(|(kind, name)| (kind, name)).collect::<Vec<_>>());
    assert_eq!(binding["metadata"]["name"], "informer-hub-users", "the account's binding keeps its subject");
    assert!(!done.out.contains("create token"), "{}", done.out);

    let done = run(&["--service-account", "tools/hub", "--user", "jane"]).await;
    assert_eq!(objects(&done.out)[..1], ["ServiceAccount tools"], "{}", done.out);
    assert!(done.out.contains("kind: User") && done.out.contains("name: hub\n"), "{}", done.out);
    let done = run(&["--service-account", "tools/hub", "-n", "other"]).await;
    assert!(done.code == 1 && done.err.contains("leave one of them out"), "{done:?}");
    let done = run(&["--user", "a\nb"]).await;
    assert!(done.code == 2 && done.err.contains("is not a user or group"), "{done:?}");
    let done = run(&["--user", "jane", "--token-secret"]).await;
    assert!(done.code == 1 && done.err.contains("add --service-account"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_lasts_is_printed_where_it_is_asked_for() {
    let place = Place::with(CONFIG);
    let done = place.run(&["rbac", "-c", "hub.toml", "--cluster", "a"]).await;
    assert!(done.out.contains("expires after a day and is not renewed"), "{}", done.out);
    assert!(!done.out.contains("kind: Secret"), "{}", done.out);
    let done = place.run(&["rbac", "-c", "hub.toml", "--cluster", "a", "--token-secret"]).await;
    assert_eq!(objects(&done.out)[..2], ["ServiceAccount informer-hub", "Secret informer-hub"], "{}", done.out);
    assert!(done.out.contains("kubernetes.io/service-account.name: informer-hub\n"), "{}", done.out);
    assert!(done.out.contains("get secret informer-hub-token -o jsonpath='{.data.token}'"), "{}", done.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_clusters_gets_what_it_looks_at_in_its_management_cluster() {
    let toml = "[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\n\
                namespaces = [\"argocd\"]\n[cluster_sources.inventory]\ntype = \"cluster-profiles\"\nin_cluster = true\n\
                secrets = true\n[cluster_sources.files]\ntype = \"folder\"\npath = \"x\"\n[resources.pods]\n";
    let place = Place::with(toml);
    let done = place.run(&["rbac", "-c", "hub.toml", "--source", "argo"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        objects(&done.out),
        ["ServiceAccount informer-hub", "Role argocd", "RoleBinding argocd"],
        "{}",
        done.out
    );
    assert!(done.out.contains("- secrets\n") && !done.out.contains("- pods\n"), "{}", done.out);
    let done = place.run(&["rbac", "-c", "hub.toml", "--source", "inventory"]).await;
    for word in ["clusterprofiles", "multicluster.x-k8s.io", "secrets"] {
        assert!(done.out.contains(&format!("- {word}\n")), "{word}: {}", done.out);
    }
    let done = place.run(&["rbac", "-c", "hub.toml", "--dir", "out"]).await;
    let files = "out/cluster-source-argo.yaml\nout/cluster-source-inventory.yaml\nout/sourced-clusters.yaml\n";
    assert_eq!((done.code, done.out.as_str()), (0, files), "{done:?}");
    let sourced = std::fs::read_to_string(place.path().join("out/sourced-clusters.yaml")).unwrap();
    assert!(sourced.contains("- pods\n"), "{sourced}");
    let done = place.run(&["rbac", "-c", "hub.toml", "--source", "other"]).await;
    assert!(done.code == 1 && done.err.contains("no cluster source \"other\"; there is argo"), "{done:?}");
}

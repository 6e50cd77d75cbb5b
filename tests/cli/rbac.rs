//! Tests of the manifests that `rbac` prints.

use serde_json::Value;

use crate::command::{Workdir, sim};

const CONFIG: &str = "[clusters.a]\nserver = \"http://127.0.0.1:1\"\nlabels = { tier = \"prod\" }\n[clusters.b]\n\
                      in_cluster = true\n[resources.po]\nnamespaces = [\"shop\"]\n[resources.deploy]\n\
                      [resources.all-nodes]\nresource = \"nodes\"\nclusters = { tier = \"prod\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn rbac_does_not_require_token_files() {
    let toml = "[clusters.a]\nserver = \"https://127.0.0.1:1\"\nca_file = \"a.crt\"\ntoken = { file = \"a.token\" }\n\
                [resources.pods]\n[sinks.audit]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:1\"\n\
                signing_secret = { env = \"NOT_SET_YET\" }\n";
    let dir = Workdir::with(toml);
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    assert!(outcome.out.contains("create token informer-hub") && outcome.out.contains("- pods\n"), "{}", outcome.out);
    // With `--discover` the token file is required. Mistakes in the configuration are reported in either case.
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("cannot read") && outcome.err.contains("a.token"), "{outcome:?}");
    let dir = dir.file("hub.toml", &toml.replace("[resources.pods]", "[resources.pods]\nnamespace = [\"a\"]"));
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    assert!(
        outcome.code == 2 && outcome.err.contains("did you mean \"namespaces\"") && !outcome.err.contains("a.token"),
        "{outcome:?}"
    );
}

/// Returns kind and namespace of each object.
fn objects(yaml: &str) -> Vec<String> {
    let object = |text: &str| {
        let object: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let dir = object["metadata"]["namespace"].as_str().unwrap_or("-");
        format!("{} {dir}", object["kind"].as_str().unwrap())
    };
    yaml.split("---\n").skip(1).map(object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_grants_exactly_what_the_entries_need() {
    let dir = Workdir::with(CONFIG);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--cluster", "a", "-n", "tools"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    let expected = ["ServiceAccount tools", "ClusterRole -", "ClusterRoleBinding -", "Role shop", "RoleBinding shop"];
    assert_eq!(objects(&outcome.out), expected, "{}", outcome.out);
    for word in ["deployments", "apps", "nodes", "pods", "list", "watch"] {
        assert!(outcome.out.contains(&format!("- {word}\n")), "{word}: {}", outcome.out);
    }
    for word in ["get", "create", "'*'", "secrets"] {
        assert!(!outcome.out.contains(&format!("- {word}\n")), "{word}: {}", outcome.out);
    }
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--cluster", "b"]).await;
    assert!(!outcome.out.contains("- nodes\n"), "not of this cluster: {}", outcome.out);
    assert!(!outcome.out.contains("create token"), "a pod has its own: {}", outcome.out);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--dir", "out"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "out/a.yaml\nout/b.yaml\n"), "{outcome:?}");
    assert_eq!(dir.run_for_head(&["rbac", "-c", "hub.toml"]).await.err, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_of_a_pattern_covers_its_groups() {
    let sim = sim(2);
    let config = format!("[clusters.a]\nserver = \"{}\"\n[resources.\"*.example.com\"]\n", sim.url());
    let dir = Workdir::with(&config);
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    for word in ["example.com", "\"*\"", "customresourcedefinitions", "apiservices"] {
        assert!(outcome.out.contains(&format!("- {word}\n")), "{word}: {}", outcome.out);
    }
    let dir = dir.file("hub.toml", &config.replace("*.example.com", "*"));
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("only a cluster knows"), "{outcome:?}");
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    for word in ["example.com", "\"*\"", "pods", "nodes"] {
        assert!(outcome.out.contains(&format!("- {word}\n")), "{word}: {}", outcome.out);
    }
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    for word in ["widgets.v1.example.com", "pods.v1.", "nodes.v1."] {
        assert!(outcome.out.contains(word), "{word}: {outcome:?}");
    }
    let table = dir.run(&["check", "-c", "hub.toml"]).await.out;
    for word in ["*: widgets.example.com", "*: pods", "*: nodes"] {
        assert!(table.contains(word), "{word}: {table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_resource_needs_discovery_or_is_refused() {
    let sim = sim(1);
    let widgets = format!("[clusters.a]\nserver = \"{}\"\n[resources.nothings]\n", sim.url());
    let dir = Workdir::with(&widgets);
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.err.contains("resources.nothings: nothings is not built into Kubernetes"), "{}", outcome.err);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(outcome.code == 1 && outcome.err.contains("no resource \"nothings\""), "{outcome:?}");
    let dir = dir.file("hub.toml", &widgets.replace("nothings", "po"));
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(outcome.code == 0 && outcome.out.contains("- pods\n"), "{outcome:?}");
    let dir = dir.file("hub.toml", &widgets.replace("nothings", "\"widgets.example.com\""));
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    assert!(outcome.out.contains("Taken as written") && outcome.out.contains("- example.com\n"), "{outcome:?}");
    let dir = dir.file("hub.toml", &widgets.replace("nothings", "\"gears.example.org\""));
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--discover"]).await;
    assert!(outcome.out.contains("does not have them yet: gears.example.org"), "{outcome:?}");
    assert!(outcome.code == 0 && outcome.out.contains("- gears\n"), "{outcome:?}");
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--role", "Bad_Name"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("is not a Kubernetes name"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_binds_users_groups_and_accounts() {
    let dir = Workdir::with(CONFIG);
    let run = async |more: &[&str]| dir.run(&[&["rbac", "-c", "hub.toml", "--cluster", "a"], more].concat()).await;
    let outcome = run(&["--user", "jane@example.com", "--group", "dev", "--user=- x: {"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    assert_eq!(objects(&outcome.out), ["ClusterRole -", "ClusterRoleBinding -", "Role shop", "RoleBinding shop"]);
    let binding: Value = serde_saphyr::from_str(outcome.out.split("---\n").nth(2).unwrap()).unwrap();
    let subjects: Vec<_> =
        binding["subjects"].as_array().unwrap().iter().map(|it| (&it["kind"], &it["name"])).collect();
    let expected = [("User", "jane@example.com"), ("User", "- x: {"), ("Group", "dev")];
    let expected = expected.map(|(kind, name)| (Value::from(kind), Value::from(name)));
    assert_eq!(subjects, expected.iter().map(|(kind, name)| (kind, name)).collect::<Vec<_>>());
    assert_eq!(binding["metadata"]["name"], "informer-hub-users", "the account's binding keeps its subject");
    assert!(!outcome.out.contains("create token"), "{}", outcome.out);

    let outcome = run(&["--service-account", "tools/hub", "--user", "jane"]).await;
    assert_eq!(objects(&outcome.out)[..1], ["ServiceAccount tools"], "{}", outcome.out);
    assert!(outcome.out.contains("kind: User") && outcome.out.contains("name: hub\n"), "{}", outcome.out);
    let outcome = run(&["--service-account", "tools/hub", "-n", "other"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("leave one of them out"), "{outcome:?}");
    let outcome = run(&["--user", "a\nb"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("is not a user or group"), "{outcome:?}");
    let outcome = run(&["--user", "jane", "--token-secret"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("add --service-account"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_secret_is_printed_on_request() {
    let dir = Workdir::with(CONFIG);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--cluster", "a"]).await;
    assert!(
        outcome.out.contains("valid for a day (--token-secret prints one that does not expire)"),
        "{}",
        outcome.out
    );
    assert!(!outcome.out.contains("kind: Secret"), "{}", outcome.out);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--cluster", "a", "--token-secret"]).await;
    assert_eq!(objects(&outcome.out)[..2], ["ServiceAccount informer-hub", "Secret informer-hub"], "{}", outcome.out);
    assert!(outcome.out.contains("kubernetes.io/service-account.name: informer-hub\n"), "{}", outcome.out);
    assert!(outcome.out.contains("get secret informer-hub-token -o jsonpath='{.data.token}'"), "{}", outcome.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_of_a_source_covers_its_management_cluster() {
    let toml = "[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\n\
                namespaces = [\"argocd\"]\n[cluster_sources.inventory]\ntype = \"cluster-profiles\"\nin_cluster = true\n\
                secrets = true\n[cluster_sources.files]\ntype = \"folder\"\npath = \"x\"\n[resources.pods]\n";
    let dir = Workdir::with(toml);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--source", "argo"]).await;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(
        objects(&outcome.out),
        ["ServiceAccount informer-hub", "Role argocd", "RoleBinding argocd"],
        "{}",
        outcome.out
    );
    assert!(outcome.out.contains("- secrets\n") && !outcome.out.contains("- pods\n"), "{}", outcome.out);
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--source", "inventory"]).await;
    for word in ["clusterprofiles", "multicluster.x-k8s.io", "secrets"] {
        assert!(outcome.out.contains(&format!("- {word}\n")), "{word}: {}", outcome.out);
    }
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--dir", "out"]).await;
    let files = "out/cluster-source-argo.yaml\nout/cluster-source-inventory.yaml\nout/sourced-clusters.yaml\n";
    assert_eq!((outcome.code, outcome.out.as_str()), (0, files), "{outcome:?}");
    let sourced = std::fs::read_to_string(dir.path().join("out/sourced-clusters.yaml")).unwrap();
    assert!(sourced.contains("- pods\n"), "{sourced}");
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--source", "other"]).await;
    assert!(outcome.code == 1 && outcome.err.contains("no cluster source \"other\"; known: argo"), "{outcome:?}");
    let outcome = dir.run(&["rbac", "-c", "hub.toml", "--source", "files"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (2, ""), "{outcome:?}");
    assert!(outcome.err.contains("cluster source files has no management cluster"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_grants_the_reviews_that_readers_need() {
    let authorization = "[hub.authorization]\nkubernetes = { mode = \"subject-access-review\" }\n\
                         token_review = { clusters = [\"a\"] }\n";
    let dir = Workdir::with(&format!("{authorization}{CONFIG}"));
    for (cluster, expected) in [("a", &["subjectaccessreviews", "tokenreviews"][..]), ("b", &["subjectaccessreviews"])]
    {
        let outcome = dir.run(&["rbac", "-c", "hub.toml", "--cluster", cluster]).await;
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
        let printed = outcome.out.split("---\n").skip(1).map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let role = printed.into_iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let rules = role["rules"].as_array().unwrap();
        let created = rules.iter().filter(|rule| rule["verbs"] == serde_json::json!(["create"]));
        let mut created: Vec<_> = created.map(|rule| rule["resources"][0].as_str().unwrap()).collect();
        created.sort_unstable();
        assert_eq!(created, expected, "{cluster}");
        assert!(rules.iter().all(|rule| rule["verbs"].as_array().unwrap().len() == 1 || rule["verbs"][0] == "list"));
    }
    // A cluster whose objects are all in namespaces needs a cluster role only for the right to create reviews.
    let dir = Workdir::with(&format!(
        "{authorization}[clusters.a]\nin_cluster = true\n[resources.po]\nnamespaces = [\"shop\"]\n"
    ));
    let outcome = dir.run(&["rbac", "-c", "hub.toml"]).await;
    let expected =
        ["ServiceAccount informer-hub", "ClusterRole -", "ClusterRoleBinding -", "Role shop", "RoleBinding shop"];
    assert_eq!(objects(&outcome.out), expected, "{}", outcome.out);
}

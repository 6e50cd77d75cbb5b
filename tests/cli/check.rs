//! Tests of `check` with healthy, misconfigured and unreachable clusters.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub_sim::{ResourceDef, SimCluster, SimConfig, World, WorldConfig};
use informer_hub_types::Gvr;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::command::{Outcome, Workdir, sim};

fn cluster(name: &str, url: &str) -> String {
    format!("[clusters.{name}]\nserver = \"{url}\"\n")
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// Returns level, key and problem of each finding.
fn findings(report: &Value) -> Vec<String> {
    let clusters = report["clusters"].as_array().unwrap().iter().flat_map(|it| it["findings"].as_array().unwrap());
    let all = clusters.chain(report["findings"].as_array().unwrap());
    let text = |it: &Value| {
        assert!(!it["advice"].as_str().unwrap().is_empty(), "every finding has advice: {it}");
        format!("{} {}: {}", it["level"], it["about"].as_str().unwrap(), it["problem"].as_str().unwrap())
    };
    all.map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_of_a_healthy_cluster_exits_with_0() {
    let sim = sim(25);
    let dir = Workdir::with(&format!("{}[resources.po]\n[resources.nodes]\n", cluster("one", &sim.url())));
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    let report = json(&outcome);
    assert_eq!((&report["result"], findings(&report)), (&Value::from("fine"), Vec::new()));
    let one = &report["clusters"][0];
    assert_eq!((&one["cluster"], &one["version"]), (&Value::from("one"), &Value::from("v1.36.3-sim")));
    let pods = one["resources"].as_array().unwrap().iter().find(|it| it["name"] == "po").unwrap();
    assert_eq!((pods["resource"].as_str(), pods["streaming"].as_bool()), (Some("pods.v1."), Some(true)));
    let scope = &pods["scopes"][0];
    assert_eq!((scope["list"].as_bool(), scope["watch"].as_bool()), (Some(true), Some(true)));
    assert_eq!((scope["objects"].as_u64(), &scope["namespace"]), (Some(25), &Value::Null));
    let memory = scope["memory"].as_u64().unwrap();
    assert!((25 * 560..25 * 2_000).contains(&memory), "{memory}");
    assert!(report["memory"].as_u64().unwrap() > memory);

    let outcome = dir.run(&["check", "-c", "hub.toml"]).await;
    assert_eq!(outcome.code, 0);
    assert!(
        outcome.out.contains("v1.36.3-sim") && outcome.out.contains("1 cluster: 0 errors, 0 warnings"),
        "{}",
        outcome.out
    );
    assert!(!outcome.out.contains('\u{1b}'), "no colours where there is no terminal: {}", outcome.out);
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "yaml"]).await;
    assert!(outcome.out.starts_with("file: ") && outcome.out.contains("version: v1.36.3-sim"), "{}", outcome.out);
    assert_eq!(dir.run_for_head(&["check", "-c", "hub.toml"]).await.err, "", "a closed pipe is not an error");
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_secrets_are_explained_without_a_warning() {
    let sim = sim(1);
    let secrets = Gvr::new("", "v1", "secrets");
    sim.with_world(|world| world.register(ResourceDef::new(&secrets, "Secret", true, false)));
    let rest = format!("{}[resources.secrets]\n", cluster("one", &sim.url()));
    let dir = Workdir::with(&rest);
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    let expected = "\"fine\" resources.secrets: is not served to clients of the hub, because \
                    hub.read_api.serve_secrets is not set";
    assert_eq!((&report["result"], findings(&report)), (&json!("fine"), vec![expected.to_owned()]));
    let dir = dir.file("hub.toml", &format!("[hub.read_api]\nserve_secrets = true\n{rest}"));
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    assert!(findings(&report).is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_and_absent_resources_are_errors_with_advice() {
    let sim = sim(3);
    sim.forbid(&Gvr::new("", "v1", "nodes"), true);
    let toml = format!("{}[resources.pdos]\n[resources.nodes]\n[resources.pods]\n", cluster("one", &sim.url()));
    let dir = Workdir::with(&toml);
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let report = json(&outcome);
    let found = findings(&report);
    let expected = [
        "\"error\" resources.nodes in one: may not list nodes in the cluster (forbidden by the simulation)",
        "\"error\" resources.nodes in one: may not watch nodes in the cluster (forbidden by the simulation)",
        "\"error\" resources.pdos in one: the cluster has no resource \"pdos\"; known: pods, po, pod",
    ];
    assert_eq!(found, expected);
    let all = report["clusters"][0]["findings"].as_array().unwrap();
    let advice = "as an administrator of the cluster: `informer-hub rbac -c hub.toml --cluster one --user simulated-user \
                  --discover | kubectl apply -f -`";
    assert_eq!(all[0]["advice"], advice, "{all:?}");
    assert_eq!(report["clusters"][0]["identity"]["username"], "simulated-user");
    assert!(all[2]["advice"].as_str().unwrap().contains("\"pods\""), "{all:?}");
    let shown = dir.run(&["check", "-c", "hub.toml"]).await.out;
    assert_eq!(shown.matches(advice).count(), 1, "advice for several findings is printed once: {shown}");
    let pods = &report["clusters"][0]["resources"][2];
    assert_eq!((pods["name"].as_str(), pods["scopes"][0]["objects"].as_u64()), (Some("pods"), Some(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_of_the_lease_are_errors_with_advice() {
    let sim = sim(1);
    let rest = format!("{}[resources.pods]\n", cluster("one", &sim.url()));
    let dir = Workdir::with(&format!("{rest}[ha]\nlease = {{ cluster = \"one\", namespace = \"hub\" }}\n"));
    let run = async || dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!(run().await.code, 0);
    sim.forbid(&Gvr::new("coordination.k8s.io", "v1", "leases"), true);
    let outcome = run().await;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let report = json(&outcome);
    let expected = ["get", "create", "update"].map(|verb| {
        format!(
            "\"error\" clusters.one: may not {verb} leases in the namespace hub, which [ha] needs: no sink delivers"
        )
    });
    assert_eq!(findings(&report), expected);
    let advice = report["clusters"][0]["findings"][0]["advice"].as_str().unwrap();
    assert!(advice.contains("informer-hub rbac -c hub.toml --cluster one"), "{advice}");
    // Without `cluster`, the Lease is in the hub's own cluster. The test does not run in a pod, so that cluster is
    // unreachable.
    let dir = Workdir::with(&format!("{rest}[ha]\nlease = {{ namespace = \"hub\" }}\n"));
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    let found = findings(&report);
    assert!(
        !found.is_empty() && found.iter().all(|it| it.starts_with("\"error\" clusters.own-cluster: ")),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_cluster_delays_no_other() {
    let sim = sim(3);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let clusters = [cluster("a-silent", &silent_url), cluster("b-well", &sim.url())].concat();
    let clusters = clusters + &cluster("c-closed", &format!("http://{closed}"));
    let dir = Workdir::with(&format!("{clusters}[resources.pods]\n"));
    let begun = Instant::now();
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json", "--timeout", "2s"]).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let report = json(&outcome);
    let found = findings(&report);
    let [silent, closed] = &found[..] else { panic!("{found:?}") };
    assert_eq!(silent, "\"error\" clusters.a-silent: not finished within 2s");
    assert!(
        closed.contains("clusters.c-closed: cannot connect to http://127.0.0.1:") && closed.contains("refused"),
        "{closed}"
    );
    assert_eq!(report["clusters"][1]["resources"][0]["scopes"][0]["objects"].as_u64(), Some(3));

    let outcome = dir.run(&["check", "-c", "hub.toml", "--cluster", "b-well"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "only the selected cluster is checked");
    let outcome = dir.run(&["check", "-c", "hub.toml", "--cluster", "d"]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("there is no cluster \"d\"; known: a-silent, b-well, c-closed"), "{}", outcome.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_alone_exit_with_1() {
    let sim = sim(3);
    let toml: String = format!(
        "[hub]\nmemory_limit = \"64MiB\"\n{}labels = {{ a = \"b\" }}\n{}[resources.pods]\nclusters = {{ a = \"b\" }}\n",
        cluster("one", &sim.url()),
        cluster("two", &sim.url())
    );
    let dir = Workdir::with(&(toml + "[resources.nodes]\nclusters = [\"one\"]\nnamespaces = [\"shop\"]\n"));
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let found = findings(&json(&outcome));
    let [scope, unused, memory] = &found[..] else { panic!("{found:?}") };
    assert!(scope.contains("nodes is cluster-scoped"), "{scope}");
    assert!(unused.contains("clusters.two: no entry of [resources] selects it"), "{unused}");
    assert!(memory.contains("hub.memory_limit: 64 MiB may be too small"), "{memory}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_configuration_is_reported_without_requests() {
    let sim = sim(3);
    let dir = Workdir::with(&format!("{}[resources.pods]\nresinc = \"1m\"\n", cluster("one", &sim.url())));
    let outcome = dir.run(&["check", "-c", "hub.toml"]).await;
    assert_eq!(outcome.code, 2);
    assert!(outcome.out.contains("hub.toml:4: resources.pods.resinc: unknown key"), "{outcome:?}");
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!((outcome.code, &json(&outcome)["mistakes"][0]["line"]), (2, &Value::from(4)));
    assert_eq!(sim.stats().requests, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_is_an_error_and_the_cluster_is_still_checked() {
    let sim = sim(3);
    // The payload is `{"exp":1600000000}`.
    let token = "e30.eyJleHAiOjE2MDAwMDAwMDB9.c2ln";
    let toml = format!("{}token = {{ file = \"token\" }}\n[resources.pods]\n", cluster("one", &sim.url()));
    let outcome = Workdir::with(&toml).file("token", token).run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let report = json(&outcome);
    let found = findings(&report);
    assert!(found.len() == 1 && found[0].contains("ago, at 2020-09-13T12:26:40Z"), "{found:?}");
    assert_eq!(report["clusters"][0]["credentials"][0]["kind"], "token-file");
    assert!(!outcome.out.contains(token), "{}", outcome.out);
    assert_eq!(report["clusters"][0]["resources"][0]["scopes"][0]["objects"].as_u64(), Some(3));
}

/// Starts a cluster that forbids reading nodes and reports this user name for the credentials. With `None`, it does not
/// serve `SelfSubjectReview`.
fn forbidding(username: Option<&str>) -> SimCluster {
    let world = WorldConfig { seed: 7, pods: 3, small: true, ..WorldConfig::default() };
    let config = SimConfig { world, username: username.map(str::to_owned), ..SimConfig::default() };
    let sim = SimCluster::start(config, &Handle::current()).unwrap();
    sim.forbid(&Gvr::new("", "v1", "nodes"), true);
    sim
}

async fn advice(username: Option<&str>) -> (String, Outcome) {
    let sim = forbidding(username);
    let dir = Workdir::with(&format!("{}[resources.nodes]\n", cluster("one", &sim.url())));
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    let advice = report["clusters"][0]["findings"][0]["advice"].as_str().unwrap().to_owned();
    (advice, dir.run(&["check", "-c", "hub.toml"]).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn check_advises_permissions_for_the_credentials_user() {
    let (account, shown) = advice(Some("system:serviceaccount:tools:hub")).await;
    assert!(account.contains("--cluster one --service-account tools/hub | kubectl apply -f -`"), "{account}");
    assert!(shown.out.contains("system:serviceaccount:tools:hub\n"), "{}", shown.out);
    let (own, _) = advice(Some("system:serviceaccount:informer-hub:informer-hub")).await;
    assert!(own.contains("--cluster one | kubectl apply -f -`"), "{own}");
    let (quoted, _) = advice(Some("o'brien; rm -rf / ")).await;
    assert!(quoted.contains(r"--user 'o'\''brien; rm -rf / ' | kubectl"), "{quoted}");
    let (hidden, shown) = advice(Some("a\u{202e}b")).await;
    assert!(!hidden.contains("--user"), "no command for a name with control characters: {hidden}");
    assert!(shown.out.contains("a\u{fffd}b"), "{}", shown.out);
    let (broken, shown) = advice(Some("a\nb\u{1b}[31m")).await;
    assert!(!broken.contains("--user") && !broken.contains('\n'), "{broken}");
    assert!(!shown.out.contains('\u{1b}') && shown.out.contains("a b\n"), "{}", shown.out);
    let (anonymous, _) = advice(Some("system:anonymous")).await;
    assert!(anonymous.contains("knows none of the credentials") && !anonymous.contains("rbac"), "{anonymous}");
    // Without `SelfSubjectReview`, the advice is for the account that `rbac` prints, and the missing review is not a
    // finding.
    let (unknown, shown) = advice(None).await;
    assert!(unknown.contains("--cluster one | kubectl apply -f -`"), "{unknown}");
    assert!(shown.out.contains("1 cluster: 2 errors, 0 warnings") && shown.out.contains(" unknown\n"), "{}", shown.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_command_of_the_advice_prints_the_permissions() {
    let sim = forbidding(Some("o'brien $(id)"));
    let dir = Workdir::with(&format!("{}[resources.nodes]\n", cluster("one", &sim.url())));
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    let advice = report["clusters"][0]["findings"][0]["advice"].as_str().unwrap();
    let command = advice.split_once("`informer-hub ").unwrap().1.split_once(" | kubectl").unwrap().0;
    let script = format!("{} {command}", env!("CARGO_BIN_EXE_informer-hub"));
    let outcome = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
    let out = String::from_utf8(outcome.stdout).unwrap();
    let documents: Vec<Value> =
        out.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    let [role, binding] = &documents[..] else { panic!("{out}") };
    assert_eq!((&role["kind"], &role["rules"][0]["resources"]), (&json!("ClusterRole"), &json!(["nodes"])));
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "o'brien $(id)" });
    assert_eq!(binding["subjects"], json!([subject]), "{out}");
}

fn source_findings(report: &Value) -> Vec<String> {
    let all = report["clusterSources"].as_array().unwrap().iter().flat_map(|it| it["findings"].as_array().unwrap());
    all.map(|it| format!("{} {}: {}", it["level"], it["about"].as_str().unwrap(), it["problem"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_includes_sources_and_their_clusters() {
    let (management, brought) = (sim(0), sim(7));
    let secrets = Gvr::new("", "v1", "secrets");
    let secret = |name: &str, server: &str, config: &str| {
        let data = [("name", name), ("server", server), ("config", config)];
        let data: serde_json::Map<_, _> =
            data.into_iter().map(|(key, text)| (key.to_owned(), Value::from(STANDARD.encode(text)))).collect();
        json!({ "metadata": { "labels": { "argocd.argoproj.io/secret-type": "cluster" } }, "data": data })
    };
    management.with_world(|world| {
        world.register(ResourceDef::new(&secrets, "Secret", true, false));
        world.create(&secrets, "argocd", "a", secret("spoke", &brought.url(), "{}")).unwrap();
        world.create(&secrets, "argocd", "b", secret("spoke", &brought.url(), "{}")).unwrap();
        world.create(&secrets, "argocd", "c", secret("eks", "https://x", "{\"awsAuthConfig\":{}}")).unwrap();
    });
    let toml = format!(
        "[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nserver = \"{}\"\n\
         [cluster_sources.files]\ntype = \"folder\"\npath = \"nowhere\"\n\
         [resources.pods]\n[resources.po]\nclusters = [\"later\"]\n",
        management.url()
    );
    let dir = Workdir::with(&toml);
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let report = json(&outcome);
    let found = source_findings(&report);
    let [eks, twin, folder] = &found[..] else { panic!("{found:#?}") };
    assert!(
        twin.contains("cluster_sources.argo: Secret argocd/b: the name spoke belongs to Secret argocd/a"),
        "{twin}"
    );
    assert!(eks.contains("cluster_sources.argo: Secret argocd/c: data.config has awsAuthConfig"), "{eks}");
    assert!(folder.contains("cluster_sources.files: cannot read the folder") && folder.contains("nowhere"), "{folder}");
    let argo = &report["clusterSources"][0];
    assert_eq!((&argo["clusters"], &argo["conflicting"], &argo["invalid"]), (&json!(["spoke"]), &json!(1), &json!(1)));
    let spoke = &report["clusters"][0];
    assert_eq!((&spoke["cluster"], &spoke["source"]), (&json!("spoke"), &json!("argo")));
    assert_eq!(spoke["resources"][0]["scopes"][0]["objects"], 7);
    let later = findings(&report);
    assert!(
        later.iter().any(|it| it.contains("resources.po.clusters: there is currently no cluster later")),
        "{later:?}"
    );
    let text = dir.run(&["check", "-c", "hub.toml"]).await.out;
    assert!(text.contains("SOURCE") && text.contains("argo"), "{text}");
    brought.forbid(&World::pods(), true);
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    let advice = report["clusters"][0]["findings"][0]["advice"].as_str().unwrap();
    assert!(advice.contains("prints for clusters of sources") && !advice.contains("--cluster"), "{advice}");
    management.forbid(&secrets, true);
    let report = json(&dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await);
    let found = source_findings(&report);
    assert!(found.iter().any(|it| it.contains("may not list secrets in any namespace")), "{found:?}");
    assert_eq!(report["clusters"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_warns_of_a_disabled_certificate_verification() {
    let sim = sim(1);
    let kubeconfig = |insecure: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{}'{insecure}}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
            sim.url()
        )
    };
    let toml = "[clusters.one]\nkubeconfig = \"kube\"\n[resources.pods]\n";
    let dir = Workdir::with(toml).file("kube", &kubeconfig(", insecure-skip-tls-verify: true"));
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    let found = findings(&json(&outcome));
    let warned = |it: &String| it.starts_with("\"warning\" clusters.one: insecure-skip-tls-verify is set");
    assert!(outcome.code == 1 && found.iter().any(warned), "{outcome:?}");
    let dir = dir.file("kube", &kubeconfig(""));
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!((outcome.code, findings(&json(&outcome))), (0, Vec::new()), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_read_api_is_a_warning() {
    let sim = sim(3);
    let found = async |hub: &str| {
        let toml = format!("[hub]\n{hub}\n{}[resources.pods]\n", cluster("one", &sim.url()));
        let outcome = Workdir::with(&toml).run(&["check", "-c", "hub.toml", "-o", "json"]).await;
        (outcome.code, findings(&json(&outcome)))
    };
    let open = "listen = \"0.0.0.0:7080\"\nauth = { allow_unauthenticated = true }";
    let warning = "\"warning\" hub.read_api: every client that reaches 0.0.0.0:7080 can read all cached objects";
    assert_eq!(found(open).await, (1, vec![warning.to_owned()]));
    let secrets = found(&format!("{open}\nread_api = {{ serve_secrets = true }}")).await;
    assert_eq!(secrets, (1, vec![format!("{warning}, Secrets included")]));
    for closed in ["listen = \"127.0.0.1:7080\"", &format!("{open}\nread_api = {{ enabled = false }}")] {
        assert_eq!(found(closed).await, (0, Vec::new()), "{closed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_without_effect_are_warnings() {
    let sim = sim(3);
    let labelled = |name: &str| format!("{}labels = {{ tier = \"prod\" }}\n", cluster(name, &sim.url()));
    let toml = format!(
        "[hub]\nlisten = \"0.0.0.0:7080\"\n{}[resources.po]\nnamespaces = [\"shop\"]\n[resources.nodes]\nclusters = [\"one\"]\n\
         [readers.idle]\ntoken = {{ file = \"idle\" }}\n\
         [readers.fine]\ntoken = {{ file = \"fine\" }}\nallow = [{{}}, {{ clusters = {{ tier = \"prod\" }}, resources = [\"pods\", \"*\"], \
         namespaces = [\"sh*\"] }}]\n\
         [readers.lost]\ntoken = {{ file = \"lost\" }}\nallow = [\
         {{ resources = [\"deployments.apps\", \"*.example.com\", \"nodes\"] }}, {{ resources = [\"pods\"], namespaces = [\"pay\", \"shop\"] }}]\n",
        labelled("one") + &labelled("two"),
    );
    let dir = ["idle", "fine", "lost"]
        .iter()
        .fold(Workdir::with(&toml), |dir, name| dir.file(name, &format!("{name}-0123456789abcdef")));
    let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let expected = [
        "\"warning\" readers.idle: has no rule, so it reads nothing",
        "\"warning\" readers.lost.allow[0].resources: no entry of [resources] has deployments.apps in the clusters of the rule",
        "\"warning\" readers.lost.allow[0].resources: no entry of [resources] has *.example.com in the clusters of the rule",
        "\"warning\" readers.lost.allow[1].namespaces: no entry of [resources] watches a namespace pay",
    ];
    // The readers guard the port, so it is not reported as open.
    assert_eq!(findings(&json(&outcome)), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_right_to_review_and_unusable_issuer_are_errors() {
    let sim = sim(3);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toml = format!(
        "[hub.authorization]\nkubernetes = {{ mode = \"subject-access-review\" }}\ntoken_review = {{ clusters = [\"one\"] }}\n\
         [oidc]\nissuer = \"http://{closed}\"\naudience = \"hub\"\n[readers.sre]\noidc_group = \"sre\"\n{}{}[resources.pods]\n",
        cluster("one", &sim.url()),
        cluster("two", &sim.url())
    );
    let dir = Workdir::with(&toml);
    let found = async || {
        let outcome = dir.run(&["check", "-c", "hub.toml", "-o", "json"]).await;
        assert_eq!(outcome.code, 2, "{outcome:?}");
        findings(&json(&outcome))
    };
    // Clusters decide about the rights of this reader's users, so the reader is not reported for having no rules.
    let issuer = found().await;
    let [issuer] = &issuer[..] else { panic!("{issuer:?}") };
    let start = format!(
        "\"error\" oidc.issuer: cannot use the keys of http://{closed}: cannot fetch http://{closed}/.well-known/"
    );
    assert!(issuer.starts_with(&start), "{issuer}");
    sim.forbid(&Gvr::new("authorization.k8s.io", "v1", "subjectaccessreviews"), true);
    sim.forbid(&Gvr::new("authentication.k8s.io", "v1", "tokenreviews"), true);
    let found = found().await;
    let of = |cluster: &str, review: &str| {
        format!(
            "\"error\" clusters.{cluster}: may not create {review}, which [hub.authorization] needs: readers whose rights \
             depend on it see nothing of the cluster"
        )
    };
    let (access, token) = ("subjectaccessreviews.authorization.k8s.io", "tokenreviews.authentication.k8s.io");
    assert_eq!(found[..3], [of("one", access), of("one", token), of("two", access)], "{found:?}");
}

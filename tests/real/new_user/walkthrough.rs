//! Test of the documented steps from a kubeconfig to a running hub, then of changes at runtime.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub_sim::oracle::Oracle;
use informer_hub_types::ApiResource;
use kube::Client;
use serde_json::{Value, json};

use super::audit::Audit;
use crate::bed::{
    RealCluster, becomes_true, create_namespace, create_pod, create_pods, create_widgets, delete_now, ground_truth,
    install_widgets, pods as pods_of, uninstall_widgets,
};
use crate::fixture::{WAIT_DEADLINE, origin, pods, widgets};
use crate::rbac::{apply, token};
use crate::receiver::Receiver;
use crate::workdir::{Running, Workdir};

const WIDGETS: &str = "widgets.bed.example.com";

/// Service account that `rbac` creates.
const ACCOUNT: &str = "system:serviceaccount:informer-hub:informer-hub";

/// Returns a kubeconfig whose users have token files.
fn kubeconfig(clusters: &[RealCluster]) -> String {
    let named = |key: &str, value: &dyn Fn(&RealCluster) -> Value| {
        clusters.iter().map(|it| json!({ "name": it.name(), key: value(it) })).collect::<Vec<_>>()
    };
    let ca = |cluster: &RealCluster| STANDARD.encode(std::fs::read(cluster.ca()).unwrap());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": clusters[0].name(),
        "clusters": named("cluster", &|it| json!({ "server": it.url(), "certificate-authority-data": ca(it) })),
        // Relative to the kubeconfig's folder.
        "users": named("user", &|it| json!({ "tokenFile": format!("{}.token", it.name()) })),
        "contexts": named("context", &|it| json!({ "cluster": it.name(), "user": it.name() })),
    });
    serde_json::to_string_pretty(&config).unwrap()
}

/// State of the walkthrough: the user's folder, a receiver, and three clusters with audit logs.
struct Walkthrough {
    workdir: Workdir,
    receiver: Receiver,
    clusters: [RealCluster; 3],
    clients: Vec<Client>,
    audits: [Audit; 3],
}

impl Walkthrough {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let audits = [Audit::new(), Audit::new(), Audit::new()];
        let [eu, us, ap] = [0, 1, 2].map(|at| audits[at].flags());
        let clusters = RealCluster::start_all_with([("prod-eu", eu), ("prod-us", us), ("prod-ap", ap)]).await;
        let mut clients = Vec::new();
        for cluster in &clusters {
            let client = cluster.client().await;
            install_widgets(&client).await;
            create_namespace(&client, "shop").await;
            create_pods(&client, "shop", "web", 12).await;
            create_widgets(&client, "shop", "part", 3).await;
            clients.push(client);
        }
        let (workdir, receiver) = (Workdir::new(), Receiver::start().await);
        workdir.write(".kube/config", &kubeconfig(&clusters[..2]));
        for cluster in &clusters {
            workdir.write(&format!(".kube/{}.token", cluster.name()), cluster.token("limited"));
        }
        Self { workdir, receiver, clusters, clients, audits }
    }

    /// Appends to `hub.toml`.
    fn add(&self, text: &str) {
        self.workdir.write("hub.toml", &(self.workdir.read("hub.toml") + text));
    }

    /// Applies the output of `rbac` to a cluster, and writes a token of the account to the user's token file.
    async fn grant(&self, at: usize) {
        let (name, client) = (self.clusters[at].name(), &self.clients[at]);
        create_namespace(client, "informer-hub").await;
        let printed = self.workdir.printed(&["rbac", "-c", "hub.toml", "--cluster", name]);
        for document in printed.split("---\n").skip(1) {
            apply(client, &serde_saphyr::from_str(document).unwrap()).await;
        }
        self.workdir.write(&format!(".kube/{name}.token"), &token(client).await);
    }

    /// Runs the command that `check` suggests to grant the kubeconfig's user the rights, and verifies the effect.
    ///
    /// The rights are revoked again, since the hub uses its own account later.
    async fn follow_suggested_grant(&self, output: &str) {
        let command =
            "informer-hub rbac -c hub.toml --cluster prod-eu --user limited | kubectl --kubeconfig ADMIN apply -f -";
        assert!(output.contains(&format!("`{command}`")), "{command} is missing in\n{output}");
        let (rbac, _) = command.split_once(" | ").unwrap();
        let rbac = rbac.replacen("informer-hub", env!("CARGO_BIN_EXE_informer-hub"), 1);
        let printed = self.workdir.shell(&rbac);
        let objects: Vec<Value> =
            printed.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        for object in &objects {
            apply(&self.clients[0], object).await;
        }
        self.workdir
            .shows(&["check", "-c", "hub.toml", "--cluster", "prod-eu"], |output| {
                output.contains("1 cluster: 0 errors")
            })
            .await;
        for object in objects.iter().filter(|object| object["kind"] == "ClusterRoleBinding") {
            let mut object = object.clone();
            object["subjects"] = json!([]);
            apply(&self.clients[0], &object).await;
        }
        self.workdir
            .shows(&["check", "-c", "hub.toml", "--cluster", "prod-eu"], |output| output.contains("may not list pods"))
            .await;
    }

    /// Waits until the receiver's replica equals a cluster's objects.
    async fn wait_until_delivered(&self, at: usize, resource: &ApiResource) {
        let (name, truth) = (self.clusters[at].name(), ground_truth(&self.clients[at], &resource.gvr).await);
        let differences = || Oracle::diff(&truth, &self.receiver.replica().lock().seen_of(&origin(name, resource)));
        let agrees = becomes_true(WAIT_DEADLINE, async || differences().is_empty()).await;
        assert!(agrees, "the receiver's {} of {name}: {:?}", resource.gvr, differences());
    }

    fn lists(&self) -> Vec<BTreeMap<String, usize>> {
        self.audits.iter().map(|audit| audit.lists(ACCOUNT)).collect()
    }

    /// Creates the configuration from a kubeconfig and grants rights until `check` passes.
    async fn set_up(&self) {
        let workdir = &self.workdir;
        let imported = workdir.printed(&["import-kubeconfig", "--context", "prod-*"]);
        for part in ["[clusters.prod-eu]", "[clusters.prod-us]", "context = \"prod-us\"", "[resources.pods]"] {
            assert!(imported.contains(part), "{part} is missing in\n{imported}");
        }
        assert!(!imported.contains(self.clusters[0].token("limited")), "{imported}");
        let listen = format!("[hub]\nlisten = \"{}\"\nstate_dir = \"state\"\n", workdir.listen());
        workdir.write("hub.toml", &(imported + "\n[resources.\"widgets.bed.example.com\"]\n\n" + &listen));
        self.add(&format!(
            "\n[sinks.audit]\ntype = \"webhook\"\nurl = \"{}\"\ninitial = \"replay\"\nbatch = {{ max_wait = \"50ms\" }}\n",
            self.receiver.url()
        ));
        // The kubeconfig's user has no rights yet.
        let refused = workdir.run(&["check", "-c", "hub.toml"]);
        let output = String::from_utf8(refused.stdout).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{output}");
        for part in ["may not list pods", "may not watch widgets.bed.example.com", "\n2 clusters: "] {
            assert!(output.contains(part), "{part} is missing in\n{output}");
        }
        self.follow_suggested_grant(&output).await;
        for at in [0, 1] {
            self.grant(at).await;
        }
        workdir
            .shows(&["check", "-c", "hub.toml"], |output| {
                output.contains("2 clusters: 0 errors, 0 warnings; 30 objects")
            })
            .await;
        assert_eq!(workdir.run(&["check", "-c", "hub.toml"]).status.code(), Some(0));
    }

    /// Verifies the output of the status commands of a healthy hub.
    async fn verify_status(&self) {
        let workdir = &self.workdir;
        workdir
            .shows(&["status"], |output| {
                output.contains("ready      yes")
                    && output.contains("clusters   2 (2 connected)")
                    && output.contains("4 watching")
            })
            .await;
        assert!(
            !workdir.printed(&["status"]).contains("WHAT"),
            "the status lists problems: {}",
            workdir.printed(&["status"])
        );
        assert_eq!(workdir.printed(&["clusters", "-o", "name"]), "cluster/prod-eu\ncluster/prod-us\n");
        let resources = workdir.printed(&["resources", "--cluster", "prod-eu"]);
        assert_eq!(resources.lines().count(), 3, "{resources}");
        let clusters = workdir.json(&["clusters"]);
        assert_eq!(clusters[0]["informers"].as_array().map(Vec::len), Some(2), "{clusters:#}");
        workdir
            .shows(&["sinks"], |output| {
                output.contains("audit") && output.contains("delivering") && output.contains(" 30 ")
            })
            .await;
    }

    /// Adds a cluster to the file; the hub reloads by itself.
    async fn add_cluster(&self, hub: &Running) {
        self.workdir.write(".kube/config", &kubeconfig(&self.clusters));
        let table = self.workdir.printed(&["import-kubeconfig", "--context", "prod-ap", "--clusters-only"]);
        let (head, tables): (Vec<_>, Vec<_>) = table.lines().partition(|line| line.starts_with('#'));
        assert!(!head.is_empty(), "{table}");
        self.add(&(String::from("\n") + &tables.join("\n") + "\n"));
        hub.prints(&["prod-ap", "forbidden"]).await;
        // One row for the cluster as soon as all of its resources are refused.
        let rows = ["resource  prod-ap/pods", "cluster  prod-ap  forbidden"];
        self.workdir.shows(&["status"], |output| rows.iter().any(|row| output.contains(row))).await;
        self.grant(2).await;
        self.workdir.shows(&["status"], |output| output.contains("6 watching") && !output.contains("WHAT")).await;
        self.wait_until_delivered(2, &pods()).await;
        self.wait_until_delivered(2, &widgets()).await;
    }

    /// Deletes a CRD with its objects and installs it again.
    async fn delete_definition(&self, watching: &Running) {
        let client = &self.clients[0];
        uninstall_widgets(client).await;
        self.workdir.shows(&["status"], |output| output.contains("its definition was deleted")).await;
        watching.prints(&["resource prod-eu/widgets.bed.example.com: absent", "its definition was deleted"]).await;
        let removed = || self.receiver.replica().lock().seen_of(&origin("prod-eu", &widgets())).is_empty();
        assert!(becomes_true(WAIT_DEADLINE, async || removed()).await, "the receiver got a deletion of every object");
        install_widgets(client).await;
        create_widgets(client, "shop", "new", 2).await;
        self.wait_until_delivered(0, &widgets()).await;
        watching.prints(&["resource prod-eu/widgets.bed.example.com: no longer in trouble"]).await;
        self.workdir.shows(&["resources", WIDGETS, "--cluster", "prod-eu"], |output| output.contains("watching")).await;
    }

    /// Kills a cluster after one of its resources became absent.
    async fn lose_cluster(&mut self, watching: &Running) {
        uninstall_widgets(&self.clients[1]).await;
        watching.prints(&["resource prod-us/widgets.bed.example.com: absent"]).await;
        self.clusters[1].kill();
        self.workdir
            .shows(&["clusters", "prod-us"], |output| output.contains("unreachable") && output.contains("refused"))
            .await;
        self.workdir.shows(&["status"], |output| output.contains("clusters   3 (2 connected, 1 unreachable)")).await;
        watching.prints(&["cluster prod-us: unreachable"]).await;
        let (code, body) = self.workdir.get("/readyz").await;
        assert!(code == 200 && body.contains("prod-us"), "{code}: {body}");
    }

    /// Writes an invalid configuration, verifies that it is refused and reported, and restores it.
    async fn break_configuration(&self, hub: &Running, watching: &Running) {
        let right = self.workdir.read("hub.toml");
        self.workdir.write("hub.toml", &right.replace("[resources.pods]", "[resources.pods]\nlable_selector = \"a\""));
        hub.prints(&["ERROR", "lable_selector", "label_selector"]).await;
        self.workdir.shows(&["status"], |output| output.contains("hub") && output.contains("refused")).await;
        watching.prints(&["hub configuration: refused", "label_selector"]).await;
        let successful = "informer_hub_config_last_reload_successful";
        assert_eq!(self.workdir.metric(successful).await, Some(0.0));
        let (code, status) = self.workdir.get("/v1/status").await;
        assert!(code == 200 && status.contains("label_selector"), "{status}");
        assert_eq!(self.workdir.run(&["check", "-c", "hub.toml"]).status.code(), Some(2));
        // The previous configuration stays in force.
        create_pod(&self.clients[1], "shop", "meanwhile").await;
        self.wait_until_delivered(1, &pods()).await;
        self.workdir.write("hub.toml", &right);
        watching.prints(&["hub configuration: no longer in trouble"]).await;
        assert_eq!(self.workdir.metric(successful).await, Some(1.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn documented_steps_lead_to_a_hub_that_follows_changes_without_extra_lists() {
    let mut walkthrough = Walkthrough::start().await;
    walkthrough.set_up().await;
    let before = walkthrough.lists();
    let mut hub = walkthrough.workdir.hub();
    walkthrough.workdir.ready(&hub).await;
    for at in [0, 1] {
        walkthrough.wait_until_delivered(at, &pods()).await;
        walkthrough.wait_until_delivered(at, &widgets()).await;
    }
    walkthrough.verify_status().await;
    let watching = walkthrough.workdir.watching(&["status", "--watch", "--interval", "100ms"]);
    watching.prints(&["nothing is in trouble"]).await;

    walkthrough.add_cluster(&hub).await;
    walkthrough.delete_definition(&watching).await;
    walkthrough.break_configuration(&hub, &watching).await;

    create_pods(&walkthrough.clients[0], "shop", "late", 3).await;
    delete_now(&pods_of(&walkthrough.clients[0], "shop"), "web-3").await;
    walkthrough.wait_until_delivered(0, &pods()).await;
    walkthrough.lose_cluster(&watching).await;
    assert_eq!(hub.terminate().await, 0);
    let errors = hub.lines_with("\"ERROR\"");
    let [refused, mistake] = &errors[..] else { panic!("expected one refused file with one mistake: {errors:?}") };
    assert!(refused.contains("the configuration is not usable"), "{refused}");
    assert!(mistake.contains("resources.pods.lable_selector") && mistake.contains("did you mean"), "{mistake}");
    assert_eq!(walkthrough.receiver.replica().lock().violations(), &[] as &[String]);

    // The hub's lists, without those of `check`: one of each resource, and two of the reinstalled one.
    let definitions = [("apiservices".to_owned(), 1), ("customresourcedefinitions".to_owned(), 1)];
    let lists = |at: usize| {
        let mut lists = walkthrough.lists()[at].clone();
        for (resource, count) in &before[at] {
            *lists.get_mut(resource).unwrap() -= count;
        }
        lists
    };
    let expected = |pods: usize, widgets: usize| {
        let own = [("pods".to_owned(), pods), ("widgets".to_owned(), widgets)];
        definitions.iter().cloned().chain(own).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(lists(0), expected(1, 2), "prod-eu, where the CRD was reinstalled");
    assert_eq!(lists(1), expected(1, 1), "prod-us, without changes");
    // Lists of definitions are left out: whether the hub watches them by now depends on when the last request was
    // refused.
    let own = lists(2).into_iter().filter(|(resource, _)| resource == "pods" || resource == "widgets");
    let once = [("pods".to_owned(), 1), ("widgets".to_owned(), 1)];
    assert_eq!(own.collect::<BTreeMap<_, _>>(), BTreeMap::from(once), "prod-ap, which refused the first requests");
}

//! From a kubeconfig to a running hub, then what changes under it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub_sim::oracle::Oracle;
use informer_hub_types::ApiResource;
use kube::Client;
use serde_json::{Value, json};

use super::audit::Audit;
use super::desk::{Desk, Running};
use crate::bed::{
    RealCluster, comes_true, create_namespace, create_pod, create_pods, create_widgets, delete_now, install_widgets,
    pods as pods_of, truth, uninstall_widgets,
};
use crate::fleet::{PATIENCE, origin, pods, widgets};
use crate::rbac::{apply, token};
use crate::receiver::Receiver;

const WIDGETS: &str = "widgets.bed.example.com";

/// The account that `rbac` makes.
const ACCOUNT: &str = "system:serviceaccount:informer-hub:informer-hub";

/// A kubeconfig as kubectl writes it, whose users have tokens in files.
fn kubeconfig(clusters: &[RealCluster]) -> String {
    let named = |key: &str, value: &dyn Fn(&RealCluster) -> Value| {
        clusters.iter().map(|it| json!({ "name": it.name(), key: value(it) })).collect::<Vec<_>>()
    };
    let ca = |cluster: &RealCluster| STANDARD.encode(std::fs::read(cluster.ca()).unwrap());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": clusters[0].name(),
        "clusters": named("cluster", &|it| json!({ "server": it.url(), "certificate-authority-data": ca(it) })),
        // Relative to the kubeconfig.
        "users": named("user", &|it| json!({ "tokenFile": format!("{}.token", it.name()) })),
        "contexts": named("context", &|it| json!({ "cluster": it.name(), "user": it.name() })),
    });
    serde_json::to_string_pretty(&config).unwrap()
}

/// The user's side of the story.
struct Story {
    desk: Desk,
    receiver: Receiver,
    clusters: [RealCluster; 3],
    clients: Vec<Client>,
    audits: [Audit; 3],
}

impl Story {
    async fn begin() -> Self {
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
        let (desk, receiver) = (Desk::new(), Receiver::start().await);
        desk.write(".kube/config", &kubeconfig(&clusters[..2]));
        for cluster in &clusters {
            desk.write(&format!(".kube/{}.token", cluster.name()), cluster.token("limited"));
        }
        Self { desk, receiver, clusters, clients, audits }
    }

    /// Appends to `hub.toml`.
    fn add(&self, text: &str) {
        self.desk.write("hub.toml", &(self.desk.read("hub.toml") + text));
    }

    /// What `rbac` prints for a cluster, applied there by its administrator, and a token of the account in the user's
    /// file.
    async fn grant(&self, at: usize) {
        let (name, client) = (self.clusters[at].name(), &self.clients[at]);
        create_namespace(client, "informer-hub").await;
        let printed = self.desk.printed(&["rbac", "-c", "hub.toml", "--cluster", name]);
        for document in printed.split("---\n").skip(1) {
            apply(client, &serde_saphyr::from_str(document).unwrap()).await;
        }
        self.desk.write(&format!(".kube/{name}.token"), &token(client).await);
    }

    /// What `check` advises gives the kubeconfig's user the rights: its command, run by a shell, and applied by the
    /// cluster's administrator. They are taken back, for the hub has an account of its own later on.
    async fn grants_the_user(&self, said: &str) {
        let command =
            "informer-hub rbac -c hub.toml --cluster prod-eu --user limited | kubectl --context prod-eu apply -f -";
        assert!(said.contains(&format!("`{command}`")), "{command} is missing in\n{said}");
        let (rbac, _) = command.split_once(" | ").unwrap();
        let rbac = rbac.replacen("informer-hub", env!("CARGO_BIN_EXE_informer-hub"), 1);
        let printed = self.desk.shell(&rbac);
        let objects: Vec<Value> =
            printed.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        for object in &objects {
            apply(&self.clients[0], object).await;
        }
        self.desk
            .shows(&["check", "-c", "hub.toml", "--cluster", "prod-eu"], |said| said.contains("1 cluster: 0 errors"))
            .await;
        for object in objects.iter().filter(|object| object["kind"] == "ClusterRoleBinding") {
            let mut object = object.clone();
            object["subjects"] = json!([]);
            apply(&self.clients[0], &object).await;
        }
        self.desk
            .shows(&["check", "-c", "hub.toml", "--cluster", "prod-eu"], |said| said.contains("may not list pods"))
            .await;
    }

    /// Waits until the receiver has what a cluster has.
    async fn agrees(&self, at: usize, resource: &ApiResource) {
        let (name, truth) = (self.clusters[at].name(), truth(&self.clients[at], &resource.gvr).await);
        let differences = || Oracle::diff(&truth, &self.receiver.replica().lock().seen_of(&origin(name, resource)));
        let agrees = comes_true(PATIENCE, async || differences().is_empty()).await;
        assert!(agrees, "the receiver's {} of {name}: {:?}", resource.gvr, differences());
    }

    fn lists(&self) -> Vec<BTreeMap<String, usize>> {
        self.audits.iter().map(|audit| audit.lists(ACCOUNT)).collect()
    }

    /// From a kubeconfig to a file that `check` has nothing to say about.
    async fn sets_up(&self) {
        let desk = &self.desk;
        let imported = desk.printed(&["import-kubeconfig", "--context", "prod-*"]);
        for part in ["[clusters.prod-eu]", "[clusters.prod-us]", "context = \"prod-us\"", "[resources.pods]"] {
            assert!(imported.contains(part), "{part} is missing in\n{imported}");
        }
        assert!(!imported.contains(self.clusters[0].token("limited")), "{imported}");
        let listen = format!("[hub]\nlisten = \"{}\"\nstate_dir = \"state\"\n", desk.listen());
        desk.write("hub.toml", &(imported + "\n[resources.\"widgets.bed.example.com\"]\n\n" + &listen));
        self.add(&format!(
            "\n[sinks.audit]\ntype = \"webhook\"\nurl = \"{}\"\ninitial = \"replay\"\nbatch = {{ max_wait = \"50ms\" }}\n",
            self.receiver.url()
        ));
        // Whoever the kubeconfig has may do nothing.
        let refused = desk.run(&["check", "-c", "hub.toml"]);
        let said = String::from_utf8(refused.stdout).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        for part in ["may not list pods", "may not watch widgets.bed.example.com", "\n2 clusters: "] {
            assert!(said.contains(part), "{part} is missing in\n{said}");
        }
        self.grants_the_user(&said).await;
        for at in [0, 1] {
            self.grant(at).await;
        }
        desk.shows(&["check", "-c", "hub.toml"], |said| said.contains("2 clusters: 0 errors, 0 warnings; 30 objects"))
            .await;
        assert_eq!(desk.run(&["check", "-c", "hub.toml"]).status.code(), Some(0));
    }

    /// What a running hub shows when all is well.
    async fn looks(&self) {
        let desk = &self.desk;
        desk.shows(&["status"], |said| {
            said.contains("ready      yes")
                && said.contains("clusters   2 (2 connected)")
                && said.contains("4 watching")
        })
        .await;
        assert!(!desk.printed(&["status"]).contains("WHAT"), "nothing is in trouble: {}", desk.printed(&["status"]));
        assert_eq!(desk.printed(&["clusters", "-o", "name"]), "cluster/prod-eu\ncluster/prod-us\n");
        let resources = desk.printed(&["resources", "--cluster", "prod-eu"]);
        assert_eq!(resources.lines().count(), 3, "{resources}");
        let clusters = desk.json(&["clusters"]);
        assert_eq!(clusters[0]["informers"].as_array().map(Vec::len), Some(2), "{clusters:#}");
        desk.shows(&["sinks"], |said| said.contains("audit") && said.contains("delivering") && said.contains(" 30 "))
            .await;
    }

    /// A table more in the file: it is seen by itself.
    async fn adds_a_cluster(&self, hub: &Running) {
        self.desk.write(".kube/config", &kubeconfig(&self.clusters));
        let table = self.desk.printed(&["import-kubeconfig", "--context", "prod-ap", "--clusters-only"]);
        let (head, tables): (Vec<_>, Vec<_>) = table.lines().partition(|line| line.starts_with('#'));
        assert!(!head.is_empty(), "{table}");
        self.add(&(String::from("\n") + &tables.join("\n") + "\n"));
        hub.says(&["prod-ap", "forbidden"]).await;
        self.desk.shows(&["status"], |said| said.contains("resource  prod-ap/pods")).await;
        self.grant(2).await;
        self.desk.shows(&["status"], |said| said.contains("6 watching") && !said.contains("WHAT")).await;
        self.agrees(2, &pods()).await;
        self.agrees(2, &widgets()).await;
    }

    /// A definition goes, with its objects, and comes back.
    async fn deletes_a_definition(&self, watching: &Running) {
        let client = &self.clients[0];
        uninstall_widgets(client).await;
        self.desk.shows(&["status"], |said| said.contains("its definition was deleted")).await;
        watching.says(&["resource prod-eu/widgets.bed.example.com: absent", "its definition was deleted"]).await;
        let gone = || self.receiver.replica().lock().seen_of(&origin("prod-eu", &widgets())).is_empty();
        assert!(comes_true(PATIENCE, async || gone()).await, "the receiver is told of every object");
        install_widgets(client).await;
        create_widgets(client, "shop", "new", 2).await;
        self.agrees(0, &widgets()).await;
        watching.says(&["resource prod-eu/widgets.bed.example.com: no longer in trouble"]).await;
        self.desk.shows(&["resources", WIDGETS, "--cluster", "prod-eu"], |said| said.contains("watching")).await;
    }

    /// A cluster goes away, of which one resource was absent already.
    async fn loses_a_cluster(&mut self, watching: &Running) {
        uninstall_widgets(&self.clients[1]).await;
        watching.says(&["resource prod-us/widgets.bed.example.com: absent"]).await;
        self.clusters[1].kill();
        self.desk
            .shows(&["clusters", "prod-us"], |said| said.contains("unreachable") && said.contains("refused"))
            .await;
        self.desk.shows(&["status"], |said| said.contains("clusters   3 (2 connected, 1 unreachable)")).await;
        watching.says(&["cluster prod-us: unreachable"]).await;
        let (code, said) = self.desk.get("/readyz").await;
        assert!(code == 200 && said.contains("prod-us"), "{code}: {said}");
    }

    /// A file that is wrong is refused, said to be, and mended.
    async fn breaks_the_file(&self, hub: &Running, watching: &Running) {
        let right = self.desk.read("hub.toml");
        self.desk.write("hub.toml", &right.replace("[resources.pods]", "[resources.pods]\nlable_selector = \"a\""));
        hub.says(&["ERROR", "lable_selector", "label_selector"]).await;
        self.desk.shows(&["status"], |said| said.contains("hub") && said.contains("refused")).await;
        watching.says(&["hub configuration: refused", "label_selector"]).await;
        let successful = "informer_hub_config_last_reload_successful";
        assert_eq!(self.desk.metric(successful).await, Some(0.0));
        let (code, status) = self.desk.get("/v1/status").await;
        assert!(code == 200 && status.contains("label_selector"), "{status}");
        assert_eq!(self.desk.run(&["check", "-c", "hub.toml"]).status.code(), Some(2));
        // What was in force still is.
        create_pod(&self.clients[1], "shop", "meanwhile").await;
        self.agrees(1, &pods()).await;
        self.desk.write("hub.toml", &right);
        watching.says(&["hub configuration: no longer in trouble"]).await;
        assert_eq!(self.desk.metric(successful).await, Some(1.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn from_a_kubeconfig_to_a_hub_that_follows_what_changes_and_lists_nothing_twice() {
    let mut story = Story::begin().await;
    story.sets_up().await;
    let before = story.lists();
    let mut hub = story.desk.hub();
    story.desk.ready(&hub).await;
    for at in [0, 1] {
        story.agrees(at, &pods()).await;
        story.agrees(at, &widgets()).await;
    }
    story.looks().await;
    let watching = story.desk.watching(&["status", "--watch", "--interval", "100ms"]);
    watching.says(&["nothing is in trouble"]).await;

    story.adds_a_cluster(&hub).await;
    story.deletes_a_definition(&watching).await;
    story.breaks_the_file(&hub, &watching).await;

    create_pods(&story.clients[0], "shop", "late", 3).await;
    delete_now(&pods_of(&story.clients[0], "shop"), "web-3").await;
    story.agrees(0, &pods()).await;
    story.loses_a_cluster(&watching).await;
    assert_eq!(hub.ended().await, 0);
    let errors = hub.with("\"ERROR\"");
    let [refused, mistake] = &errors[..] else { panic!("the file alone, and its one mistake: {errors:?}") };
    assert!(refused.contains("the configuration is not usable"), "{refused}");
    assert!(mistake.contains("resources.pods.lable_selector") && mistake.contains("did you mean"), "{mistake}");
    assert_eq!(story.receiver.replica().lock().violations(), &[] as &[String]);

    // What `check` has asked comes before; but for that each was listed once, and what came back once more.
    let signals = [("apiservices".to_owned(), 1), ("customresourcedefinitions".to_owned(), 1)];
    let lists = |at: usize| {
        let mut lists = story.lists()[at].clone();
        for (resource, count) in &before[at] {
            *lists.get_mut(resource).unwrap() -= count;
        }
        lists
    };
    let expected = |pods: usize, widgets: usize| {
        let own = [("pods".to_owned(), pods), ("widgets".to_owned(), widgets)];
        signals.iter().cloned().chain(own).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(lists(0), expected(1, 2), "prod-eu, where the widgets came back");
    assert_eq!(lists(1), expected(1, 1), "prod-us, where nothing happened");
    // Whether definitions are watched by now depends on when they were refused last.
    let own = lists(2).into_iter().filter(|(resource, _)| resource == "pods" || resource == "widgets");
    let once = [("pods".to_owned(), 1), ("widgets".to_owned(), 1)];
    assert_eq!(own.collect::<BTreeMap<_, _>>(), BTreeMap::from(once), "prod-ap, which refused whoever asked at first");
}

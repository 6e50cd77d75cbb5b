//! Two clusters with different rights, their users, and the hub in front of them.

use std::fmt::Write as _;
use std::path::PathBuf;

use informer_hub_testing::tls::Ca;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::client::User;
use super::issuer::{AUDIENCE, Issuer};
use crate::bed::{RealCluster, create_namespace, create_pods};
use crate::rbac::{apply, token};
use crate::workdir::{Running, Workdir};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Clusters, hub and users of the tests. `jane` and the service account `grafana` of the namespace `tools` in `east`
/// see the namespace `shop` in `east`; `ada`, by her group, sees all of `west`; `eve` sees nothing. A service account
/// of the same name in `west` sees all of `west`.
pub(super) struct Fleet {
    pub(super) east: RealCluster,
    pub(super) west: RealCluster,
    pub(super) hub: Running,
    pub(super) workdir: Workdir,
    issuer: Issuer,
    grafana: String,
}

impl Fleet {
    /// Starts clusters, issuer and hub. The hub has the rights that `informer-hub rbac` prints.
    pub(super) async fn start() -> Self {
        let mut issuer = Issuer::start();
        let [east, west] = RealCluster::start_all_with([("east", issuer.flags()), ("west", issuer.flags())]).await;
        issuer.add_rsa(&east.ca().with_file_name("service-account.key"));
        let clients = [east.client().await, west.client().await];
        for (client, cluster) in clients.iter().zip([&east, &west]) {
            for namespace in ["shop", "pay", "tools", "informer-hub"] {
                create_namespace(client, namespace).await;
            }
            create_pods(client, "shop", "web", 5).await;
            create_pods(client, "pay", "bank", 3).await;
            for (namespace, name) in [("shop", "settings"), ("pay", "keys")] {
                let metadata = json!({ "name": name, "namespace": namespace });
                let data = json!({ "of": cluster.name() });
                apply(client, &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }))
                    .await;
            }
            apply(client, &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } })).await;
            let account = json!({ "name": "grafana", "namespace": "tools" });
            apply(client, &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await;
        }
        let account = json!({ "kind": "ServiceAccount", "name": "grafana", "namespace": "tools" });
        let person = |kind: &str, name: &str| json!({ "kind": kind, "apiGroup": RBAC, "name": name });
        grant(&clients[0], Some("shop"), &json!([account, person("User", "jane@example.com")])).await;
        grant(&clients[1], None, &json!([account, person("Group", "oidc:auditors")])).await;
        let grafana = account_token(&clients[0]).await;
        let (hub, workdir) = start_hub([&east, &west], &clients, &issuer).await;
        Self { east, west, hub, workdir, issuer, grafana }
    }

    /// Returns the token of a user.
    pub(super) fn token(&self, name: &str) -> String {
        match name {
            "jane" => self.issuer.token("jane@example.com", &["dev"], false),
            "ada" => self.issuer.token("ada@example.com", &["auditors", "system:masters"], true),
            "eve" => self.issuer.token("eve@example.com", &[], true),
            "grafana" => self.grafana.clone(),
            other => panic!("no user {other}"),
        }
    }

    /// Returns a user of the hub.
    pub(super) fn at_hub(&self, name: &str) -> User {
        self.with_token(&self.token(name))
    }

    /// Returns a user of the hub with this token.
    pub(super) fn with_token(&self, token: &str) -> User {
        User::new(self.workdir.url(), &self.hub_ca(), token)
    }

    /// Returns the file with the CA of the hub.
    pub(super) fn hub_ca(&self) -> PathBuf {
        self.workdir.path("hub-ca.pem")
    }

    /// Returns a user of an apiserver.
    pub(super) fn at(&self, cluster: &RealCluster, name: &str) -> User {
        User::new(cluster.url(), cluster.ca(), &self.token(name))
    }

    /// Returns a cluster by its name.
    pub(super) fn cluster(&self, name: &str) -> &RealCluster {
        if name == "east" { &self.east } else { &self.west }
    }
}

/// Grants some subjects reads of pods and ConfigMaps in a namespace, or of these and nodes in the whole cluster.
async fn grant(client: &Client, namespace: Option<&str>, subjects: &Value) {
    let (kind, resources) = match namespace {
        Some(_) => ("Role", json!(["pods", "configmaps"])),
        None => ("ClusterRole", json!(["pods", "configmaps", "nodes"])),
    };
    let mut metadata = json!({ "name": "readers" });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let rules = json!([{ "apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"] }]);
    let api = format!("{RBAC}/v1");
    apply(client, &json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules })).await;
    let role = json!({ "apiGroup": RBAC, "kind": kind, "name": "readers" });
    let kind = format!("{kind}Binding");
    apply(
        client,
        &json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "roleRef": role, "subjects": subjects }),
    )
    .await;
}

/// Returns a token of `grafana` that is valid for the hub and for the apiserver.
async fn account_token(client: &Client) -> String {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "tools");
    let audiences = Some(vec![AUDIENCE.to_owned(), "https://kubernetes.default.svc".to_owned()]);
    let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request("grafana", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

async fn start_hub(clusters: [&RealCluster; 2], clients: &[Client; 2], issuer: &Issuer) -> (Running, Workdir) {
    let (workdir, ca) = (Workdir::new(), Ca::new());
    let (certificate, key) = ca.issue("127.0.0.1");
    for (name, pem) in [("hub-ca.pem", ca.pem()), ("hub.pem", certificate), ("hub.key", key)] {
        workdir.write(name, &pem);
    }
    let file = workdir.path("hub-ca.pem");
    let workdir = workdir.with_tls(&file);
    let mut toml = format!(
        "[hub]\nlisten = \"{}\"\ntls = {{ cert_file = \"hub.pem\", key_file = \"hub.key\" }}\n[hub.authorization]\nkubernetes = {{ mode = \"subject-access-review\", cache = \"1s\" }}\n\
         token_review = {{ clusters = [\"east\"], audience = \"{AUDIENCE}\", cache = \"1s\" }}\n\
         [oidc]\nissuer = \"{}\"\naudience = \"{AUDIENCE}\"\nca_file = \"{}\"\nusername_claim = \"email\"\n\
         groups_prefix = \"oidc:\"\n[resources.pods]\n[resources.configmaps]\n[resources.nodes]\n",
        workdir.listen(),
        issuer.url(),
        issuer.ca().display()
    );
    for cluster in clusters {
        let (name, url, ca) = (cluster.name(), cluster.url(), cluster.ca().display());
        let _ = write!(
            toml,
            "[clusters.{name}]\nserver = \"{url}\"\nca_file = \"{ca}\"\ntoken = {{ file = \"{name}.token\" }}\n"
        );
    }
    workdir.write("hub.toml", &toml);
    for (cluster, client) in clusters.iter().zip(clients) {
        let printed = workdir.printed(&["rbac", "-c", "hub.toml", "--cluster", cluster.name()]);
        for document in printed.split("---\n").skip(1) {
            apply(client, &serde_saphyr::from_str(document).unwrap()).await;
        }
        workdir.write(&format!("{}.token", cluster.name()), &token(client).await);
    }
    let hub = workdir.hub();
    workdir.ready(&hub).await;
    (hub, workdir)
}

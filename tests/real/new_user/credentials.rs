//! Test of credential rotation: a token file, a plugin and a client certificate are replaced without a new list.

use informer_hub_testing::tls::Ca;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose};
use serde_json::{Value, json};

use super::audit::{Audit, Request, is_check};
use crate::bed::{RealCluster, becomes_true, create_namespace, create_pod, create_pods, delete_now};
use crate::fixture::WAIT_DEADLINE;
use crate::proxy::FaultProxy;
use crate::rbac::apply;
use crate::workdir::Workdir;

const NAMESPACE: &str = "rotation";

/// The hub's cluster names (all are one apiserver) and the user of each.
const CLUSTERS: [(&str, &str); 3] = [("token", "by-token"), ("exec", "by-exec"), ("cert", "by-cert")];

/// Exec plugin that records each call and prints `credential.json` from its folder.
const PLUGIN: &str = "#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo called >>calls && cat credential.json\n";

/// Issues a client certificate for a user of the group `certificates`, and returns it with its key.
fn certificate(ca: &Ca, user: &str) -> (String, String) {
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, user);
    leaf.distinguished_name.push(DnType::OrganizationName, "certificates");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    ca.issue_with(&leaf)
}

/// Creates the service accounts, and grants all three users the right to watch pods.
async fn grant(client: &Client) {
    create_namespace(client, NAMESPACE).await;
    let subject = |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE });
    for name in ["by-token", "by-exec"] {
        let metadata = json!({ "name": name, "namespace": NAMESPACE });
        apply(client, &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })).await;
    }
    let api = "rbac.authorization.k8s.io";
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"] }]);
    let group = json!({ "kind": "Group", "apiGroup": api, "name": "certificates" });
    apply(
        client,
        &json!({ "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": "pods" }, "rules": rules }),
    )
    .await;
    apply(
        client,
        &json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "pods" },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": "pods" },
            "subjects": [subject("by-token"), subject("by-exec"), group],
        }),
    )
    .await;
}

/// Requests a token that is valid as long as the secret of this name exists, and creates that secret.
async fn token(client: &Client, account: &str, secret: &str) -> String {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let made: Secret = serde_json::from_value(json!({ "metadata": { "name": secret } })).unwrap();
    let made = secrets.create(&PostParams::default(), &made).await.unwrap();
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        name: made.metadata.name.clone(),
        uid: made.uid(),
    };
    let spec = TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

/// Returns the plugin's output for a token.
fn credential(token: &str, good_for: SignedDuration) -> String {
    let expires = (Timestamp::now() + good_for).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": token, "expirationTimestamp": expires },
    })
    .to_string()
}

/// Returns a kubeconfig with one user.
fn kubeconfig(server: &str, cluster: &RealCluster, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority": cluster.ca() } }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    })
    .to_string()
}

fn write_certificate(workdir: &Workdir, (certificate, key): (String, String)) {
    workdir.write("client.key", &key);
    workdir.write("client.crt", &certificate);
}

/// Writes the hub's configuration and kubeconfigs, with `server` as the apiserver's URL.
fn set_up(workdir: &Workdir, cluster: &RealCluster, server: &str) {
    workdir.write("plugin.sh", PLUGIN);
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [workdir.path("plugin.sh")],
        "interactiveMode": "Never",
    });
    workdir.write("exec.kubeconfig", &kubeconfig(server, cluster, &json!({ "exec": plugin })));
    let files = json!({ "client-certificate": "client.crt", "client-key": "client.key" });
    workdir.write("cert.kubeconfig", &kubeconfig(server, cluster, &files));
    let ca = cluster.ca().display();
    workdir.write(
        "hub.toml",
        &format!(
            "[hub]\nlisten = \"{}\"\n[clusters.token]\nserver = \"{server}\"\nca_file = \"{ca}\"\n\
             token = {{ file = \"token\" }}\n[clusters.exec]\nkubeconfig = \"exec.kubeconfig\"\n\
             [clusters.cert]\nkubeconfig = \"cert.kubeconfig\"\n[resources.pods]\n",
            workdir.listen()
        ),
    );
}

/// Returns whether the apiserver rejects a token.
async fn is_refused(cluster: &RealCluster, token: &str) -> bool {
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap().replace(cluster.token("admin"), token);
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.unwrap();
    // Not a list, which the audit log would count as the hub's.
    let answer = Client::try_from(config).unwrap().apiserver_version().await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 401)
}

/// Waits until each cluster has `objects` objects and no error.
async fn wait_for_objects(workdir: &Workdir, objects: usize) {
    let matches = || {
        let clusters = workdir.json(&["clusters"]);
        CLUSTERS.iter().all(|(name, _)| {
            let cluster = clusters.as_array().unwrap().iter().find(|it| it["name"] == *name).unwrap();
            let informer = &cluster["informers"][0];
            informer["objects"] == objects && informer["state"] == "watching" && informer["lastError"].is_null()
        })
    };
    assert!(
        becomes_true(WAIT_DEADLINE, async || matches()).await,
        "not {objects}:\n{}",
        workdir.printed(&["resources"])
    );
}

fn pod_requests_of<'a>(requests: &'a [Request], user: &str) -> Vec<&'a Request> {
    requests.iter().filter(|it| it.user.contains(user) && it.resource == "pods").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rotated_credentials_take_effect_without_a_new_list() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (audit, workdir, ca) = (Audit::new(), Workdir::new(), Ca::new());
    workdir.write("clients.pem", &ca.pem());
    let mut flags = audit.flags();
    flags.push(format!("--client-ca-file={}", workdir.path("clients.pem").display()));
    let [cluster] = RealCluster::start_all_with([("rotation", flags)]).await;
    let client = cluster.client().await;
    grant(&client).await;
    create_namespace(&client, "shop").await;
    create_pods(&client, "shop", "web", 7).await;
    let proxy = FaultProxy::start(cluster.url()).await;

    let old = [token(&client, "by-token", "token-1").await, token(&client, "by-exec", "exec-1").await];
    workdir.write("token", &old[0]);
    // This token expires soon, so that the hub calls the plugin again.
    workdir.write("credential.json", &credential(&old[1], SignedDuration::from_secs(10)));
    write_certificate(&workdir, certificate(&ca, "by-cert-1"));
    set_up(&workdir, &cluster, &format!("https://{}", proxy.address()));
    let mut hub = workdir.hub();
    workdir.ready(&hub).await;
    wait_for_objects(&workdir, 7).await;
    let (first, calls) = (audit.requests(), workdir.read("calls").lines().count());
    for (_, user) in CLUSTERS {
        assert_eq!(
            pod_requests_of(&first, user).iter().filter(|it| it.is_list).count(),
            1,
            "{user}: {:#?}",
            pod_requests_of(&first, user)
        );
    }

    // Replace all credentials and revoke the old tokens.
    workdir.write("token", &token(&client, "by-token", "token-2").await);
    workdir.write(
        "credential.json",
        &credential(&token(&client, "by-exec", "exec-2").await, SignedDuration::from_hours(1)),
    );
    write_certificate(&workdir, certificate(&ca, "by-cert-2"));
    for secret in ["token-1", "exec-1"] {
        delete_now(&Api::<Secret>::namespaced(client.clone(), NAMESPACE), secret).await;
    }
    for old in &old {
        assert!(
            becomes_true(WAIT_DEADLINE, async || is_refused(&cluster, old).await).await,
            "an old token is still accepted"
        );
    }
    hub.prints(&["reloaded the credentials"]).await;
    // Open watches continue unchanged.
    create_pod(&client, "shop", "during").await;
    wait_for_objects(&workdir, 8).await;
    assert_eq!(audit.requests().iter().filter(|it| it.user.contains("by-") && it.is_list).count(), CLUSTERS.len());
    let before = audit.requests().len();
    assert!(proxy.reset_all().await >= CLUSTERS.len());
    create_pod(&client, "shop", "after").await;
    wait_for_objects(&workdir, 9).await;

    let since = audit.requests().split_off(before);
    for (_, user) in CLUSTERS {
        let (before, after) = (pod_requests_of(&first, user), pod_requests_of(&since, user));
        let reopens = |it: &&Request| !it.is_list && (it.uri.contains("watch=true") || is_check(&it.uri));
        assert!(!after.is_empty() && after.iter().all(reopens), "{after:#?}");
        let known_by = |it: &&Request| (it.user.clone(), it.credential.clone());
        assert_ne!(before.last().map(known_by), after.last().map(known_by), "{user} uses the new credential");
    }
    assert_eq!(
        pod_requests_of(&since, "by-cert-2").len(),
        pod_requests_of(&since, "by-cert").len(),
        "only the new certificate is used"
    );
    assert!(workdir.read("calls").lines().count() > calls, "the plugin is called again");
    assert!(hub.lines_with("\"ERROR\"").is_empty(), "{:?}", hub.lines_with("\"ERROR\""));
    assert_eq!(hub.terminate().await, 0);
    println!("{}", hub.lines_with("\"WARN\"").join("\n"));
    let secrets = [&old[0], &old[1], &workdir.read("token")].map(|it| it.trim().to_owned());
    assert!(!hub.lines().iter().any(|line| secrets.iter().any(|secret| line.contains(secret))), "a token in the log");
}

//! A token file, a plugin and a client certificate that rotate under a hub: in place, without a list.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde_json::{Value, json};

use super::audit::{Audit, Request};
use super::desk::Desk;
use crate::bed::{RealCluster, comes_true, create_namespace, create_pod, create_pods, delete_now};
use crate::fleet::PATIENCE;
use crate::proxy::FaultProxy;
use crate::rbac::apply;

const NAMESPACE: &str = "rotation";

/// Clusters of the hub's, which are one apiserver, and who each is there.
const WAYS: [(&str, &str); 3] = [("token", "by-token"), ("exec", "by-exec"), ("cert", "by-cert")];

/// A command that tells of each call. What it prints lies beside it.
const PLUGIN: &str = "#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo called >>calls && cat credential.json\n";

fn issuer() -> CertifiedIssuer<'static, KeyPair> {
    let mut ca = CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for somebody of the group `certificates`, and its key.
fn certificate(ca: &CertifiedIssuer<'static, KeyPair>, user: &str) -> (String, String) {
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, user);
    leaf.distinguished_name.push(DnType::OrganizationName, "certificates");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    (leaf.signed_by(&key, ca).unwrap().pem(), key.serialize_pem())
}

/// Accounts for the tokens, and the right to watch pods for all three.
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

/// A token that is good as long as a secret of this name is there.
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

/// What a plugin prints.
fn credential(token: &str, good_for: SignedDuration) -> String {
    let expires = (Timestamp::now() + good_for).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": token, "expirationTimestamp": expires },
    })
    .to_string()
}

/// A kubeconfig with one user.
fn kubeconfig(server: &str, cluster: &RealCluster, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority": cluster.ca() } }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    })
    .to_string()
}

fn write_certificate(desk: &Desk, (certificate, key): (String, String)) {
    desk.write("client.key", &key);
    desk.write("client.crt", &certificate);
}

/// Writes what the hub is started with, which goes to the apiserver by `server`.
fn set_up(desk: &Desk, cluster: &RealCluster, server: &str) {
    desk.write("plugin.sh", PLUGIN);
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [desk.path("plugin.sh")],
        "interactiveMode": "Never",
    });
    desk.write("exec.kubeconfig", &kubeconfig(server, cluster, &json!({ "exec": plugin })));
    let files = json!({ "client-certificate": "client.crt", "client-key": "client.key" });
    desk.write("cert.kubeconfig", &kubeconfig(server, cluster, &files));
    let ca = cluster.ca().display();
    desk.write(
        "hub.toml",
        &format!(
            "[hub]\nlisten = \"{}\"\n[clusters.token]\nserver = \"{server}\"\nca_file = \"{ca}\"\n\
             token = {{ file = \"token\" }}\n[clusters.exec]\nkubeconfig = \"exec.kubeconfig\"\n\
             [clusters.cert]\nkubeconfig = \"cert.kubeconfig\"\n[resources.pods]\n",
            desk.listen()
        ),
    );
}

/// Whether the apiserver no longer takes a token.
async fn is_refused(cluster: &RealCluster, token: &str) -> bool {
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap().replace(cluster.token("admin"), token);
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.unwrap();
    // No list, which would count as one of the hub's.
    let answer = Client::try_from(config).unwrap().apiserver_version().await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 401)
}

/// Waits until each way shows so many objects, and none an error.
async fn show(desk: &Desk, objects: usize) {
    let wanted = || {
        let clusters = desk.json(&["clusters"]);
        WAYS.iter().all(|(name, _)| {
            let cluster = clusters.as_array().unwrap().iter().find(|it| it["name"] == *name).unwrap();
            let informer = &cluster["informers"][0];
            informer["objects"] == objects && informer["state"] == "watching" && informer["lastError"].is_null()
        })
    };
    assert!(comes_true(PATIENCE, async || wanted()).await, "not {objects}:\n{}", desk.printed(&["resources"]));
}

fn of<'a>(requests: &'a [Request], user: &str) -> Vec<&'a Request> {
    requests.iter().filter(|it| it.user.contains(user) && it.resource == "pods").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_a_plugin_and_a_certificate_rotate_and_nothing_lists_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (audit, desk, ca) = (Audit::new(), Desk::new(), issuer());
    desk.write("clients.pem", &ca.pem());
    let mut flags = audit.flags();
    flags.push(format!("--client-ca-file={}", desk.path("clients.pem").display()));
    let [cluster] = RealCluster::start_all_with([("rotation", flags)]).await;
    let client = cluster.client().await;
    grant(&client).await;
    create_namespace(&client, "shop").await;
    create_pods(&client, "shop", "web", 7).await;
    let proxy = FaultProxy::start(cluster.url()).await;

    let old = [token(&client, "by-token", "token-1").await, token(&client, "by-exec", "exec-1").await];
    desk.write("token", &old[0]);
    // It has ended before the hub asks for the next one.
    desk.write("credential.json", &credential(&old[1], SignedDuration::from_secs(10)));
    write_certificate(&desk, certificate(&ca, "by-cert-1"));
    set_up(&desk, &cluster, &format!("https://{}", proxy.address()));
    let mut hub = desk.hub();
    desk.ready(&hub).await;
    show(&desk, 7).await;
    let (first, calls) = (audit.requests(), desk.read("calls").lines().count());
    for (_, user) in WAYS {
        assert_eq!(of(&first, user).iter().filter(|it| it.is_list).count(), 1, "{user}: {:#?}", of(&first, user));
    }

    // Everything is another; the old tokens are good no more.
    desk.write("token", &token(&client, "by-token", "token-2").await);
    desk.write(
        "credential.json",
        &credential(&token(&client, "by-exec", "exec-2").await, SignedDuration::from_hours(1)),
    );
    write_certificate(&desk, certificate(&ca, "by-cert-2"));
    for secret in ["token-1", "exec-1"] {
        delete_now(&Api::<Secret>::namespaced(client.clone(), NAMESPACE), secret).await;
    }
    for old in &old {
        assert!(comes_true(PATIENCE, async || is_refused(&cluster, old).await).await, "an old token is taken");
    }
    hub.says(&["reloaded the credentials"]).await;
    // Watches that were open have gone on, and are what they were.
    create_pod(&client, "shop", "during").await;
    show(&desk, 8).await;
    assert_eq!(audit.requests().iter().filter(|it| it.user.contains("by-") && it.is_list).count(), WAYS.len());
    let before = audit.requests().len();
    assert!(proxy.reset_all().await >= WAYS.len());
    create_pod(&client, "shop", "after").await;
    show(&desk, 9).await;

    let since = audit.requests().split_off(before);
    for (_, user) in WAYS {
        let (was, now) = (of(&first, user), of(&since, user));
        assert!(!now.is_empty() && now.iter().all(|it| !it.is_list && it.uri.contains("watch=true")), "{now:#?}");
        let known_by = |it: &&Request| (it.user.clone(), it.credential.clone());
        assert_ne!(was.last().map(known_by), now.last().map(known_by), "{user} is known by what is new");
    }
    assert_eq!(of(&since, "by-cert-2").len(), of(&since, "by-cert").len(), "the new certificate alone");
    assert!(desk.read("calls").lines().count() > calls, "the plugin is asked again");
    assert!(hub.with("\"ERROR\"").is_empty(), "{:?}", hub.with("\"ERROR\""));
    assert_eq!(hub.ended().await, 0);
    println!("{}", hub.with("\"WARN\"").join("\n"));
    let secrets = [&old[0], &old[1], &desk.read("token")].map(|it| it.trim().to_owned());
    assert!(!hub.lines().iter().any(|line| secrets.iter().any(|secret| line.contains(secret))), "a token in the log");
}

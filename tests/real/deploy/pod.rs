//! Test of the hub with the chart's arguments, configuration, tokens and account, in an environment like its pod.
//!
//! A mount namespace has the files where the chart mounts them, and everything else read-only. The test is skipped on
//! machines that do not permit such namespaces.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::{list, objects, of_kind, one, template};
use crate::bed::{RealCluster, becomes_true, create_namespace, create_pods, signal};
use crate::fixture::WAIT_DEADLINE;
use crate::rbac::{apply, token};

/// Shell script that mounts the files below `$0` as in the pod and executes its arguments.
const SCRIPT: &str = r#"
set -eu
for place in /etc /var/lib /run; do
    mount -t tmpfs tmpfs "$place"
done
mkdir /etc/informer-hub /var/lib/informer-hub
cp -R "$0/etc/." /etc/informer-hub/
mkdir -p /var/run/secrets/kubernetes.io
cp -R "$0/account" /var/run/secrets/kubernetes.io/serviceaccount
for place in / /etc /run; do
    mount -o remount,bind,ro "$place"
done
if touch /a-file 2>/dev/null || touch /etc/a-file 2>/dev/null; then exit 99; fi
exec "$@"
"#;

const UNSHARE: [&str; 3] = ["--user", "--map-root-user", "--mount"];

/// Hub process in the pod-like environment. Dropping it kills it.
struct Pod(Child);

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(file: &Path, content: &[u8]) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// Writes the secrets and configuration of some objects as files below `etc`, and returns the read token.
fn mount(objects: &[Value], etc: &Path) -> String {
    let map = of_kind(objects, "ConfigMap").into_iter().find(|map| map["data"]["hub.toml"].is_string()).unwrap();
    write(&etc.join("config/hub.toml"), map["data"]["hub.toml"].as_str().unwrap().as_bytes());
    for (key, text) in one(objects, "Secret")["data"].as_object().unwrap() {
        write(&etc.join("auth").join(key), &BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap());
    }
    fs::read_to_string(etc.join("auth/read-token")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_runs_in_a_pod_like_environment_and_shuts_down_cleanly() {
    let mut attempt = Command::new("unshare");
    attempt.args(UNSHARE).args(["mount", "-t", "tmpfs", "tmpfs", "/run"]);
    let allowed = attempt.stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("skipped: this machine does not permit mount namespaces");
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = RealCluster::start("bed").await;
    let client = cluster.client().await;
    for namespace in ["shop", "informer-hub"] {
        create_namespace(&client, namespace).await;
    }
    create_pods(&client, "shop", "web", 5).await;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let at = format!("listenAddress=127.0.0.1,port={port}");
    let objects = objects(&template("informer-hub", "informer-hub", &["--set", &at]).unwrap());
    for object in objects.iter().filter(|it| it["kind"] != "StatefulSet") {
        apply(&client, object).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let read_token = mount(&objects, &folder.path().join("etc"));
    let account = folder.path().join("account");
    write(&account.join("token"), token(&client).await.as_bytes());
    write(&account.join("namespace"), b"informer-hub");
    write(&account.join("ca.crt"), &fs::read(cluster.ca()).unwrap());

    let spec = &one(&objects, "StatefulSet")["spec"]["template"]["spec"];
    let arguments = list(&spec["containers"][0]["args"]);
    let mut command = Command::new("unshare");
    command.args(UNSHARE).args(["sh", "-c", SCRIPT]).arg(folder.path());
    command.arg(env!("CARGO_BIN_EXE_informer-hub")).args(arguments.iter().map(|it| it.as_str().unwrap()));
    let (_, apiserver) = cluster.url().rsplit_once(':').unwrap();
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", apiserver);
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut pod = Pod(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let log_text = || fs::read_to_string(folder.path().join("log")).unwrap();

    let probe = spec["containers"][0]["readinessProbe"]["httpGet"]["path"].as_str().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let probed = async || reqwest::get(format!("{url}{probe}")).await.is_ok_and(|answer| answer.status() == 200);
    assert!(becomes_true(WAIT_DEADLINE, probed).await, "the hub does not become ready:\n{}", log_text());
    assert_eq!(reqwest::get(format!("{url}/metrics")).await.unwrap().status(), 401, "only probes need no token");
    let status = reqwest::Client::new().get(format!("{url}/v1/status")).bearer_auth(read_token);
    let status: Value = serde_json::from_str(&status.send().await.unwrap().text().await.unwrap()).unwrap();
    let informer = &status["clusters"][0]["informers"][0];
    assert_eq!((informer["resource"].as_str(), informer["objects"].as_u64()), (Some("pods"), Some(5)), "{status:#}");
    assert!(status["stateDir"].is_object(), "{status:#}");
    signal(&pod.0, "TERM");
    let mut ended = None;
    let waiting = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
        while ended.is_none() {
            pace.tick().await;
            ended = pod.0.try_wait().unwrap();
        }
    };
    let in_time = tokio::time::timeout(WAIT_DEADLINE, waiting).await;
    assert!(in_time.is_ok() && ended.is_some_and(|status| status.success()), "{ended:?}:\n{}", log_text());
}

//! Tests of credential plugins that are shell scripts.

use std::path::{Path, PathBuf};

use crate::client::{Access, connect};
use jiff::SignedDuration;

use super::*;
use crate::testserver::{TEST_TIMEOUT, TestServer, json as answer};
use informer_hub_types::Threads;

const TOKEN: &str = r#"{"kind":"ExecCredential","status":{"token":"t0"}}"#;

fn plugin_of(section: serde_json::Value) -> Result<Plugin, ExecError> {
    Plugin::new(serde_json::from_value(section).unwrap(), &"prod".into())
}

/// Returns a plugin that runs this script. The script's first argument is a directory for its files.
fn script(folder: &Path, text: &str) -> Plugin {
    plugin_of(json!({ "command": "sh", "args": ["-c", text, "plugin", folder] })).unwrap()
}

async fn run(plugin: &Plugin) -> Result<Credentials, String> {
    let run = tokio::time::timeout(2 * TEST_TIMEOUT, plugin.run()).await.expect("the run is bounded");
    run.map_err(|error| error.to_string())
}

/// Waits until a file has a process id, and returns it.
async fn pid(file: PathBuf) -> u32 {
    let read = async {
        loop {
            if let Some(pid) = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()) {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, read).await.expect("the plugin writes its process id")
}

/// Waits until a process has ended, reaped or not.
async fn ended(pid: u32) {
    let gone = async {
        while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, gone).await.expect("the process is killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_sees_no_terminal_no_input_and_only_listed_variables() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"cat >"$1/input"; env >"$1/env"; printf %s "$KUBERNETES_EXEC_INFO" >"$1/info"; echo '{"status":{"token":"t0"}}'"#;
    let section = json!({
        "apiVersion": VERSIONS[1], "command": "sh", "args": ["-c", text, "plugin", folder.path()],
        "interactiveMode": "IfAvailable", "env": [{ "name": "OWN", "value": "mine" }, { "name": "LANG", "value": "C" }],
    });
    run(&plugin_of(section).unwrap()).await.map(drop).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("input"), "");
    let info: serde_json::Value = serde_json::from_str(&read("info")).unwrap();
    assert_eq!(info, json!({ "apiVersion": VERSIONS[1], "kind": "ExecCredential", "spec": { "interactive": false } }));
    let env = read("env");
    assert!(env.contains("OWN=mine\n") && env.contains("LANG=C\n") && env.contains("PATH="), "{env}");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo gives the hub variables that are not listed");
    let names = env.lines().filter_map(|line| Some(line.split_once('=')?.0));
    let listed = |name: &str| {
        let shells = ["PWD", "OLDPWD", "SHLVL", "_", "OWN", "KUBERNETES_EXEC_INFO"];
        let prefixed = environment::PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        shells.contains(&name) || environment::NAMES.contains(&name) || prefixed
    };
    let leaked: Vec<_> = names.filter(|name| !listed(name)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_with_endless_output_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let endless = script(folder.path(), r#"echo $$ >"$1/pid"; while :; do echo spam spam spam >&2; done"#);
    let error = run(&endless).await.map(drop).unwrap_err();
    assert!(error.starts_with("command 'sh' wrote more than 1048576 bytes to its standard error"), "{error}");
    assert!(error.contains("spam spam spam") && error.len() < 512, "the end is quoted: {error}");
    ended(pid(folder.path().join("pid")).await).await;
    let zeros = script(folder.path(), r#"echo $$ >"$1/pid"; exec head -c 1000000000 /dev/zero"#);
    let error = run(&zeros).await.map(drop).unwrap_err();
    assert_eq!(error, "command 'sh' wrote more than 1048576 bytes to its standard output and was killed");
    ended(pid(folder.path().join("pid")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_that_hangs_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let hang = r#"sleep 600 & echo $! >"$1/child"; echo $$ >"$1/leader"; echo waiting >&2; wait"#;
    let mut hanging = script(folder.path(), hang);
    hanging.deadline = Duration::from_secs(3);
    let error = run(&hanging).await.map(drop).unwrap_err();
    assert!(error.starts_with("command 'sh' did not end within 3 s and was killed"), "{error}");
    for name in ["child", "leader"] {
        ended(pid(folder.path().join(name)).await).await;
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    let given_up = tokio::spawn(async move { hanging.run().await.map(drop) });
    let pids = [pid(folder.path().join("child")).await, pid(folder.path().join("leader")).await];
    given_up.abort();
    for pid in pids {
        ended(pid).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_plugin_are_killed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let leaving = script(folder.path(), &format!(r#"sleep 600 & echo $! >"$1/child"; echo '{TOKEN}'"#));
    assert_eq!(run(&leaving).await.unwrap().header.unwrap(), "Bearer t0");
    ended(pid(folder.path().join("child")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_failure_names_command_code_and_the_end_of_its_output_safely() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"printf 'out-secret\n'; printf '\033[2J\033[31mERROR forged\033[0m\r\n\n2026 WARN \033]0;title\007 login expired %s\n' \
        "$CLIENT_SECRET $3 eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl" >&2; exit 7"#;
    let section = json!({
        "command": "sh", "args": ["-c", text, "plugin", folder.path(), "--client-secret", "hunter22"],
        "env": [{ "name": "CLIENT_SECRET", "value": "hunter23" }],
    });
    let error = run(&plugin_of(section).unwrap()).await.map(drop).unwrap_err();
    let expected =
        "command 'sh' failed with exit status: 7; stderr: ERROR forged   2026 WARN  ]0;title  login expired … … … ";
    assert_eq!(error.trim_end(), expected.trim_end());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_that_cannot_run_has_a_clear_error() {
    let missing = json!({ "command": "no-such-plugin-anywhere", "installHint": "brew install\n it" });
    let error = run(&plugin_of(missing).unwrap()).await.map(drop).unwrap_err();
    assert_eq!(error, "command 'no-such-plugin-anywhere' is not in the PATH of the hub: brew install  it");
    let folder = tempfile::tempdir().unwrap();
    let error = run(&plugin_of(json!({ "command": folder.path() })).unwrap()).await.map(drop).unwrap_err();
    assert!(error.contains("cannot run command"), "{error}");
    let refused = |section| plugin_of(section).map(drop).unwrap_err().to_string();
    assert!(
        refused(json!({ "command": "x", "interactiveMode": "Always" }))
            .contains("needs a terminal (interactiveMode: Always)")
    );
    assert!(refused(json!({ "command": "x", "apiVersion": "v9" })).contains("client.authentication.k8s.io/v1beta1"));
    assert!(refused(json!({ "command": "x", "provideClusterInfo": true })).contains("provideClusterInfo"));
    assert_eq!(refused(json!({})), "the exec section has no command");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_output_without_a_credential_is_refused_without_quoting_it() {
    let folder = tempfile::tempdir().unwrap();
    for (output, part) in [
        ("hunter2", "not an ExecCredential"),
        ("", "not an ExecCredential"),
        (r#"{"kind":"Pod","status":{"token":"hunter2"}}"#, "not an ExecCredential"),
        (r#"{"status":{}}"#, "neither a token nor a certificate"),
        (r#"{"status":{"clientCertificateData":"hunter2"}}"#, "neither a token nor a certificate"),
        (r#"{"status":{"token":"hunter2","expirationTimestamp":"hunter2"}}"#, "RFC 3339"),
        (r#"{"status":{"token":"hunter2\u0001"}}"#, "not allowed in a header"),
    ] {
        let error = run(&script(folder.path(), &format!("cat <<'END'\n{output}\nEND\n"))).await.map(drop).unwrap_err();
        assert!(error.contains(part) && !error.contains("hunter2"), "{output}: {error}");
    }
    let yaml = "kind: ExecCredential\nstatus: {token: y0, clientCertificateData: C, clientKeyData: K}";
    let credentials = run(&script(folder.path(), &format!("cat <<'END'\n{yaml}\nEND\n"))).await.unwrap();
    let mut auth = AuthInfo { client_certificate: Some("/own".to_owned()), ..AuthInfo::default() };
    credentials.set_certificate(&mut auth);
    assert_eq!(credentials.header.as_ref().unwrap(), "Bearer y0");
    assert_eq!((auth.client_certificate, auth.client_certificate_data), (None, Some(STANDARD.encode("C"))));
}

/// Returns access by a kubeconfig whose plugin prints the file `credential`. Each run adds a line to the file `runs`.
fn kubeconfig(folder: &Path, server: &str) -> Access {
    let at = folder.display();
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{exec: {{command: sh, args: [-c, 'echo run >>{at}/runs; cat {at}/credential']}}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    let path = folder.join("config");
    std::fs::write(&path, text).unwrap();
    Access::Kubeconfig { path, context: None }
}

fn credential(folder: &Path, token: &str, lifetime: SignedDuration) {
    let until = Timestamp::now() + lifetime;
    let text = json!({ "status": { "token": token, "expirationTimestamp": until.to_string() } }).to_string();
    std::fs::write(folder.join("credential"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiring_plugin_token_is_renewed_by_the_same_client() {
    let (folder, server) = (tempfile::tempdir().unwrap(), TestServer::always(answer("{}")).await);
    let ask = async |client: &kube::Client| {
        let request = http::Request::get("/").body(kube::client::Body::empty()).unwrap();
        let answered = client.send(request).await;
        answered.map(|_| server.requests().last().unwrap().to_lowercase())
    };
    let runs = || std::fs::read_to_string(folder.path().join("runs")).unwrap().lines().count();
    credential(folder.path(), "one", SignedDuration::from_secs(50));
    let client = connect(kubeconfig(folder.path(), &server.url()).into(), None, &Threads::current()).await.unwrap();
    assert_eq!(runs(), 1, "one run makes a client");
    credential(folder.path(), "two", SignedDuration::from_hours(1));
    assert!(ask(&client).await.unwrap().contains("authorization: bearer two\r\n"));
    assert!(ask(&client).await.unwrap().contains("authorization: bearer two\r\n"));
    assert_eq!(runs(), 2, "a token that is good is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_renewal_keeps_a_valid_token_and_is_not_retried_at_once() {
    let (folder, server) = (tempfile::tempdir().unwrap(), TestServer::always(answer("{}")).await);
    let ask = async |client: &kube::Client| {
        let request = http::Request::get("/").body(kube::client::Body::empty()).unwrap();
        client.send(request).await.map_err(|error| crate::request::failure(&error))
    };
    let runs = || std::fs::read_to_string(folder.path().join("runs")).unwrap().lines().count();
    for (lifetime, is_good) in [(50, true), (-1, false)] {
        credential(folder.path(), "one", SignedDuration::from_secs(lifetime));
        let client = connect(kubeconfig(folder.path(), &server.url()).into(), None, &Threads::current()).await.unwrap();
        let before = runs();
        std::fs::write(folder.path().join("credential"), "broken").unwrap();
        let answers = futures::future::join_all([ask(&client), ask(&client), ask(&client)]).await;
        for answer in answers.into_iter().chain([ask(&client).await]) {
            match answer {
                Ok(_) => assert!(is_good),
                Err(error) => {
                    assert_eq!(error.class, informer_hub_reflector::ErrorClass::Unauthorized);
                    assert!(!is_good && error.message.starts_with("cannot get credentials: the output of"), "{error}");
                }
            }
        }
        assert_eq!(runs(), before + 1, "four requests share one run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_provider_that_would_run_a_command_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("told");
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
         users: [{{name: u, user: {{auth-provider: {{name: gcp, config: {{cmd-path: touch, cmd-args: {}}}}}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        marker.display()
    );
    let access = Access::Inline { text: text.as_str().into(), origin: "a test".into() };
    let error = connect(access.into(), None, &Threads::current()).await.err().unwrap().to_string();
    assert!(error.contains("auth-provider gcp runs a command"), "{error}");
    assert!(!marker.exists());
}

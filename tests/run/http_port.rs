//! Tests of the hub's HTTP port: TLS, tokens, allowed hosts, the commands that query it, and many connections.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use informer_hub_testing::tls::Ca;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{Launch, Process, cluster, sim};
use crate::wait::{PATIENCE, until};

const TOKEN: &str = "t0ken-0123456789abcdef";
const READ_TOKEN: &str = "l00k-0123456789abcdef";

/// CA with certificates and tokens in files.
struct Certificates {
    folder: tempfile::TempDir,
    ca: Ca,
}

impl Certificates {
    fn new() -> Self {
        let certificates = Self { folder: tempfile::tempdir().unwrap(), ca: Ca::new() };
        certificates.write("ca.pem", &certificates.ca.pem());
        certificates.write("token", &format!("{TOKEN}\n"));
        certificates.write("read-token", READ_TOKEN);
        for (name, file) in [("127.0.0.1", "hub"), ("operator", "operator")] {
            let (cert, key) = certificates.ca.issue(name);
            certificates.write(&format!("{file}.pem"), &cert);
            certificates.write(&format!("{file}-key.pem"), &key);
        }
        certificates
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Returns the `[hub.tls]` and `[hub.auth]` tables.
    fn config(&self) -> String {
        let path = |name| self.text(name);
        format!(
            "[hub.tls]\ncert_file = {:?}\nkey_file = {:?}\nclient_ca_file = {:?}\n\
             [hub.auth]\ntoken = {{ file = {:?} }}\nread_token = {{ file = {:?} }}\n",
            path("hub.pem"),
            path("hub-key.pem"),
            path("ca.pem"),
            path("token"),
            path("read-token")
        )
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("INFORMER_HUB_")) {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    outcome(&command(arguments).output().unwrap())
}

fn two_clusters(hub_toml: &str) -> (informer_hub_sim::SimCluster, Process) {
    two_clusters_logged(hub_toml, "info")
}

fn two_clusters_logged(hub_toml: &str, log: &str) -> (informer_hub_sim::SimCluster, Process) {
    let sim = sim(31, 20);
    let toml = cluster("well", &sim.url()) + &cluster("down", "http://127.0.0.1:1");
    let hub = Launch::new(&format!("{hub_toml}{toml}[resources.pods]\n[resources.nodes]\n"));
    (sim, hub.env("RUST_LOG", log).start())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_without_valid_credentials_explain_the_fix() {
    let certificates = Certificates::new();
    let (_sim, hub) = two_clusters_logged(&certificates.config(), "trace");
    let url = hub.url().await.replace("http://", "https://");
    let (ca, token, read_token) =
        (certificates.text("ca.pem"), certificates.text("token"), certificates.text("read-token"));
    let (cert, key) = (certificates.text("operator.pem"), certificates.text("operator-key.pem"));
    certificates.write("wrong", "wr0ng-0123456789abcdef");
    let wrong = certificates.text("wrong");
    let query = |arguments: &[&str]| run(&[&["clusters", "--url", &url][..], arguments].concat());
    let plain = url.replace("https://", "http://");
    for (arguments, words) in [
        (&["--ca-file", &ca][..], "requires a token; give --token-file"),
        (&["--ca-file", &ca, "--token-file", &wrong], "refuses this token"),
        (&["--token-file", &token], "no trusted CA signed its certificate; name its CA with --ca-file"),
        (&["--ca-file", &token, "--token-file", &token], "holds no PEM certificate"),
        (&["--ca-file", &ca, "--client-cert-file", &cert], "needs its key: --client-key-file"),
        (&["--ca-file", &ca, "--token-file", "nowhere"], "cannot read the token in nowhere"),
        (&["--url", &plain, "--token-file", &token], "if it has hub.tls, write https://"),
        (&["--url", "https://127.0.0.1:1"], "nothing listens at https://127.0.0.1:1; start a hub"),
        (&["--url", "ftp://x"], "--url is not an http or https address"),
    ] {
        // The command line must contain --url once.
        let url_twice = arguments.contains(&"--url");
        let (code, out, err) = if url_twice { run(&[&["clusters"][..], arguments].concat()) } else { query(arguments) };
        // Options that contradict each other are usage errors, with exit code 2.
        let is_misuse = words.starts_with("needs its key") || words.starts_with("--url is not");
        let expected = if is_misuse { 2 } else { 1 };
        assert!(code == expected && out.is_empty() && err.contains(words), "{arguments:?}: {code} {out} {err}");
        assert!(!err.contains("0123456789abcdef"), "{err}");
    }
    until("the state of both", async || {
        let (code, out, err) = query(&["--ca-file", &ca, "--token-file", &token]);
        assert_eq!(code, 0, "{err}");
        let lines: Vec<_> = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        let worst_first =
            lines.len() == 3 && lines[1][..2] == ["down", "unreachable"] && lines[2][..2] == ["well", "connected"];
        (worst_first && lines[2][2] == "2/2").then_some(())
    })
    .await;
    for arguments in [
        &["--client-cert-file", &cert, "--client-key-file", &key][..],
        &["--token-file", &read_token],
        &["-c", "hub.toml"],
    ] {
        let file =
            format!("[hub]\nlisten = \"0.0.0.0:{}\"\n{}", url.rsplit_once(':').unwrap().1, certificates.config());
        certificates.write("hub.toml", &(file + "[clusters.c]\nserver = \"http://127.0.0.1:1\"\n[resources.pods]\n"));
        let with_url = if arguments[0] == "-c" { vec![] } else { vec!["--url", &url] };
        let output = command(&[&["clusters", "-o", "name", "--ca-file", &ca][..], arguments, &with_url].concat())
            .current_dir(certificates.folder.path())
            .output()
            .unwrap();
        let (code, out, err) = outcome(&output);
        assert!(code == 0 && out == "cluster/down\ncluster/well\n", "{arguments:?}: {code} {out} {err}");
    }
    let purge = ["dead-letters", "purge", "none", "--all", "--url", &url, "--ca-file", &ca, "--token-file"];
    let (code, _, err) = run(&[&purge[..], &[&read_token]].concat());
    assert!(code == 1 && err.contains("this reader may not change the hub"), "{err}");
    let (code, _, err) = run(&[&purge[..], &[&token]].concat());
    assert!(code == 1 && err.contains("there is no sink \"none\""), "{err}");
    certificates.write("token", "n3w-0123456789abcdef");
    until("the new token", async || (query(&["--ca-file", &ca, "--token-file", &token]).0 == 0).then_some(())).await;
    assert_eq!(query(&["--ca-file", &ca, "--token-file", &wrong]).0, 1);
    hub.line("using the changed tokens of hub.auth and readers").await;
    assert!(!hub.log().contains("0123456789abcdef"), "{}", hub.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_commands_print_every_format_and_survive_a_closed_pipe() {
    let (_sim, hub) = two_clusters("");
    hub.ready().await;
    let url = hub.url().await;
    let query = |arguments: &[&str]| {
        let (code, out, err) = run(&[arguments, &["--url", &url]].concat());
        assert!(code == 0 && err.is_empty(), "{arguments:?}: {code} {err}");
        out
    };
    until("the cluster is known to be down", async || {
        query(&["status"]).contains("(1 connected, 1 unreachable)").then_some(())
    })
    .await;
    let status = query(&["status"]);
    assert!(status.contains("ready      yes") && status.contains("WHAT"), "{status}");
    assert!(!status.contains('\x1b'), "{status:?}");
    let json: Value = serde_json::from_str(&query(&["status", "-o", "json", "--cluster", "well"])).unwrap();
    assert_eq!(json["clusters"].as_array().unwrap().len(), 1);
    let json: Value = serde_json::from_str(&query(&["resources", "pods", "-o", "json", "--cluster", "well"])).unwrap();
    assert_eq!(
        (&json[0]["cluster"], &json[0]["resource"], &json[0]["objects"]),
        (&"well".into(), &"pods".into(), &20.into())
    );
    let yaml = query(&["resources", "pods", "-o", "yaml", "--cluster", "well"]);
    assert!(yaml.contains("cluster: well") && yaml.contains("objects: 20"), "{yaml}");
    assert_eq!(query(&["resources", "-o", "name", "--cluster", "well"]), "resource/well/nodes\nresource/well/pods\n");
    assert_eq!(query(&["sinks"]), "there are no sinks\n");
    let (code, _, err) = run(&["clusters", "wel", "--url", &url]);
    assert!(code == 1 && err.contains("there is no cluster \"wel\"; known: down, well"), "{err}");
    let (code, _, err) = run(&["clusters", "-o", "name", "--watch", "--url", &url]);
    assert!(code == 2 && err.contains("--watch cannot print names"), "{err}");
    let mut watching = command(&["clusters", "--watch", "--interval", "100ms", "-o", "json", "--url", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line.as_array().unwrap().len(), 2);
    }
    drop(lines);
    until("the command ended after its pipe was closed", async || watching.try_wait().unwrap()).await;
    let (code, _, err) = outcome(&watching.wait_with_output().unwrap());
    assert!(code == 0 && err.is_empty(), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_command_prints_each_change_once_and_outlives_the_hub() {
    let (sim, hub) = two_clusters("");
    hub.ready().await;
    let url = hub.url().await;
    let mut watching = command(&["resources", "--cluster", "well", "--watch", "--interval", "100ms", "--url", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, output) = std::sync::mpsc::channel();
    for stream in [
        Box::new(watching.stdout.take().unwrap()) as Box<dyn std::io::Read + Send>,
        Box::new(watching.stderr.take().unwrap()),
    ] {
        let sender = sender.clone();
        std::thread::spawn(move || {
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
    }
    let next = |words: &str| {
        let line = output.recv_timeout(PATIENCE).unwrap();
        assert!(line.contains(words), "{line}, not {words}");
    };
    next("well/nodes: watching");
    next("well/pods: watching");
    sim.stop().await;
    next(": stale");
    drop(hub);
    until("the outage is printed", async || {
        output.recv_timeout(PATIENCE).unwrap().contains("Z hub: unreachable: nothing listens").then_some(())
    })
    .await;
    // Nothing is printed again until it changes, during several intervals.
    assert!(output.recv_timeout(std::time::Duration::from_secs(1)).is_err());
    let port = url.rsplit_once(':').unwrap().1.to_owned();
    let fake_hub = fake_hub(&port).await;
    until("the recovery is printed", async || {
        output.recv_timeout(PATIENCE).unwrap().contains("Z hub: answers again after ").then_some(())
    })
    .await;
    fake_hub.abort();
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_read_only_the_hub_table_of_the_configuration() {
    let (_sim, hub) = two_clusters("");
    hub.ready().await;
    let listen = hub.url().await.replace("http://", "");
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = "[clusters.c]\nkubeconfig = \"nowhere\"\n[resources.pods]\nnonsense = 1\n[sinks.a]\ntype = \"webhook\"\n\
                     url = \"https://a\"\nsigning_secret = { env = \"NOT_SET\" }\n";
    let write =
        |hub: &str| std::fs::write(folder.path().join("hub.toml"), format!("[hub]\n{hub}\n{elsewhere}")).unwrap();
    let query = |arguments: &[&str]| outcome(&command(arguments).current_dir(folder.path()).output().unwrap());
    write(&format!(
        "listen = \"{listen}\"\nauth = {{ token = {{ file = \"gone\" }}, read_token = {{ file = \"hub.toml\" }} }}"
    ));
    let (code, _, err) = query(&["status"]);
    assert!(code == 1 && err.contains("the token in hub.toml has characters"), "the readable token is used: {err}");
    write(&format!("listen = \"{listen}\""));
    for arguments in [&["status"][..], &["clusters"], &["resources"], &["sinks"]] {
        for file in [&["-c", "hub.toml"][..], &[]] {
            let (code, out, err) = query(&[arguments, file].concat());
            assert!(code == 0 && err.is_empty() && !out.is_empty(), "{arguments:?} {file:?}: {err}");
        }
    }
    let (code, _, err) = query(&["dead-letters", "list", "none"]);
    assert!(code == 1 && err.contains("there is no sink \"none\""), "the hub was queried: {err}");
    for (hub, words) in [
        ("listen = 7080", "hub.toml:2: hub.listen: expected a text in quotes"),
        ("lisen = \"127.0.0.1:1\"", "did you mean \"listen\""),
    ] {
        write(hub);
        let (code, out, err) = query(&["status"]);
        assert!(code == 2 && out.is_empty() && err.contains(words) && err.contains("1 mistake in"), "{code} {err}");
    }
    std::fs::write(folder.path().join("hub.toml"), "[hubb]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let (code, _, err) = query(&["status"]);
    assert!(code == 2 && err.contains("did you mean \"hub\""), "{err}");
    write("listen = \"192.0.2.1:7080\"\nauth = { allow_unauthenticated = true }");
    let (code, _, err) = query(&["status"]);
    assert!(
        code == 1 && err.contains("192.0.2.1:7080, which is not an address of this machine; give --url URL"),
        "{err}"
    );
    write("listen = \"127.0.0.1:1\"");
    let (code, _, err) = query(&["status"]);
    assert!(
        code == 1 && err.contains("nothing listens at http://127.0.0.1:1; ") && err.contains("./hub.toml"),
        "{err}"
    );
}

/// Answers every request on a loopback port with an empty status, like a restarted hub.
async fn fake_hub(port: &str) -> tokio::task::JoinHandle<()> {
    let address = format!("127.0.0.1:{port}");
    let listener = until("the port of the hub", async || tokio::net::TcpListener::bind(&address).await.ok()).await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = "{\"ready\":true,\"clusters\":[{\"name\":\"well\",\"state\":\"connected\",\"informers\":[]}]}";
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all((head + body).as_bytes()).await;
        }
    })
}

/// Returns the resident memory of a process in KiB.
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the limit of open files of this process.
fn descriptors() -> usize {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|text| text.parse().ok()).unwrap_or(1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_use_little_memory_and_probes_answer() {
    let (_sim, hub) = two_clusters("");
    hub.ready().await;
    let url = hub.url().await;
    let address = url.strip_prefix("http://").unwrap();
    let before = resident(hub.id());
    // As many connections as this process can open, minus a reserve.
    let count = descriptors().saturating_sub(300).min(10_000);
    let mut connections = Vec::with_capacity(count);
    for at in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if at % 2 == 0 {
            // The hub may have closed it already.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nX-Slow: ").await;
        }
        connections.push(stream);
        if at % 1000 == 999 {
            assert_eq!(hub.get("/livez").await, (200, "ok\n".to_owned()));
            assert_eq!(hub.get("/readyz").await.0, 200);
        }
    }
    let grown = resident(hub.id()).saturating_sub(before);
    println!("{count} connections: {grown} KiB more resident");
    assert!(grown < 64 << 10, "{grown} KiB");
    let closed = tokio::time::timeout(PATIENCE, connections[0].read(&mut [0; 64])).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)) || count <= 1024, "the oldest of {count} is still open");
}

#[tokio::test]
async fn public_port_without_a_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    let refused = |hub: &str| {
        std::fs::write(
            &file,
            format!("[hub]\n{hub}\n[clusters.c]\nserver = \"http://127.0.0.1:1\"\n[resources.pods]\n"),
        )
        .unwrap();
        let (code, _, err) = run(&["run", "-c", file.to_str().unwrap()]);
        assert_eq!(code, 2, "{err}");
        err
    };
    let output = refused("listen = \"0.0.0.0:0\"");
    assert!(output.contains(":2: hub.listen: 0.0.0.0:0 is reachable from other machines"), "{output}");
    std::fs::write(folder.path().join("short"), "hunter2\n").unwrap();
    let output = refused("auth = { token = { file = \"short\" } }");
    assert!(
        output.contains("hub.auth.token: the token has 7 characters, expected 16") && !output.contains("hunter2"),
        "{output}"
    );
    let certificates = Certificates::new();
    let pair = |cert: &Path, key: &Path| refused(&format!("tls = {{ cert_file = {cert:?}, key_file = {key:?} }}"));
    let output = pair(&certificates.path("hub.pem"), &certificates.path("operator-key.pem"));
    assert!(output.contains("hub.tls.key_file: ") && output.contains("is not the key of the certificate"), "{output}");
    let output = pair(&certificates.path("token"), &certificates.path("hub-key.pem"));
    assert!(output.contains("hub.tls.cert_file: ") && output.contains("holds no PEM certificate"), "{output}");
}

/// Sends a raw request and returns the whole answer.
async fn raw(hub: &Process, request: &str) -> String {
    let url = hub.url().await;
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_without_authentication_answers_only_allowed_hosts() {
    let sim = sim(3, 5);
    let toml = format!("allowed_hosts = [\"hub.example.com\"]\n{}[resources.pods]\n", cluster("c", &sim.url()));
    let hub = Launch::new(&toml).start();
    hub.ready().await;
    let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    for host in ["localhost", "localhost:7080", "127.0.0.1:1", "[::1]", "hub.example.com:80"] {
        assert!(raw(&hub, &get("/v1/status", host)).await.starts_with("HTTP/1.1 200"), "{host}");
    }
    for path in ["/v1/status", "/metrics", "/v1/sinks/s/dead-letters", "/v1/unknown"] {
        let answer = raw(&hub, &get(path, "evil.example:7080")).await;
        assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("hub.allowed_hosts"), "{path}: {answer}");
    }
    let post = "POST /v1/reload HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(raw(&hub, post).await.starts_with("HTTP/1.1 421"));
    let absolute = "GET http://evil.example/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(raw(&hub, absolute).await.starts_with("HTTP/1.1 421"));
    assert!(raw(&hub, "GET /v1/status HTTP/1.0\r\n\r\n").await.starts_with("HTTP/1.0 200"), "no browser");
    let probe = raw(&hub, &get("/livez", "evil.example")).await;
    assert!(probe.starts_with("HTTP/1.1 200") && probe.ends_with("ok\n"), "probes are answered: {probe}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_with_a_token_answers_any_host() {
    let sim = sim(3, 5);
    let toml = format!(
        "[hub.auth]\ntoken = {{ env = \"T\" }}\nmetrics_open = true\n{}[resources.pods]\n",
        cluster("c", &sim.url())
    );
    let hub = Launch::new(&toml).env("T", TOKEN).start();
    until("a status", async || {
        let request = format!(
            "GET /v1/status HTTP/1.1\r\nHost: hub.svc\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        );
        raw(&hub, &request).await.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
    let metrics = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert!(raw(&hub, metrics).await.starts_with("HTTP/1.1 421"), "open metrics are still refused to foreign hosts");
}

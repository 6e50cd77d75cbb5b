//! The hub's own port as operators and strangers meet it: certificates, tokens, the commands that ask it, and crowds.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{Launch, Process, cluster, sim};
use crate::waiting::{PATIENCE, until};

const TOKEN: &str = "t0ken-0123456789abcdef";
const READ_TOKEN: &str = "l00k-0123456789abcdef";

/// A CA and what it has issued, in files beside a token.
struct Papers {
    folder: tempfile::TempDir,
    ca: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Papers {
    fn new() -> Self {
        let mut ca = rcgen::CertificateParams::default();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(ca, rcgen::KeyPair::generate().unwrap()).unwrap();
        let papers = Self { folder: tempfile::tempdir().unwrap(), ca };
        papers.write("ca.pem", &papers.ca.pem());
        papers.write("token", &format!("{TOKEN}\n"));
        papers.write("read-token", READ_TOKEN);
        for (name, file) in [("127.0.0.1", "hub"), ("operator", "operator")] {
            let key = rcgen::KeyPair::generate().unwrap();
            let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            papers.write(&format!("{file}.pem"), &leaf.signed_by(&key, &papers.ca).unwrap().pem());
            papers.write(&format!("{file}-key.pem"), &key.serialize_pem());
        }
        papers
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

    /// What of the configuration is behind `[hub]`.
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

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    said(&command(arguments).output().unwrap())
}

fn two_clusters(more: &str) -> (informer_hub_sim::SimCluster, Process) {
    two_clusters_logged(more, "info")
}

fn two_clusters_logged(more: &str, log: &str) -> (informer_hub_sim::SimCluster, Process) {
    let sim = sim(31, 20);
    let toml = cluster("well", &sim.url()) + &cluster("down", "http://127.0.0.1:1");
    let hub = Launch::new(&format!("{more}{toml}[resources.pods]\n[resources.nodes]\n"));
    (sim, hub.env("RUST_LOG", log).start())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_token_is_told_what_to_do_and_who_has_one_is_answered() {
    let papers = Papers::new();
    let (_sim, hub) = two_clusters_logged(&papers.config(), "trace");
    let url = hub.url().await.replace("http://", "https://");
    let (ca, token, read_token) = (papers.text("ca.pem"), papers.text("token"), papers.text("read-token"));
    let (cert, key) = (papers.text("operator.pem"), papers.text("operator-key.pem"));
    papers.write("wrong", "wr0ng-0123456789abcdef");
    let wrong = papers.text("wrong");
    let ask = |more: &[&str]| run(&[&["clusters", "--url", &url][..], more].concat());
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
        // The last --url counts.
        let url_twice = arguments.contains(&"--url");
        let (code, out, err) = if url_twice { run(&[&["clusters"][..], arguments].concat()) } else { ask(arguments) };
        assert!(code == 1 && out.is_empty() && err.contains(words), "{arguments:?}: {code} {out} {err}");
        assert!(!err.contains("0123456789abcdef"), "{err}");
    }
    until("the state of both", async || {
        let (code, out, err) = ask(&["--ca-file", &ca, "--token-file", &token]);
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
        let file = format!("[hub]\nlisten = \"0.0.0.0:{}\"\n{}", url.rsplit_once(':').unwrap().1, papers.config());
        papers.write("hub.toml", &(file + "[clusters.c]\nserver = \"http://127.0.0.1:1\"\n[resources.pods]\n"));
        let with_url = if arguments[0] == "-c" { vec![] } else { vec!["--url", &url] };
        let output = command(&[&["clusters", "-o", "name", "--ca-file", &ca][..], arguments, &with_url].concat())
            .current_dir(papers.folder.path())
            .output()
            .unwrap();
        let (code, out, err) = said(&output);
        assert!(code == 0 && out == "cluster/down\ncluster/well\n", "{arguments:?}: {code} {out} {err}");
    }
    let purge = ["dead-letters", "purge", "none", "--all", "--url", &url, "--ca-file", &ca, "--token-file"];
    let (code, _, err) = run(&[&purge[..], &[&read_token]].concat());
    assert!(code == 1 && err.contains("this token is for looking"), "{err}");
    let (code, _, err) = run(&[&purge[..], &[&token]].concat());
    assert!(code == 1 && err.contains("there is no sink \"none\""), "{err}");
    papers.write("token", "n3w-0123456789abcdef");
    until("the new token", async || (ask(&["--ca-file", &ca, "--token-file", &token]).0 == 0).then_some(())).await;
    assert_eq!(ask(&["--ca-file", &ca, "--token-file", &wrong]).0, 1);
    hub.line("the changed tokens are in use").await;
    assert!(!hub.log().contains("0123456789abcdef"), "{}", hub.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hub_does_is_shown_in_every_form_and_a_reader_may_leave() {
    let (_sim, hub) = two_clusters("");
    hub.ready().await;
    let url = hub.url().await;
    let ask = |arguments: &[&str]| {
        let (code, out, err) = run(&[arguments, &["--url", &url]].concat());
        assert!(code == 0 && err.is_empty(), "{arguments:?}: {code} {err}");
        out
    };
    until("the cluster is known to be down", async || {
        ask(&["status"]).contains("(1 connected, 1 unreachable)").then_some(())
    })
    .await;
    let status = ask(&["status"]);
    assert!(status.contains("ready      yes") && status.contains("WHAT"), "{status}");
    assert!(!status.contains('\x1b'), "{status:?}");
    let json: Value = serde_json::from_str(&ask(&["status", "-o", "json", "--cluster", "well"])).unwrap();
    assert_eq!(json["clusters"].as_array().unwrap().len(), 1);
    let json: Value = serde_json::from_str(&ask(&["resources", "pods", "-o", "json", "--cluster", "well"])).unwrap();
    assert_eq!(
        (&json[0]["cluster"], &json[0]["resource"], &json[0]["objects"]),
        (&"well".into(), &"pods".into(), &20.into())
    );
    let yaml = ask(&["resources", "pods", "-o", "yaml", "--cluster", "well"]);
    assert!(yaml.contains("cluster: well") && yaml.contains("objects: 20"), "{yaml}");
    assert_eq!(ask(&["resources", "-o", "name", "--cluster", "well"]), "resource/well/nodes\nresource/well/pods\n");
    assert_eq!(ask(&["sinks"]), "there are no sinks\n");
    let (code, _, err) = run(&["clusters", "wel", "--url", &url]);
    assert!(code == 1 && err.contains("there is no cluster \"wel\"; there is down, well"), "{err}");
    let (code, _, err) = run(&["clusters", "-o", "name", "--watch", "--url", &url]);
    assert!(code == 1 && err.contains("--watch cannot print names"), "{err}");
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
    until("its end, once nobody reads any more", async || watching.try_wait().unwrap()).await;
    let (code, _, err) = said(&watching.wait_with_output().unwrap());
    assert!(code == 0 && err.is_empty(), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_each_change_once_and_outlives_the_hub() {
    let (sim, hub) = two_clusters("");
    hub.ready().await;
    let url = hub.url().await;
    let mut watching = command(&["resources", "--cluster", "well", "--watch", "--interval", "100ms", "--url", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    for stream in [
        Box::new(watching.stdout.take().unwrap()) as Box<dyn std::io::Read + Send>,
        Box::new(watching.stderr.take().unwrap()),
    ] {
        let tell = tell.clone();
        std::thread::spawn(move || {
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
    }
    let next = |words: &str| {
        let line = told.recv_timeout(PATIENCE).unwrap();
        assert!(line.contains(words), "{line}, not {words}");
    };
    next("well/nodes: watching");
    next("well/pods: watching");
    sim.stop().await;
    next(": stale");
    drop(hub);
    until("that it is gone is told", async || {
        told.recv_timeout(PATIENCE).unwrap().contains("Z hub: unreachable: nothing listens").then_some(())
    })
    .await;
    // What is told once is told no more until it has changed; a few of its intervals pass meanwhile.
    assert!(told.recv_timeout(std::time::Duration::from_secs(1)).is_err());
    let port = url.rsplit_once(':').unwrap().1.to_owned();
    let stand_in = stand_in(&port).await;
    until("that it answers again is told", async || {
        told.recv_timeout(PATIENCE).unwrap().contains("Z hub: answers again after ").then_some(())
    })
    .await;
    stand_in.abort();
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_ask_a_hub_read_its_own_table_alone_and_find_the_file() {
    let (_sim, hub) = two_clusters("");
    hub.ready().await;
    let listen = hub.url().await.replace("http://", "");
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = "[clusters.c]\nkubeconfig = \"nowhere\"\n[resources.pods]\nnonsense = 1\n[sinks.a]\ntype = \"webhook\"\n\
                     url = \"https://a\"\nsigning_secret = { env = \"NOT_SET\" }\n";
    let write =
        |hub: &str| std::fs::write(folder.path().join("hub.toml"), format!("[hub]\n{hub}\n{elsewhere}")).unwrap();
    let ask = |arguments: &[&str]| said(&command(arguments).current_dir(folder.path()).output().unwrap());
    write(&format!(
        "listen = \"{listen}\"\nauth = {{ token = {{ file = \"gone\" }}, read_token = {{ file = \"hub.toml\" }} }}"
    ));
    let (code, _, err) = ask(&["status"]);
    assert!(
        code == 1 && err.contains("the text in hub.toml is not a token"),
        "the one that can be read is used: {err}"
    );
    write(&format!("listen = \"{listen}\""));
    for arguments in [&["status"][..], &["clusters"], &["resources"], &["sinks"]] {
        for file in [&["-c", "hub.toml"][..], &[]] {
            let (code, out, err) = ask(&[arguments, file].concat());
            assert!(code == 0 && err.is_empty() && !out.is_empty(), "{arguments:?} {file:?}: {err}");
        }
    }
    let (code, _, err) = ask(&["dead-letters", "list", "none"]);
    assert!(code == 1 && err.contains("there is no sink \"none\""), "it was asked: {err}");
    for (hub, words) in [
        ("listen = 7080", "hub.toml:2: hub.listen: expected a text in quotes"),
        ("lisen = \"127.0.0.1:1\"", "did you mean \"listen\""),
    ] {
        write(hub);
        let (code, out, err) = ask(&["status"]);
        assert!(code == 2 && out.is_empty() && err.contains(words) && err.contains("1 mistake in"), "{code} {err}");
    }
    std::fs::write(folder.path().join("hub.toml"), "[hubb]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let (code, _, err) = ask(&["status"]);
    assert!(code == 2 && err.contains("did you mean \"hub\""), "{err}");
    write("listen = \"192.0.2.1:7080\"\nauth = { allow_unauthenticated = true }");
    let (code, _, err) = ask(&["status"]);
    assert!(
        code == 1 && err.contains("192.0.2.1:7080, which is not an address of this machine; give --url URL"),
        "{err}"
    );
    write("listen = \"127.0.0.1:1\"");
    let (code, _, err) = ask(&["status"]);
    assert!(
        code == 1 && err.contains("nothing listens at http://127.0.0.1:1; ") && err.contains("./hub.toml"),
        "{err}"
    );
}

/// Answers every request at a port of loopback with an empty status, as a hub that has been started anew.
async fn stand_in(port: &str) -> tokio::task::JoinHandle<()> {
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

/// Kilobytes that a process has resident.
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How many files this process may have open.
fn descriptors() -> usize {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|text| text.parse().ok()).unwrap_or(1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_cost_little_and_probes_are_answered() {
    let (_sim, hub) = two_clusters("");
    hub.ready().await;
    let url = hub.url().await;
    let address = url.strip_prefix("http://").unwrap();
    let before = resident(hub.id());
    // As many as this process may have, with some left for all else.
    let count = descriptors().saturating_sub(300).min(10_000);
    let mut crowd = Vec::with_capacity(count);
    for at in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if at % 2 == 0 {
            // It is closed already where the crowd is faster than this.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nX-Slow: ").await;
        }
        crowd.push(stream);
        if at % 1000 == 999 {
            assert_eq!(hub.get("/livez").await, (200, "ok\n".to_owned()));
            assert_eq!(hub.get("/readyz").await.0, 200);
        }
    }
    let grown = resident(hub.id()).saturating_sub(before);
    println!("{count} connections: {grown} KiB more resident");
    assert!(grown < 64 << 10, "{grown} KiB");
    let closed = tokio::time::timeout(PATIENCE, crowd[0].read(&mut [0; 64])).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)) || count <= 1024, "the oldest of {count} has left");
}

#[tokio::test]
async fn a_port_for_other_machines_without_a_token_does_not_start() {
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
    let told = refused("listen = \"0.0.0.0:0\"");
    assert!(told.contains(":2: hub.listen: 0.0.0.0:0 is reached from other machines"), "{told}");
    std::fs::write(folder.path().join("short"), "hunter2\n").unwrap();
    let told = refused("auth = { token = { file = \"short\" } }");
    assert!(
        told.contains("hub.auth.token: the token has 7 characters; write 16") && !told.contains("hunter2"),
        "{told}"
    );
    let papers = Papers::new();
    let pair = |cert: &Path, key: &Path| refused(&format!("tls = {{ cert_file = {cert:?}, key_file = {key:?} }}"));
    let told = pair(&papers.path("hub.pem"), &papers.path("operator-key.pem"));
    assert!(told.contains("hub.tls.key_file: ") && told.contains("is not the key of the certificate"), "{told}");
    let told = pair(&papers.path("token"), &papers.path("hub-key.pem"));
    assert!(told.contains("hub.tls.cert_file: ") && told.contains("holds no PEM certificate"), "{told}");
}

/// One request as it is written, and the first line of its answer.
async fn raw(hub: &Process, request: &str) -> String {
    let url = hub.url().await;
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_without_authentication_answers_only_hosts_it_is_served_as() {
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
    assert!(raw(&hub, metrics).await.starts_with("HTTP/1.1 421"), "what is open to all is open to no page");
}

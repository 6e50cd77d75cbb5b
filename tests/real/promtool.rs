//! What `deploy/monitoring` has, and what a hub shows, before Prometheus' own checker, which
//! `tests/testbed/promtool/build.sh` builds.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use informer_hub_sim::{SimCluster, SimConfig, WorldConfig};
use tokio::runtime::Handle;

use crate::bed::built;

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The checker's binary, built when it is out of date.
fn promtool() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("tests/testbed/promtool/build.sh"))
}

/// Runs it where the rules are, and gives whether it was content, and what it said.
fn check(arguments: &[&str], input: &str) -> (bool, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring");
    let mut command = Command::new(promtool());
    command.args(arguments).current_dir(folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A hub with everything that has metrics. Dropping it kills it.
struct Hub {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Hub {
    fn start(cluster: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let toml = format!(
            "[hub]\nlisten = \"{address}\"\nstate_dir = {:?}\ncheckpoint = \"100ms\"\nmemory_limit = \"1GiB\"\n\
             [clusters.c0]\nserver = \"{cluster}\"\n[clusters.gone]\nserver = \"http://127.0.0.1:1\"\n[resources.pods]\n\
             [sinks.log]\ntype = \"file\"\npath = {:?}\ninitial = \"replay\"\n",
            at("state"),
            at("events.jsonl"),
        );
        let file: PathBuf = folder.path().join("hub.toml");
        std::fs::write(&file, toml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        let child = command.arg("run").arg("-c").arg(&file).stderr(Stdio::null()).spawn().unwrap();
        Self { child, url: format!("http://{address}/metrics"), _folder: folder }
    }

    /// Its metrics, once they have what `expected` says.
    async fn metrics(&self, expected: &str) -> String {
        let waiting = async {
            loop {
                let answer = reqwest::get(&self.url).await;
                if let Ok(text) = async { answer?.text().await }.await
                    && text.contains(expected)
                {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, waiting).await.expect("the metrics have it")
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_finds_nothing_to_say_about_the_metrics() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let world = WorldConfig { pods: 30, small: true, ..WorldConfig::default() };
    let sim = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap();
    let hub = Hub::start(&sim.url());
    let metrics = hub.metrics("informer_hub_sink_delivered_events_total{sink=\"log\"} 30").await;
    let (content, said) = check(&["check", "metrics"], &metrics);
    assert!(content && said.trim().is_empty(), "{said}\n{metrics}");
    let (content, said) = check(&["check", "metrics"], "# TYPE informer_hub_wrong counter\ninformer_hub_wrong 1\n");
    assert!(!content || !said.trim().is_empty(), "it does check");
}

#[test]
fn promtool_accepts_the_rules() {
    let (content, said) = check(&["check", "rules", "--lint-fatal", "informer-hub.rules.yaml"], "");
    assert!(content, "{said}");
}

#[test]
fn every_alert_fires_when_it_has_to_and_not_otherwise() {
    let (content, said) = check(&["test", "rules", "informer-hub.rules.test.yaml"], "");
    assert!(content, "{said}");
}

//! Checks of a hub's metrics and of the alert rules with `promtool`, which `tests/testbed/promtool/build.sh` builds.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use informer_hub_sim::{SimCluster, SimConfig, WorldConfig};
use tokio::runtime::Handle;

use crate::bed::built;

/// Deadline of any wait, with room for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns promtool's binary, built if out of date.
fn promtool() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("tests/testbed/promtool/build.sh"))
}

/// Runs promtool in the folder of the rules. Returns whether it succeeded, and its output.
fn check(arguments: &[&str], input: &str) -> (bool, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring");
    let mut command = Command::new(promtool());
    command.args(arguments).current_dir(folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let messages = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&messages).into_owned())
}

/// Hub process with every feature that has metrics. Dropping it kills it.
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

    /// Waits until the metrics contain `expected` and returns them.
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
        tokio::time::timeout(DEADLINE, waiting).await.expect("the metrics contain the expected line")
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_pass_promtool_without_messages() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let world = WorldConfig { pods: 30, small: true, ..WorldConfig::default() };
    let sim = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap();
    let hub = Hub::start(&sim.url());
    let metrics = hub.metrics("informer_hub_sink_delivered_events_total{sink=\"log\"} 30").await;
    let (passed, messages) = check(&["check", "metrics"], &metrics);
    assert!(passed && messages.trim().is_empty(), "{messages}\n{metrics}");
    let (passed, messages) = check(&["check", "metrics"], "# TYPE informer_hub_wrong counter\ninformer_hub_wrong 1\n");
    assert!(!passed || !messages.trim().is_empty(), "promtool accepts an invalid metric name");
}

#[test]
fn alert_rules_pass_promtool() {
    let (passed, messages) = check(&["check", "rules", "--lint-fatal", "informer-hub.rules.yaml"], "");
    assert!(passed, "{messages}");
}

#[test]
fn alert_rule_tests_pass() {
    let (passed, messages) = check(&["test", "rules", "informer-hub.rules.test.yaml"], "");
    assert!(passed, "{messages}");
}

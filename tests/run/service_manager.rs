//! Tests of the notifications to a service manager such as systemd.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::process::{Launch, Process, cluster, sim};
use crate::wait::until;

const PODS: &str = "[resources.pods]\n";

/// Notification socket of a service manager, and the hub that it started.
struct Managed {
    hub: Process,
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Managed {
    fn start(toml: &str, environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let launch = Launch::new(toml).env("NOTIFY_SOCKET", path.to_str().unwrap());
        let launch = environment.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
        Self { hub: launch.start(), socket, _folder: folder }
    }

    /// Waits for a message with this line and returns its lines.
    async fn notified(&self, line: &str) -> Vec<String> {
        until(line, async || {
            let message = self.message()?;
            message.iter().any(|it| it == line).then_some(message)
        })
        .await
    }

    /// Returns the lines of the next message, if one has arrived.
    fn message(&self) -> Option<Vec<String>> {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(std::str::from_utf8(&buffer[..length]).unwrap().lines().map(ToOwned::to_owned).collect())
    }
}

fn number(message: &[String], name: &str) -> u64 {
    let value = message.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {message:?}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_manager_is_notified_of_start_reload_and_stop() {
    let sim = sim(61, 12);
    // An unreachable cluster does not delay readiness.
    let toml = cluster("a", &sim.url()) + &cluster("gone", "http://127.0.0.1:1") + PODS;
    let mut managed = Managed::start(&format!("shutdown_deadline = \"40s\"\n{toml}"), &[]);
    managed.notified("READY=1").await;
    managed.notified("STATUS=1 of 2 clusters connected, 1 of 2 informers synced, 12 objects").await;
    managed.hub.signal("HUP");
    let message = managed.notified("RELOADING=1").await;
    assert!(number(&message, "MONOTONIC_USEC") > 0);
    managed.notified("READY=1").await;
    managed.hub.configure("colour = \"red\"\n");
    managed.hub.signal("HUP");
    managed.notified("RELOADING=1").await;
    managed.notified("READY=1").await;
    managed.hub.line("the configuration is not usable").await;
    managed.hub.signal("TERM");
    assert_eq!(managed.hub.ended().await, 0);
    let message = managed.notified("STOPPING=1").await;
    assert_eq!(number(&message, "EXTEND_TIMEOUT_USEC"), 50_000_000, "the deadline plus 10 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchdog_is_notified_three_times_per_period() {
    let sim = sim(62, 3);
    let toml = cluster("a", &sim.url()) + PODS;
    let managed = Managed::start(&toml, &[("WATCHDOG_USEC", "600000")]);
    let began = std::time::Instant::now();
    for _ in 0..4 {
        managed.notified("WATCHDOG=1").await;
    }
    assert!(began.elapsed() > Duration::from_millis(500), "notifications are spread over time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_service_manager_is_not_an_error() {
    let sim = sim(63, 3);
    let hub = Launch::new(&(cluster("a", &sim.url()) + PODS)).env("NOTIFY_SOCKET", "/nonexistent/notify").start();
    hub.ready().await;
    hub.line("cannot notify the service manager").await;
}

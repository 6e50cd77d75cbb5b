//! Tests of credential plugins of a running hub: their environment, their log lines, their termination.

use std::path::{Path, PathBuf};

use crate::process::{Launch, sim};
use crate::wait::until;

/// Returns a kubeconfig whose user runs a shell script.
fn kubeconfig(server: &str, script: &Path) -> String {
    format!(
        "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{exec: {{command: sh, args: ['{}']}}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        script.display()
    )
}

/// Folder with a kubeconfig and its plugin.
struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    fn new(server: &str, script: &str) -> Self {
        let bed = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(bed.path("plugin.sh"), script).unwrap();
        std::fs::write(bed.path("kubeconfig"), kubeconfig(server, &bed.path("plugin.sh"))).unwrap();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn toml(&self) -> String {
        format!(
            "[clusters.prod-eu]\nkubeconfig = '{}'\n[resources.pods]\n\
             [sinks.s]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:1\"\nsigning_secret = {{ env = \"AWS_SIGNING_SECRET\" }}\n",
            self.path("kubeconfig").display()
        )
    }
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_gets_no_secret_of_the_hub_and_forges_no_log_line() {
    let sim = sim(4, 5);
    let script = "env >\"$(dirname \"$0\")/env\"\n\
                  printf '\\033[2J\\033[31mred\\r\\n{\"level\":\"ERROR\",\"message\":\"forged\"}\\n' >&2\n\
                  echo '{\"status\":{\"token\":\"t0\"}}'\n";
    let bed = Bed::new(&sim.url(), script);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let launch = Launch::new(&bed.toml()).env("AWS_SIGNING_SECRET", secret).env("AWS_REGION", "eu-1");
    let hub = launch.env("INFORMER_HUB_HUB__CHECKPOINT", "7s").env("OTHER_SECRET", "hunter2").start();
    hub.ready().await;
    let env = std::fs::read_to_string(bed.path("env")).unwrap();
    assert!(env.contains("AWS_REGION=eu-1\n") && env.contains("PATH="), "{env}");
    assert!(!env.contains(secret) && !env.contains("hunter2") && !env.contains("INFORMER_HUB_"), "{env}");
    let line = hub.line("a credential plugin wrote to standard error").await;
    assert_eq!((&line["cluster"], &line["command"]), (&"prod-eu".into(), &"sh".into()), "{line}");
    assert_eq!(line["stderr"], "red  {\"level\":\"ERROR\",\"message\":\"forged\"}", "{line}");
    assert!(hub.lines().iter().all(|line| line["message"] != "forged"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_plugin_ends_with_the_hub_and_with_check() {
    let sim = sim(4, 5);
    let script = "cd \"$(dirname \"$0\")\"\nsleep 600 &\necho $! >child\necho $$ >leader\nwait\n";
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for ending in ["TERM", "INT"] {
        let bed = Bed::new(&sim.url(), script);
        let mut hub = Launch::new(&bed.toml()).env("AWS_SIGNING_SECRET", secret).start();
        let pids = pids(&bed).await;
        hub.signal(ending);
        assert_eq!(hub.ended().await, 0);
        assert_ended(pids).await;
    }
    let bed = Bed::new(&sim.url(), script);
    std::fs::write(bed.path("hub.toml"), bed.toml()).unwrap();
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    check.arg("check").arg("-c").arg(bed.path("hub.toml")).env("AWS_SIGNING_SECRET", secret);
    let mut check = check.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let pids = pids(&bed).await;
    let interrupted = std::process::Command::new("kill").arg("-INT").arg(check.id().to_string()).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(check.wait().unwrap().code(), Some(130));
    assert_ended(pids).await;
}

async fn pids(bed: &Bed) -> [u32; 2] {
    let read = |name: &str| std::fs::read_to_string(bed.path(name)).ok()?.trim().parse().ok();
    until("the plugin's processes", async || Some([read("child")?, read("leader")?])).await
}

async fn assert_ended(pids: [u32; 2]) {
    until("the plugin ended", async || (!pids.into_iter().any(is_running)).then_some(())).await;
}

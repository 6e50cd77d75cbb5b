//! Check of `[fleet]`: whether NATS can be reached, accepts the credentials and has JetStream.

use std::time::Duration;

use super::report::{Finding, Level};
use crate::app;
use informer_hub_config::FleetConfig;
#[cfg(feature = "fleet")]
use informer_hub_config::HumanDuration;
#[cfg(feature = "fleet")]
use informer_hub_roles::NatsProblem;

#[cfg(feature = "fleet")]
const TIMEOUT: &str = "check for a firewall in between, or raise --timeout";

/// Returns the findings about NATS. Only reads from the servers.
#[cfg(feature = "fleet")]
pub(super) async fn findings(config: &FleetConfig, timeout: Duration) -> Vec<Finding> {
    let params = app::nats_params(config);
    let Ok((problems, is_usable)) = tokio::time::timeout(timeout, params.check()).await else {
        let problem = format!("not finished within {}", HumanDuration(timeout));
        return vec![finding(Level::Error, "nats", problem, TIMEOUT)];
    };
    // One server is enough to join the fleet.
    let level = if is_usable { Level::Warning } else { Level::Error };
    problems.iter().map(|problem| of_problem(level, problem)).collect()
}

/// Reports that this program cannot join a fleet, because it was built without the feature `fleet`.
#[cfg(not(feature = "fleet"))]
pub(super) async fn findings(_: &FleetConfig, _: Duration) -> Vec<Finding> {
    let problem = app::WITHOUT_FLEET.to_owned();
    vec![finding(Level::Error, "", problem, "remove [fleet], or build the program with the feature fleet")]
}

#[cfg(feature = "fleet")]
fn of_problem(level: Level, problem: &NatsProblem) -> Finding {
    let (key, advice) = match problem {
        NatsProblem::Unreachable { .. } => {
            ("nats", "check the address and the port for clients (4222), TLS, and that the server runs")
        }
        NatsProblem::Refused { .. } => {
            ("credentials", "set fleet.credentials to a credentials file that the servers accept")
        }
        NatsProblem::Credentials(_) => {
            ("credentials", "name a file or variable with the contents of a credentials file (.creds) of NATS")
        }
        NatsProblem::NoJetStream(_) => {
            ("nats", "enable JetStream on the servers (nats-server --jetstream) and for the account")
        }
        NatsProblem::NoCluster { .. } => {
            ("replicas", "name a cluster of at least as many servers in fleet.nats, or set fleet.replicas = 1")
        }
        NatsProblem::ForeignStream(_) => ("name", "choose another name, or remove that stream"),
        _ => ("nats", "check the rights of the account to $JS.API.> and the log of the servers"),
    };
    finding(level, key, problem.to_string(), advice)
}

fn finding(level: Level, key: &str, problem: String, advice: &str) -> Finding {
    let about = if key.is_empty() { "fleet".to_owned() } else { format!("fleet.{key}") };
    Finding { level, about, problem, advice: advice.to_owned() }
}

//! `informer-hub check`: checks a configuration against its clusters before a hub runs with it.
//!
//! Each cluster has its own deadline, so a cluster that is down does not delay the others.

mod cluster;
pub(super) mod credentials;
mod fleet;
mod readers;
pub(super) mod report;
mod source;
mod text;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};

use self::report::{ClusterReport, Finding, Level, Report, SourceCheck};
use super::print::{self, Format, bytes};
use super::reviews;
use super::{interruptible, runtime};
use crate::app;
use informer_hub_config::inventory::{Holder, Roster, SourceReport, merge};
use informer_hub_config::{
    ClusterAccess, ClusterConfig, ClusterSourceConfig, Config, FleetConfig, FleetRole, HubConfig, HumanDuration,
};
use informer_hub_types::{ClusterName, ClusterSelector, ShardRule, SinkPartition, clock};

/// Maximum number of clusters that are checked concurrently.
const MAX_CONCURRENT: usize = 16;

/// Memory of the process without objects, in bytes (docs/install.md).
const PROCESS_MEMORY: u64 = 60 << 20;
/// Memory that is assumed for each informer without its objects, in bytes.
const INFORMER_MEMORY: u64 = 28 << 10;

/// Arguments of `check`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub check -c hub.toml\n  informer-hub check -c hub.toml -o json | jq \
    .clusters[].findings\n\nExit codes: 0 no findings, 1 warnings, 2 errors: something that is configured would \
        not work.\nObjects and memory are estimates. It changes nothing.")]
pub(super) struct Args {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Check only this cluster; may be given several times
    #[arg(long = "cluster", value_name = "NAME")]
    clusters: Vec<String>,
    /// The time limit for each cluster
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: HumanDuration,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let report = match app::load(&args.config) {
        Ok(config) => {
            let runtime = runtime()?;
            let report = interruptible(&runtime, args.check(&config));
            // Does not wait for credential plugins that hang.
            runtime.shutdown_background();
            report?
        }
        Err(mistakes) => Report { mistakes: Some(mistakes), ..args.report() },
    };
    let report = report.judge();
    print::answer(args.output, &report, || text::text(&report, print::colours()))?;
    Ok(match report.result {
        Level::Fine => ExitCode::SUCCESS,
        Level::Warning => ExitCode::from(1),
        Level::Error => ExitCode::from(2),
    })
}

impl Args {
    fn report(&self) -> Report {
        Report {
            file: self.config.display().to_string(),
            result: Level::Fine,
            mistakes: None,
            cluster_sources: Vec::new(),
            clusters: Vec::new(),
            findings: Vec::new(),
            objects: 0,
            object_memory: 0,
            memory: PROCESS_MEMORY,
        }
    }

    async fn check(&self, config: &Config) -> anyhow::Result<Report> {
        let mut report = self.report();
        let roster = self.check_sources(config, &mut report).await;
        let mut chosen = self.reachable(super::chosen(&roster.clusters, &self.clusters)?)?;
        if config.fleet.as_ref().is_some_and(|fleet| !fleet.roles.contains(&FleetRole::Collect)) {
            // Without the role `collect`, the process reads the log of the fleet and connects to no cluster.
            chosen.clear();
        }
        let progress = Progress::new(chosen.len());
        let source_of = |cluster: &ClusterConfig| match roster.sourced.get(&cluster.name)? {
            Holder::Source { name, .. } => Some(name.clone()),
            Holder::Table => None,
        };
        let mut answers = futures::stream::iter(chosen)
            .map(async |cluster| {
                progress.done(check_cluster(cluster, source_of(cluster), config, &self.config, self.timeout.0).await)
            })
            .buffered(MAX_CONCURRENT);
        while let Some(cluster) = answers.next().await {
            report.clusters.push(cluster);
        }
        report.clusters.extend(self.check_own_cluster(config).await);
        if !config.sources.is_empty() {
            selections(config, &roster.clusters, &mut report.findings);
        }
        report.findings.extend(open_read_api(config));
        report.findings.extend(readers::findings(config, &roster.clusters));
        report.findings.extend(readers::unserved_secrets(config));
        report.findings.extend(readers::issuer(config, self.timeout.0).await);
        if let Some(of_fleet) = &config.fleet {
            report.findings.extend(fleet::findings(of_fleet, self.timeout.0).await);
            report.findings.extend(shards_without_a_cluster(of_fleet, &roster.clusters));
        }
        sum(&mut report, config.hub.memory_limit);
        Ok(report)
    }

    /// Returns the chosen clusters without those with `agent = true`, which only an agent inside the cluster reaches.
    /// Fails if `--cluster` names one of these.
    fn reachable<'c>(&self, chosen: Vec<&'c ClusterConfig>) -> anyhow::Result<Vec<&'c ClusterConfig>> {
        let is_of_agent = |cluster: &&ClusterConfig| cluster.access == ClusterAccess::Agent;
        let named = chosen.iter().find(|cluster| !self.clusters.is_empty() && is_of_agent(cluster));
        if let Some(cluster) = named {
            anyhow::bail!("an agent watches {}; check the file of the agent, where the agent runs", cluster.name);
        }
        Ok(chosen.into_iter().filter(|cluster| !is_of_agent(cluster)).collect())
    }

    /// Checks the cluster of the hub's own pod, if it has the Lease of the hub's replicas but is not a configured
    /// cluster. Returns `None` if it need not be checked: without leader election, with `--cluster`, or if a configured
    /// cluster has the Lease.
    async fn check_own_cluster(&self, config: &Config) -> Option<ClusterReport> {
        let ha = config.ha.as_ref().filter(|_| self.clusters.is_empty())?;
        let is_watched = config.clusters.iter().any(|cluster| ha.is_lease_in(cluster));
        if is_watched {
            return None;
        }
        let mut without_resources = config.clone();
        without_resources.resources.clear();
        Some(check_cluster(&app::own_cluster(), None, &without_resources, &self.config, self.timeout.0).await)
    }

    /// Checks all cluster sources. Returns the clusters of the `[clusters]` tables and those that the sources have now.
    async fn check_sources(&self, config: &Config, report: &mut Report) -> Roster {
        let checks = config.sources.iter().map(|source| check_source(source, &self.config, self.timeout.0));
        let answers: Vec<_> = futures::stream::iter(checks).buffered(MAX_CONCURRENT).collect().await;
        let mut found = BTreeMap::new();
        for (source, (report_of_source, source_report)) in config.sources.iter().zip(answers) {
            found.insert(source.name.clone(), report_of_source.clusters);
            report.cluster_sources.push(source_report);
        }
        let roster = merge(&config.clusters, &found);
        for about in &mut report.cluster_sources {
            let is_own = |holder: &Holder| matches!(holder, Holder::Source { name, .. } if *name == about.source);
            let names = roster.sourced.iter().filter(|(_, holder)| is_own(holder)).map(|(name, _)| name.to_string());
            about.clusters = names.collect();
            let source = about.source.clone();
            for conflict in roster.conflicts.iter().filter(|conflict| conflict.source == source) {
                let holder = conflict.holder.of(&conflict.cluster);
                about.conflicting += 1;
                let problem = format!("{}: the name {} belongs to {holder}", conflict.object, conflict.cluster);
                let advice = "the hub does not watch it: rename one, or set another name pattern for the source";
                about.find(Level::Warning, problem, advice);
            }
        }
        roster
    }
}

/// Checks one cluster source within `timeout`. Returns the source's clusters, and the report of the check.
async fn check_source(source: &ClusterSourceConfig, file: &Path, timeout: Duration) -> (SourceReport, SourceCheck) {
    let begun = clock::now();
    let mut report = SourceCheck::new(&source.name, source.kind.as_str());
    let found = tokio::time::timeout(timeout, source::check(source, file, &mut report)).await.unwrap_or_else(|_| {
        let problem = format!("not finished within {}", HumanDuration(timeout));
        let advice = "check for a firewall, a VPN or a proxy in between, or raise --timeout";
        report.find(Level::Error, problem, advice);
        SourceReport::default()
    });
    report.took = clock::now().duration_since(begun);
    (found, report)
}

/// Adds findings for entries of `[resources]` and `[sinks]` that select no cluster, and for entries of `[resources]`
/// that conflict in a cluster. These mistakes depend on the clusters that cluster sources have now, so they are not
/// found when the configuration is loaded.
fn selections(config: &Config, clusters: &[ClusterConfig], findings: &mut Vec<Finding>) {
    let resources = config.resources.iter().map(|it| (format!("resources.{}.clusters", it.name), &it.clusters));
    let sinks = config.sinks.iter().filter(|it| it.partition.is_none_or(SinkPartition::is_first));
    let sinks = sinks.map(|it| (format!("sinks.{}.match.clusters", it.table()), &it.select.clusters));
    for (about, selector) in resources.chain(sinks) {
        let mut warn = |problem: String| {
            let advice = "a source may add one later; otherwise correct the names or labels".to_owned();
            findings.push(Finding { level: Level::Warning, about: about.clone(), problem, advice });
        };
        if let ClusterSelector::Names(names) = selector {
            let is_there = |name: &&ClusterName| clusters.iter().any(|cluster| cluster.name == **name);
            for name in names.iter().filter(|name| !is_there(name)) {
                warn(format!("there is currently no cluster {name}"));
            }
        } else if !clusters.iter().any(|cluster| selector.matches(&cluster.name, &cluster.labels)) {
            warn("currently selects no cluster".to_owned());
        }
    }
    for (at, one) in config.resources.iter().enumerate() {
        for other in &config.resources[..at] {
            let Some(cluster) = one.clash(other, clusters) else { continue };
            findings.push(Finding {
                level: Level::Error,
                about: format!("resources.{}", one.name),
                problem: format!(
                    "watches the same objects as resources.{} in cluster {cluster}, but keeps other fields",
                    other.name
                ),
                advice: "use the same drop, keep and metadata_only in both, or separate clusters or namespaces"
                    .to_owned(),
            });
        }
    }
}

/// Returns a finding for each rule of `[fleet.shards]` that selects no cluster.
fn shards_without_a_cluster(fleet: &FleetConfig, clusters: &[ClusterConfig]) -> impl Iterator<Item = Finding> {
    let selects_one = |rule: &&ShardRule| clusters.iter().any(|cluster| rule.selects_cluster(&cluster.name));
    fleet.shards.iter().filter(move |rule| !selects_one(rule)).map(|rule| Finding {
        level: Level::Warning,
        about: format!("fleet.shards.{}.clusters", rule.name.as_str()),
        problem: "selects none of the present clusters".to_owned(),
        advice: "correct the names; ignore this in the file of an agent for another cluster".to_owned(),
    })
}

/// Checks one cluster within `timeout`.
async fn check_cluster(
    cluster: &ClusterConfig,
    source: Option<String>,
    config: &Config,
    file: &Path,
    timeout: Duration,
) -> ClusterReport {
    let begun = clock::now();
    let resources: Vec<_> =
        config.resources.iter().filter(|it| it.clusters.matches(&cluster.name, &cluster.labels)).collect();
    let mut report = ClusterReport { source, ..ClusterReport::new(cluster.name.as_str()) };
    let reviews = reviews::of_cluster(&config.hub.service.authorization, &cluster.name);
    let lease = config.ha.as_ref().filter(|ha| ha.is_lease_in(cluster)).map(|ha| &ha.lease);
    let checking = cluster::check(cluster, (&resources, &reviews, lease), file, &mut report);
    if tokio::time::timeout(timeout, checking).await.is_err() {
        let problem = format!("not finished within {}", HumanDuration(timeout));
        let advice = "check for a firewall, a VPN or a proxy in between, and for a credential command that waits for \
                      input; or raise --timeout";
        report.find(Level::Error, problem, advice);
    }
    if resources.is_empty() && lease.is_none() {
        report.find(Level::Warning, "no entry of [resources] selects it", "remove it, or widen an entry's clusters");
    }
    report.took = clock::now().duration_since(begun);
    report
}

/// Returns a finding if other machines can use the read API without authentication.
fn open_read_api(config: &Config) -> Option<Finding> {
    let HubConfig { listen, service, .. } = &config.hub;
    if listen.ip().is_loopback() || config.authenticates() || !service.read_api.enabled {
        return None;
    }
    let secrets = if service.read_api.serve_secrets { ", Secrets included" } else { "" };
    Some(Finding {
        level: Level::Warning,
        about: "hub.read_api".to_owned(),
        problem: format!("every client that reaches {listen} can read all cached objects{secrets}"),
        advice: "set [hub.auth] read_token, [readers] or [oidc], or a client_ca_file in [hub.tls], or [hub.read_api] \
                 enabled = false"
            .to_owned(),
    })
}

fn sum(report: &mut Report, limit: Option<u64>) {
    let scopes = || report.clusters.iter().flat_map(|cluster| &cluster.resources).flat_map(|it| &it.scopes);
    let objects = scopes().filter_map(|scope| scope.objects).sum();
    let object_memory = scopes().filter_map(|scope| scope.memory).fold(0, u64::saturating_add);
    let memory = object_memory.saturating_add(PROCESS_MEMORY + INFORMER_MEMORY * scopes().count() as u64);
    (report.objects, report.object_memory, report.memory) = (objects, object_memory, memory);
    // The hub starts to reduce memory at 90 % of the limit, and a first list needs more than its objects take later.
    if let Some(limit) = limit.filter(|limit| memory.saturating_add(memory / 4) > *limit) {
        report.findings.push(Finding {
            level: Level::Warning,
            about: "hub.memory_limit".to_owned(),
            problem: format!("{} may be too small: the estimate is {}", bytes(limit), bytes(memory)),
            advice: "raise it to 25 % above the estimate, or keep less: see docs/memory.md".to_owned(),
        });
    }
}

/// Progress bar on a terminal, nothing elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(clusters: usize) -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {pos}/{len} clusters checked {wide_msg}");
            let bar = ProgressBar::new(clusters as u64);
            bar.enable_steady_tick(Duration::from_millis(100));
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        }))
    }

    fn done(&self, report: ClusterReport) -> ClusterReport {
        if let Some(bar) = &self.0 {
            bar.inc(1);
            bar.set_message(report.cluster.clone());
        }
        report
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Renders two reports, which a test compares. The first contains `foreign` in all places that can hold untrusted text,
/// the second a plain word.
#[cfg(test)]
pub(super) fn screens(foreign: &str) -> (String, String) {
    let screen = |text: &str| {
        let mut cluster = ClusterReport { version: Some("end".to_owned()), ..ClusterReport::new("c") };
        cluster.find(Level::Error, text, text);
        let findings =
            vec![Finding { level: Level::Warning, about: text.into(), problem: text.into(), advice: text.into() }];
        let (clusters, cluster_sources) = (vec![cluster], Vec::new());
        let file = "hub.toml".to_owned();
        let report = Report {
            file,
            result: Level::Fine,
            mistakes: None,
            cluster_sources,
            clusters,
            findings,
            objects: 0,
            object_memory: 0,
            memory: 0,
        };
        text::text(&report.judge(), false)
    };
    (screen(foreign), screen("end"))
}

//! `informer-hub check`: whether a configuration will work, before it runs.
//!
//! Each cluster is asked by itself and has a deadline of its own, so one that is down holds up no other.

mod cluster;
pub(super) mod credentials;
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

use self::report::{ClusterReport, Finding, Level, Report, SourceReport};
use super::print::{self, Format, bytes};
use super::{interruptible, runtime};
use crate::app;
use informer_hub_config::fleet::{self, Holder, Roster, Said};
use informer_hub_config::{ClusterConfig, ClusterSourceConfig, Config, HumanDuration};
use informer_hub_types::{ClusterName, ClusterSelector, clock};

/// Clusters that are asked at the same time.
const AT_ONCE: usize = 16;

/// What the program takes itself, and what each informer takes: docs/memory.md.
const PROGRAM: u64 = 60 << 20;
const INFORMER: u64 = 66 << 10;

/// Arguments of `check`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub check -c hub.toml\n  informer-hub check -c hub.toml -o json | jq \
    .clusters[].findings\n\nExit codes: 0 nothing to do, 1 warnings, 2 errors: something that is configured would not \
    be watched.\nObjects and memory are estimates. Nothing is changed anywhere.")]
pub(super) struct Args {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Ask this cluster only; may be given several times
    #[arg(long = "cluster", value_name = "NAME")]
    clusters: Vec<String>,
    /// How long a cluster may take in all
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: HumanDuration,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let report = match app::load(&args.config) {
        Ok(config) => {
            let runtime = runtime()?;
            let report = interruptible(&runtime, args.ask(&config));
            // A credential plugin that hangs is not waited for.
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
            memory: PROGRAM,
        }
    }

    async fn ask(&self, config: &Config) -> anyhow::Result<Report> {
        let mut report = self.report();
        let roster = self.ask_sources(config, &mut report).await;
        let chosen = super::chosen(&roster.clusters, &self.clusters)?;
        let progress = Progress::new(chosen.len());
        let source_of = |cluster: &ClusterConfig| match roster.sourced.get(&cluster.name)? {
            Holder::Source { name, .. } => Some(name.clone()),
            Holder::Table => None,
        };
        let mut answers = futures::stream::iter(chosen)
            .map(async |cluster| {
                progress.done(one(cluster, source_of(cluster), config, &self.config, self.timeout.0).await)
            })
            .buffered(AT_ONCE);
        while let Some(cluster) = answers.next().await {
            report.clusters.push(cluster);
        }
        if !config.sources.is_empty() {
            selections(config, &roster.clusters, &mut report.findings);
        }
        sum(&mut report, config.hub.memory_limit);
        Ok(report)
    }

    /// All clusters there are, with what sources bring now.
    async fn ask_sources(&self, config: &Config, report: &mut Report) -> Roster {
        let asked = config.sources.iter().map(|source| one_source(source, &self.config, self.timeout.0));
        let answers: Vec<_> = futures::stream::iter(asked).buffered(AT_ONCE).collect().await;
        let mut said = BTreeMap::new();
        for (source, (found, about)) in config.sources.iter().zip(answers) {
            said.insert(source.name.clone(), found.clusters);
            report.cluster_sources.push(about);
        }
        let roster = fleet::merge(&config.clusters, &said);
        for about in &mut report.cluster_sources {
            let is_its = |holder: &Holder| matches!(holder, Holder::Source { name, .. } if *name == about.source);
            let its = roster.sourced.iter().filter(|(_, holder)| is_its(holder)).map(|(name, _)| name.to_string());
            about.clusters = its.collect();
            let source = about.source.clone();
            for conflict in roster.conflicts.iter().filter(|conflict| conflict.source == source) {
                let holder = conflict.holder.of(&conflict.cluster);
                about.conflicting += 1;
                let problem = format!("{}: the name {} is that of {holder}", conflict.object, conflict.cluster);
                let advice = "it is not watched: rename one of them, or give the source another pattern of names";
                about.find(Level::Warning, problem, advice);
            }
        }
        roster
    }
}

/// Looks at one source, and no longer than this.
async fn one_source(source: &ClusterSourceConfig, file: &Path, timeout: Duration) -> (Said, SourceReport) {
    let begun = clock::now();
    let mut report = SourceReport::new(&source.name, source.kind.as_str());
    let said = tokio::time::timeout(timeout, source::check(source, file, &mut report)).await.unwrap_or_else(|_| {
        let problem = format!("not done within {}", HumanDuration(timeout));
        let advice = "look for a firewall, a VPN or a proxy in between; or give it longer by --timeout";
        report.find(Level::Error, problem, advice);
        Said::default()
    });
    report.took = clock::now().duration_since(begun);
    (said, report)
}

/// What entries select of the clusters that there are now: with sources nobody could tell before.
fn selections(config: &Config, clusters: &[ClusterConfig], findings: &mut Vec<Finding>) {
    let resources = config.resources.iter().map(|it| (format!("resources.{}.clusters", it.name), &it.clusters));
    let sinks = config.sinks.iter().map(|it| (format!("sinks.{}.match.clusters", it.name), &it.select.clusters));
    for (about, selector) in resources.chain(sinks) {
        let mut warn = |problem: String| {
            let advice = "a source may bring one later; if none will, mend the names or labels".to_owned();
            findings.push(Finding { level: Level::Warning, about: about.clone(), problem, advice });
        };
        if let ClusterSelector::Names(names) = selector {
            let is_there = |name: &&ClusterName| clusters.iter().any(|cluster| cluster.name == **name);
            for name in names.iter().filter(|name| !is_there(name)) {
                warn(format!("there is no cluster {name} now"));
            }
        } else if !clusters.iter().any(|cluster| selector.matches(&cluster.name, &cluster.labels)) {
            warn("selects no cluster that there is now".to_owned());
        }
    }
    for (at, one) in config.resources.iter().enumerate() {
        for other in &config.resources[..at] {
            let Some(cluster) = one.clash(other, clusters) else { continue };
            findings.push(Finding {
                level: Level::Error,
                about: format!("resources.{}", one.name),
                problem: format!(
                    "watches objects that resources.{} watches too, in cluster {cluster}, and keeps other parts of them",
                    other.name
                ),
                advice: "write the same drop, keep and metadata_only in both, or give them other clusters or namespaces"
                    .to_owned(),
            });
        }
    }
}

/// Asks one cluster, which a source may bring, and no longer than this.
async fn one(
    cluster: &ClusterConfig,
    source: Option<String>,
    config: &Config,
    file: &Path,
    timeout: Duration,
) -> ClusterReport {
    let begun = clock::now();
    let wanted: Vec<_> =
        config.resources.iter().filter(|it| it.clusters.matches(&cluster.name, &cluster.labels)).collect();
    let mut report = ClusterReport { source, ..ClusterReport::new(cluster.name.as_str()) };
    if tokio::time::timeout(timeout, cluster::check(cluster, &wanted, file, &mut report)).await.is_err() {
        let problem = format!("not done within {}", HumanDuration(timeout));
        let advice = "look for a firewall, a VPN or a proxy in between, or for a credential command that waits for \
                      somebody; or give it longer by --timeout";
        report.find(Level::Error, problem, advice);
    }
    if wanted.is_empty() {
        report.find(Level::Warning, "no entry of [resources] selects it", "remove it, or widen an entry's clusters");
    }
    report.took = clock::now().duration_since(begun);
    report
}

fn sum(report: &mut Report, limit: Option<u64>) {
    let scopes = || report.clusters.iter().flat_map(|cluster| &cluster.resources).flat_map(|it| &it.scopes);
    let objects = scopes().filter_map(|scope| scope.objects).sum();
    let object_memory = scopes().filter_map(|scope| scope.memory).fold(0, u64::saturating_add);
    let memory = object_memory.saturating_add(PROGRAM + INFORMER * scopes().count() as u64);
    (report.objects, report.object_memory, report.memory) = (objects, object_memory, memory);
    // The hub acts from 90 % on, and the first list takes more than what stays.
    if let Some(limit) = limit.filter(|limit| memory.saturating_add(memory / 4) > *limit) {
        report.findings.push(Finding {
            level: Level::Warning,
            about: "hub.memory_limit".to_owned(),
            problem: format!("{} may not hold what is estimated to take {}", bytes(limit), bytes(memory)),
            advice: "raise it to a quarter more than the estimate, or keep less: docs/memory.md says how".to_owned(),
        });
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(clusters: usize) -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {pos}/{len} clusters asked {wide_msg}");
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

/// A report with this text wherever it can be foreign, and one with a word in its place.
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

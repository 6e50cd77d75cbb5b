//! Summary of a demo: comparison of the clusters with their copies, totals and verdict.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;

use super::view::FRESH;
use crate::cli::print::{grouped, lines, number, painted, styled, table, wrapped};

/// Suggested next commands, with their purpose.
const NEXT: [(&str, &str); 4] = [
    ("informer-hub demo --clusters 20 --duration 1m", "more of the same"),
    ("informer-hub import-kubeconfig > hub.toml", "list your own clusters"),
    ("informer-hub check -c hub.toml", "check that it will work"),
    ("informer-hub run -c hub.toml", "watch them"),
];

/// Summary of a demo; also the document of `-o json`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Whether cache and receiver equal the clusters and no event was wrong; decides the exit code.
    pub(super) ok: bool,
    verdict: String,
    seed: u64,
    interrupted: bool,
    /// How long the clusters changed and failed.
    ran_millis: u64,
    settled_after_millis: u64,
    clusters: Vec<ClusterSummary>,
    totals: Totals,
    violations: Vec<String>,
}

/// Result of comparing a cluster with its two copies: the hub's cache and the receiver's replica.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterSummary {
    pub(super) name: String,
    /// Number of objects in the cluster.
    pub(super) truth: usize,
    /// Number of objects of the cluster in the hub's cache.
    pub(super) cache: usize,
    /// Number of objects of the cluster in the receiver's replica.
    pub(super) receiver: usize,
    /// Number of differences between the cluster and its two copies.
    pub(super) differences: usize,
    /// The first differences between the cluster and its two copies, as text.
    #[serde(rename = "firstDifferences", skip_serializing_if = "Vec::is_empty")]
    pub(super) shown: Vec<String>,
    pub(super) events: u64,
    pub(super) relists: u64,
    /// Freshness of the hub's copy of the cluster.
    pub(super) state: String,
}

/// Totals over all clusters: counters of the simulation, the hub's sink and the receiver.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) operations: u64,
    /// Number of faults injected into clusters, other than outages.
    pub(super) faults: u64,
    pub(super) outages: u64,
    pub(super) relists: u64,
    /// Events that wait for their delivery.
    pub(super) pending: u64,
    /// Acknowledged events.
    pub(super) delivered: u64,
    /// Acknowledged batches.
    pub(super) batches: u64,
    pub(super) retries: u64,
    /// Requests that the receiver got from the hub.
    pub(super) requests: u64,
    /// Requests that the receiver answered with an error on purpose.
    pub(super) refused: u64,
    /// Events that the receiver got more than once.
    pub(super) repeats: u64,
    pub(super) signature_failures: u64,
    /// Malformed events or batches.
    pub(super) unreadable: u64,
    pub(super) violations: u64,
    /// Median time from a change to the arrival of its event, outages included; `None` before the first event.
    pub(super) p50_millis: Option<u64>,
    pub(super) p99_millis: Option<u64>,
}

impl Summary {
    /// Creates the summary. `times`: how long the clusters changed, and how long cache and receiver then took to become
    /// equal to them.
    pub(super) fn new(
        seed: u64,
        times: [Duration; 2],
        interrupted: bool,
        clusters: Vec<ClusterSummary>,
        totals: Totals,
        violations: Vec<String>,
    ) -> Self {
        let problems = problems(&clusters, &totals);
        let (ok, count) = (problems.is_empty(), clusters.len());
        let verdict = if ok {
            let objects: usize = clusters.iter().map(|cluster| cluster.truth).sum();
            format!("equal: hub and receiver hold exactly the {objects} objects of the {count} simulated clusters")
        } else {
            format!("not equal: {}", problems.join(", "))
        };
        let [ran_millis, settled_after_millis] = times.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Self { ok, verdict, seed, interrupted, ran_millis, settled_after_millis, clusters, totals, violations }
    }

    /// Returns the summary for a demo that the user interrupted a second time. The verdict is "not known", unless all
    /// changes had arrived by then.
    pub(super) fn cut(mut self) -> Self {
        if !self.is_settled() {
            self.ok = false;
            self.verdict = String::from("not known: interrupted again before all changes had arrived");
        }
        self
    }

    /// Returns whether cache and receiver equal the clusters, the cache is fresh, and no event is undelivered.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |cluster: &ClusterSummary| cluster.differences == 0 && cluster.state == FRESH;
        self.totals.pending == 0 && self.clusters.iter().all(settled)
    }
}

/// Lists the kinds of problems that make the demo fail, each with its count.
fn problems(clusters: &[ClusterSummary], totals: &Totals) -> Vec<String> {
    let differences: u64 = clusters.iter().map(|cluster| cluster.differences as u64).sum();
    let kinds = [
        (differences, "differences"),
        (totals.violations, "events that cannot have happened"),
        (totals.signature_failures, "signatures that do not match"),
        (totals.unreadable, "events that could not be read"),
    ];
    kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect()
}

/// Renders the summary for people, with lines of at most `width` columns.
pub(super) fn render(summary: &Summary, width: usize, colours: bool) -> String {
    let mut table = table(&["CLUSTER", "OBJECTS", "IN THE HUB", "AT RECEIVER", "DIFFERENT"]);
    for cluster in &summary.clusters {
        let differences = number(grouped(cluster.differences as u64));
        let paint = if cluster.differences == 0 { Color::Green } else { Color::Red };
        table.add_row([
            Cell::new(&cluster.name),
            number(grouped(cluster.truth as u64)),
            number(grouped(cluster.cache as u64)),
            number(grouped(cluster.receiver as u64)),
            if colours { differences.fg(paint) } else { differences },
        ]);
    }
    let mut text = format!("{}\n\n", lines(&styled(table, colours)));
    let paragraph = |text: &str| wrapped(text, width, "");
    for line in summary_lines(summary) {
        let _ = writeln!(text, "{}", paragraph(&line));
    }
    let details =
        summary.clusters.iter().flat_map(|cluster| cluster.shown.iter().map(move |line| (&cluster.name, line)));
    for (cluster, line) in details {
        let _ = writeln!(text, "  {cluster}: {line}");
    }
    for violation in &summary.violations {
        let _ = writeln!(text, "  {violation}");
    }
    let colour = if summary.ok { Color::Green } else { Color::Red };
    let _ = writeln!(text, "\n{}\n\nTry next:", painted(&paragraph(&summary.verdict), colour, colours));
    let longest = NEXT.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    for (command, why) in NEXT {
        let line = format!("  {command:longest$}  {why}");
        let _ = writeln!(text, "{}", wrapped(&line, width, "      "));
    }
    text
}

fn summary_lines(summary: &Summary) -> Vec<String> {
    let totals = &summary.totals;
    let seconds = |millis| Duration::from_millis(millis).as_secs_f64();
    let count =
        |count: u64, one: &str, many: &str| format!("{} {}", grouped(count), if count == 1 { one } else { many });
    let mut lines = Vec::new();
    if summary.interrupted {
        lines.push(format!("Interrupted after {:.1} s.", seconds(summary.ran_millis)));
    }
    lines.push(format!(
        "The clusters changed {}. {} and {} on purpose; the hub listed {} again.",
        count(totals.operations, "time", "times"),
        count(totals.outages, "cluster went down", "clusters went down"),
        count(totals.faults, "watch expired", "watches expired"),
        count(totals.relists, "resource", "resources"),
    ));
    lines.push(format!(
        "{} reached the receiver in {}. It refused {} on purpose, which the hub repeated; {} came twice, with the same id.",
        count(totals.delivered, "event", "events"),
        count(totals.batches, "request", "requests"),
        grouped(totals.refused),
        count(totals.repeats, "event", "events"),
    ));
    if let (Some(p50), Some(p99)) = (totals.p50_millis, totals.p99_millis) {
        lines.push(format!(
            "From a change to its arrival: half within {} ms, 99 % within {} ms, outages included.",
            grouped(p50),
            grouped(p99)
        ));
    }
    if summary.is_settled() {
        lines.push(format!(
            "All copies were equal {:.1} s after the last fault was over.",
            seconds(summary.settled_after_millis)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn summary(differences: usize, totals: Totals) -> Summary {
        let shown = (0..differences).map(|at| format!("cache: pods a/{at} is missing")).collect();
        let cluster = ClusterSummary {
            name: "cluster-1".into(),
            truth: 10,
            cache: 10,
            receiver: 10,
            differences,
            shown,
            state: FRESH.into(),
            ..ClusterSummary::default()
        };
        Summary::new(1, [Duration::from_secs(10), Duration::ZERO], false, vec![cluster], totals, Vec::new())
    }

    #[test]
    fn the_verdict_is_ok_only_without_faults() {
        let good = summary(0, Totals { retries: 5, repeats: 3, ..Totals::default() });
        assert!(good.ok && good.is_settled());
        assert!(good.verdict.contains("exactly the 10 objects of the 1 simulated clusters"), "{}", good.verdict);
        let unsigned = summary(0, Totals { signature_failures: 1, ..Totals::default() });
        assert!(!unsigned.ok && unsigned.is_settled());
        assert!(!summary(0, Totals { violations: 1, ..Totals::default() }).ok);
        assert!(!summary(0, Totals { unreadable: 1, ..Totals::default() }).ok);
        assert!(!summary(2, Totals::default()).ok);
        assert!(!summary(0, Totals { pending: 1, ..Totals::default() }).is_settled());
    }

    #[test]
    fn differences_are_listed_and_counted() {
        let text = render(&summary(2, Totals::default()), 80, false);
        assert!(text.contains("cluster-1: cache: pods a/1 is missing"), "{text}");
        assert!(text.contains("\nnot equal: 2 differences\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn the_summary_fits_80_columns_and_suggests_commands() {
        let big = 1_234_567;
        let totals = Totals {
            operations: big,
            faults: big,
            relists: big,
            delivered: big,
            batches: big,
            refused: big,
            repeats: big,
            p50_millis: Some(12_345),
            p99_millis: Some(60_000),
            ..Totals::default()
        };
        let text = render(&summary(0, totals), 80, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains("Interrupted"), "{text}");
        for (command, why) in NEXT {
            assert!(text.contains(command) && text.contains(why), "{command} is missing in\n{text}");
            let words = command.split(" > ").next().unwrap_or_default().split(' ');
            assert!(crate::cli::Cli::try_parse_from(words).is_ok(), "{command}");
        }
    }

    #[test]
    fn an_interruption_is_reported_and_a_second_one_voids_the_verdict() {
        let interrupted = Summary { interrupted: true, ran_millis: 4200, ..summary(0, Totals::default()) };
        let text = render(&interrupted, 80, false);
        assert!(text.contains("\nInterrupted after 4.2 s.\n"), "{text}");
        assert!(interrupted.cut().ok, "all changes had arrived");
        let cut = summary(2, Totals::default()).cut();
        assert!(!cut.ok && cut.verdict.starts_with("not known: interrupted again"), "{}", cut.verdict);
    }
}

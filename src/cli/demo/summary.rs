//! How it ended: the comparison, the totals and the verdict.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::{Cell, Color, Table, presets};
use serde::Serialize;

use super::view::FRESH;
use crate::cli::print::{number, styled};

/// The end of a demo; also the JSON that `-o json` writes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Whether everything is as promised: the exit code.
    pub(super) ok: bool,
    verdict: String,
    seed: u64,
    interrupted: bool,
    settled_after_millis: u64,
    clusters: Vec<ClusterSummary>,
    totals: Totals,
    violations: Vec<String>,
}

/// One cluster and its two copies.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterSummary {
    pub(super) name: String,
    /// Objects in the cluster.
    pub(super) truth: usize,
    /// Objects in the hub's cache.
    pub(super) cache: usize,
    /// Objects that the receiver has.
    pub(super) receiver: usize,
    /// Objects in which one of the copies differs.
    pub(super) differences: usize,
    /// The first of these.
    #[serde(rename = "firstDifferences", skip_serializing_if = "Vec::is_empty")]
    pub(super) shown: Vec<String>,
    pub(super) events: u64,
    pub(super) relists: u64,
    /// How far the cache can be trusted.
    pub(super) state: String,
}

/// Sums over all clusters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) operations: u64,
    /// Faults that the clusters' scripts struck with, besides clusters that went down.
    pub(super) faults: u64,
    pub(super) relists: u64,
    /// Events that wait to be delivered.
    pub(super) pending: u64,
    /// Events acknowledged.
    pub(super) delivered: u64,
    /// Batches acknowledged.
    pub(super) batches: u64,
    pub(super) retries: u64,
    /// Requests at the receiver.
    pub(super) requests: u64,
    /// Of these, refused on purpose.
    pub(super) refused: u64,
    /// Events that the receiver had had before.
    pub(super) repeats: u64,
    pub(super) signature_failures: u64,
    /// Events that were not what a sink promises.
    pub(super) unreadable: u64,
    pub(super) violations: u64,
    /// From a change to its arrival, outages included.
    pub(super) p50_millis: Option<u64>,
    pub(super) p99_millis: Option<u64>,
}

impl Summary {
    pub(super) fn new(
        seed: u64,
        settling: Duration,
        interrupted: bool,
        clusters: Vec<ClusterSummary>,
        totals: Totals,
        violations: Vec<String>,
    ) -> Self {
        let problems = problems(&clusters, &totals);
        let (ok, count) = (problems.is_empty(), clusters.len());
        let verdict = if ok {
            let objects: usize = clusters.iter().map(|cluster| cluster.truth).sum();
            format!("equal: cache and receiver hold exactly the {objects} objects of the {count} simulated clusters")
        } else {
            format!("not equal: {}", problems.join(", "))
        };
        let settled_after_millis = u64::try_from(settling.as_millis()).unwrap_or(u64::MAX);
        Self { ok, verdict, seed, interrupted, settled_after_millis, clusters, totals, violations }
    }

    /// Whether there is nothing to wait for: both copies of every cluster are equal to it, the hub knows so, and
    /// nothing is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |cluster: &ClusterSummary| cluster.differences == 0 && cluster.state == FRESH;
        self.totals.pending == 0 && self.clusters.iter().all(settled)
    }
}

/// What is not as promised, each in a few words.
fn problems(clusters: &[ClusterSummary], totals: &Totals) -> Vec<String> {
    let differences: u64 = clusters.iter().map(|cluster| cluster.differences as u64).sum();
    let kinds = [
        (differences, "differences"),
        (totals.violations, "events that cannot have happened"),
        (totals.signature_failures, "signatures that do not match"),
        (totals.unreadable, "events that could not be read"),
    ];
    kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
}

/// The summary for people.
pub(super) fn render(summary: &Summary, colours: bool) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    table.set_header(["cluster", "truth", "cache", "receiver", "differences", "events", "relists"]);
    for cluster in &summary.clusters {
        let differences = number(cluster.differences as u64);
        let paint = if cluster.differences == 0 { Color::Green } else { Color::Red };
        table.add_row([
            Cell::new(&cluster.name),
            number(cluster.truth as u64),
            number(cluster.cache as u64),
            number(cluster.receiver as u64),
            if colours { differences.fg(paint) } else { differences },
            number(cluster.events),
            number(cluster.relists),
        ]);
    }
    let table = styled(table, colours);
    let mut text = format!("\n{table}\n{}\n", totals(summary));
    let details =
        summary.clusters.iter().flat_map(|cluster| cluster.shown.iter().map(move |line| (&cluster.name, line)));
    for (cluster, line) in details {
        let _ = writeln!(text, "  {cluster}: {line}");
    }
    for violation in &summary.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text + &summary.verdict
}

fn totals(summary: &Summary) -> String {
    let totals = &summary.totals;
    let mut text = format!(
        "{} operations, {} expired watches, {} relists; {} events delivered in {} batches, {} retries ({} requests \
         refused on purpose), {} events came twice, {} signature failures; caught up {:.1} s after the faults ended",
        totals.operations,
        totals.faults,
        totals.relists,
        totals.delivered,
        totals.batches,
        totals.retries,
        totals.refused,
        totals.repeats,
        totals.signature_failures,
        Duration::from_millis(summary.settled_after_millis).as_secs_f64(),
    );
    if let (Some(p50), Some(p99)) = (totals.p50_millis, totals.p99_millis) {
        let _ = write!(text, "; from a change to its arrival: p50 {p50} ms, p99 {p99} ms, outages included");
    }
    text
}

#[cfg(test)]
mod tests {
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
        Summary::new(1, Duration::ZERO, false, vec![cluster], totals, Vec::new())
    }

    #[test]
    fn the_verdict_is_good_only_when_nothing_is_wrong() {
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
    fn differences_are_printed_one_by_one_and_counted_in_the_verdict() {
        let text = render(&summary(2, Totals::default()), false);
        assert!(text.contains("cluster-1: cache: pods a/1 is missing"), "{text}");
        assert!(text.ends_with("not equal: 2 differences"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}

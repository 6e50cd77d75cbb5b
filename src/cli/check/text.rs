//! Report of a check as text: tables, findings and totals.

use std::collections::HashMap;
use std::fmt::Write;

use comfy_table::{Cell, CellAlignment};

use super::report::{ClusterReport, Finding, Level, Report, ScopeReport, SourceCheck};
use crate::cli::print::{bytes, lines, span, table};
use informer_hub_types::{Credential, clock, printable, printable_start};

/// Maximum number of shown characters of a user name.
const MAX_USER: usize = 80;

pub(super) fn text(report: &Report, colours: bool) -> String {
    if let Some(mistakes) = &report.mistakes {
        return format!("{mistakes}\n");
    }
    let mut text = String::new();
    if !report.cluster_sources.is_empty() {
        let _ = writeln!(text, "{}\n", lines(&sources(&report.cluster_sources)));
    }
    let tables = [clusters(&report.clusters), resources(&report.clusters)];
    let filled = tables.iter().filter(|table| table.row_iter().next().is_some());
    let _ = writeln!(text, "{}", filled.map(lines).collect::<Vec<_>>().join("\n\n"));
    for findings in by_advice(&report.all_findings()) {
        text.push('\n');
        for finding in &findings {
            let [about, problem] = [&finding.about, &finding.problem].map(|text| printable(text));
            let _ = writeln!(text, "{} {about}: {problem}", coloured(finding.level, colours));
        }
        let advice = findings.first().map(|finding| printable(&finding.advice)).unwrap_or_default();
        let _ = writeln!(text, "         {advice}");
    }
    let _ = writeln!(text, "\n{}", sum(report));
    text
}

/// Groups findings of one severity by their advice, in the order of each advice's first finding.
fn by_advice<'f>(findings: &[&'f Finding]) -> Vec<Vec<&'f Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let mut places = HashMap::new();
    for finding in findings {
        let at = *places.entry((&finding.advice, finding.level)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn coloured(level: Level, colours: bool) -> String {
    let (word, code) = match level {
        Level::Error => ("error", "31"),
        Level::Warning => ("warning", "33"),
        Level::Fine => ("fine", "32"),
    };
    if colours { format!("\u{1b}[{code}m{word:<8}\u{1b}[0m") } else { format!("{word:<8}") }
}

fn sum(report: &Report) -> String {
    let count = |level| report.all_findings().iter().filter(|finding| finding.level == level).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}: {}, {}; {} in about {} of memory, {} with the process",
        plural(report.clusters.len(), "cluster"),
        plural(count(Level::Error), "error"),
        plural(count(Level::Warning), "warning"),
        plural(usize::try_from(report.objects).unwrap_or(usize::MAX), "object"),
        bytes(report.object_memory),
        bytes(report.memory),
    )
}

fn sources(reports: &[SourceCheck]) -> comfy_table::Table {
    let mut table = table(&["SOURCE", "TYPE", "REACHED", "CLUSTERS", "CONFLICTS", "INVALID", "TOOK"]);
    for report in reports {
        let reached = if report.reached { "yes" } else { "no" };
        let counts = [report.clusters.len(), report.conflicting, report.invalid].map(|count| count.to_string());
        let [clusters, conflicts, invalid] = &counts;
        let took = format!("{} ms", report.took.as_millis());
        table.add_row([report.source.as_str(), report.kind, reached, clusters, conflicts, invalid, &took]);
    }
    table
}

fn clusters(reports: &[ClusterReport]) -> comfy_table::Table {
    let mut table = table(&["CLUSTER", "VERSION", "CREDENTIALS", "TOOK", "USER"]);
    for report in reports {
        let version = report.version.as_deref().unwrap_or("not reached");
        let took = format!("{} ms", report.took.as_millis());
        let user = report.identity.as_ref().map(|identity| printable_start(&identity.username, MAX_USER));
        let user = user.unwrap_or_else(|| "unknown".to_owned());
        table.add_row([report.cluster.as_str(), version, &credentials(&report.credentials), &took, &user]);
    }
    table
}

fn credentials(all: &[Credential]) -> String {
    let now = clock::wall().as_second();
    let one = |one: &Credential| match (one.expires, one.written) {
        (Some(expires), _) if expires.as_second() <= now => format!("{} expired", one.kind.as_str()),
        (Some(expires), _) => format!("{} for {}", one.kind.as_str(), span(expires.as_second().abs_diff(now))),
        (None, Some(written)) => {
            format!(
                "{} of {} ago",
                one.kind.as_str(),
                span(now.saturating_sub(written.as_second()).max(0).unsigned_abs())
            )
        }
        (None, None) => one.kind.as_str().to_owned(),
    };
    if all.is_empty() { "none".to_owned() } else { all.iter().map(one).collect::<Vec<_>>().join(", ") }
}

fn resources(reports: &[ClusterReport]) -> comfy_table::Table {
    let mut table = table(&["CLUSTER", "RESOURCE", "NAMESPACE", "LIST", "WATCH", "STREAMS", "OBJECTS", "MEMORY"]);
    for report in reports {
        for resource in &report.resources {
            if resource.scopes.is_empty() {
                table.add_row([report.cluster.as_str(), &resource.shown, "", "absent", "", "", "", ""]);
            }
            for scope in &resource.scopes {
                table.add_row(row(&report.cluster, &resource.shown, resource.streaming, scope));
            }
        }
    }
    table
}

fn row(cluster: &str, resource: &str, streaming: Option<bool>, scope: &ScopeReport) -> Vec<Cell> {
    let yes_no = |known: Option<bool>| match known {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let number =
        |text: Option<String>| Cell::new(text.unwrap_or("unknown".to_owned())).set_alignment(CellAlignment::Right);
    vec![
        Cell::new(cluster),
        Cell::new(resource),
        Cell::new(scope.namespace.as_deref().unwrap_or("all")),
        Cell::new(yes_no(scope.list)),
        Cell::new(yes_no(scope.watch)),
        Cell::new(yes_no(streaming)),
        number(scope.objects.map(|objects| objects.to_string())),
        number(scope.memory.map(bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_several_findings_is_printed_once() {
        let finding = |level, about: &str, advice: &str| Finding {
            level,
            about: about.to_owned(),
            problem: "may not".to_owned(),
            advice: advice.to_owned(),
        };
        let (error, warning) = (Level::Error, Level::Warning);
        let all = [
            finding(error, "a", "grant"),
            finding(error, "b", "renew"),
            finding(error, "c", "grant"),
            finding(warning, "d", "grant"),
        ];
        let groups = by_advice(&all.iter().collect::<Vec<_>>());
        let names = groups.iter().map(|group| group.iter().map(|it| it.about.as_str()).collect::<String>());
        assert_eq!(names.collect::<Vec<_>>(), ["ac", "b", "d"]);
    }
}

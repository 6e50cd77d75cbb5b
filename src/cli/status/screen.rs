//! Output of the status commands for people: the table with its notes, and the lines of `--watch`.

use comfy_table::Color;
use serde_json::Value;

use super::rows::{self, Row, Shape};
use super::subject::Subject;
use super::why;
use crate::cli::fit::{self, Fitted, Line};
use crate::cli::print::wrapped;
use informer_hub_types::{clock, printable};

/// Returns a line for each row that is new, has another state than in `before`, or is gone. If the first call (`before`
/// is `None`) has no rows, it returns a line that says so.
pub(super) fn changes(subject: Subject, before: Option<&[Row]>, now: &[Row]) -> Vec<String> {
    let time = clock::wall().strftime("%H:%M:%SZ").to_string();
    let Some(before) = before.or((!now.is_empty()).then_some(&[])) else {
        let nothing = match subject {
            Subject::Status => "nothing is in trouble".to_owned(),
            _ => format!("there are no {}", subject.plural()),
        };
        return vec![format!("{time} {nothing}")];
    };
    // The rows of `status` are problems only.
    let gone = if subject == Subject::Status { "no longer in trouble" } else { "gone" };
    let known = |rows: &[Row], name: &str| rows.iter().find(|row| row.name == name).map(|row| row.state.clone());
    let changed = now.iter().filter(|row| known(before, &row.name).as_ref() != Some(&row.state));
    // The problem of a cluster replaces the problems of its resources.
    let is_of = |row: &Row, of: &Row| {
        let (resource, cluster) = (row.name.strip_prefix("resource "), of.name.strip_prefix("cluster "));
        resource
            .zip(cluster)
            .and_then(|(resource, cluster)| resource.strip_prefix(cluster)?.strip_prefix('/'))
            .is_some()
    };
    let is_over = |row: &&Row| known(now, &row.name).is_none() && !now.iter().any(|of| is_of(row, of));
    let over = before.iter().filter(is_over);
    let lines = changed.map(|row| format!("{time} {}: {}", row.name, row.state));
    lines.chain(over.map(|row| format!("{time} {}: {gone}", row.name))).collect()
}

/// Renders the table with totals and notes, in at most `width` columns.
pub(super) fn page(subject: Subject, status: &Value, width: Option<usize>, colours: bool) -> String {
    let rows = rows::rows(subject, status);
    let head = if subject == Subject::Status { rows::summary(status) } else { String::new() };
    let notes = match subject {
        Subject::Sinks => Vec::new(),
        Subject::Status => [why::further_mistakes(&status["configuration"]), rows::notes(status)].concat(),
        Subject::Clusters | Subject::Resources => rows::notes(status),
    };
    let room = width.unwrap_or(usize::MAX);
    let mut notes: Vec<_> = notes.iter().map(|note| wrapped(&printable(note), room, "  ")).collect();
    if rows.is_empty() {
        let first = if subject == Subject::Status { head } else { format!("there are no {}", subject.plural()) };
        return std::iter::once(first).chain(notes).collect::<Vec<_>>().join("\n");
    }
    let paint = |row: &Row| {
        let colour = if row.concern?.is_bad() { Color::Red } else { Color::Yellow };
        Some((row.stated, colour))
    };
    let rows = rows.into_iter().map(|row| (row.cells.clone(), paint(&row))).collect();
    let (table, left_out) = table(subject, rows).render(width, colours);
    notes.extend(fit::note(&left_out, width));
    let below = if notes.is_empty() { String::new() } else { format!("\n\n{}", notes.join("\n")) };
    let head = if head.is_empty() { head } else { head + "\n\n" };
    head + &table + &below
}

fn table(subject: Subject, rows: Vec<Line>) -> Fitted<'static> {
    let Shape { header, numbers, spare } = rows::shape(subject);
    Fitted { header, numbers, spare, rows }
}

/// Returns a table of `informer-hub resources` with these rows.
#[cfg(test)]
pub(in crate::cli) fn resources_table(rows: Vec<Line>) -> Fitted<'static> {
    table(Subject::Resources, rows)
}

/// Renders the table without a limit of its width.
#[cfg(test)]
pub(super) fn text(subject: Subject, status: &Value, colours: bool) -> String {
    page(subject, status, None, colours)
}

/// Renders the tables of the four status commands, each with the name of its command.
#[cfg(test)]
pub(in crate::cli) fn screens(status: &Value) -> Vec<(&'static str, String)> {
    let all = [
        ("status", Subject::Status),
        ("clusters", Subject::Clusters),
        ("resources", Subject::Resources),
        ("sinks", Subject::Sinks),
    ];
    all.map(|(name, subject)| (name, text(subject, status, false))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_state_is_printed_once() {
        let row = |name: &str, state: &str| Row { name: name.into(), state: state.into(), ..Row::default() };
        let first = vec![row("c0", "connected"), row("c1", "connecting")];
        let changes = |before: &[Row], now: &[Row]| super::changes(Subject::Clusters, Some(before), now);
        assert_eq!(super::changes(Subject::Clusters, None, &first).len(), 2);
        let second = vec![row("c0", "connected"), row("c2", "connecting")];
        let lines = changes(&first, &second);
        assert!(matches!(&lines[..], [new, gone] if new.ends_with(" c2: connecting") && gone.ends_with(" c1: gone")));
        assert!(changes(&second, &second).is_empty());
    }

    #[test]
    fn changes_of_a_status_report_the_absence_and_the_end_of_problems() {
        let trouble = vec![Row { name: "cluster c0".into(), state: "unreachable".into(), ..Row::default() }];
        let lines = |before: Option<&[Row]>, now: &[Row]| changes(Subject::Status, before, now).join("\n");
        assert!(lines(None, &[]).ends_with("Z nothing is in trouble"));
        assert!(lines(Some(&[]), &trouble).ends_with(" cluster c0: unreachable"));
        assert!(lines(Some(&trouble), &[]).ends_with(" cluster c0: no longer in trouble"));
        assert_eq!(lines(Some(&[]), &[]), "");
        let resource = [Row { name: "resource c0/pods".into(), state: "stale".into(), ..Row::default() }];
        let other = [Row { name: "resource c01/pods".into(), state: "stale".into(), ..Row::default() }];
        assert!(!lines(Some(&resource), &trouble).contains("no longer"), "its cluster has the problem now");
        assert!(lines(Some(&other), &trouble).contains("resource c01/pods: no longer in trouble"));
        assert!(changes(Subject::Sinks, None, &[])[0].ends_with("there are no sinks"));
    }
}

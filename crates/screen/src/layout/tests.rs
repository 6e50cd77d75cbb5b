use std::fmt::Write;

use super::*;
use crate::text::width_of;

/// Returns the columns of a table with the pods of several clusters, and three rows.
fn pods() -> (Vec<Column>, Vec<Vec<String>>) {
    let columns = [
        ("CLUSTER", 0),
        ("NAMESPACE", 0),
        ("NAME", 0),
        ("READY", 0),
        ("STATUS", 0),
        ("RESTARTS", 0),
        ("AGE", 0),
        ("IP", 1),
        ("NODE", 1),
        ("NOMINATED NODE", 1),
        ("READINESS GATES", 1),
    ];
    let row = |cluster: &str, namespace: &str, name: &str, ready: &str, status: &str, node: &str| {
        let cells =
            [cluster, namespace, name, ready, status, "3 (2d ago)", "41d", "10.64.17.203", node, "<none>", "<none>"];
        cells.map(str::to_owned).to_vec()
    };
    let columns = columns.map(|(title, priority)| Column { title: title.to_owned(), priority }).to_vec();
    let rows = vec![
        row(
            "prod-eu-central-1",
            "kube-system",
            "coredns-6f6b679f8f-7xkqp",
            "1/1",
            "Running",
            "ip-10-64-17-12.eu-central-1",
        ),
        row(
            "prod-us-east-1",
            "checkout",
            "payments-api-7d9c5b8f64-zl2mw",
            "0/2",
            "CrashLoopBackOff",
            "ip-10-61-3-99.us-east-1",
        ),
        row("dev", "web", "web-0", "0/1", "Pending", "<none>"),
    ];
    (columns, rows)
}

fn screen(columns: &[Column], rows: &[Vec<String>], limit: Option<usize>) -> String {
    let layout = Layout::new(columns, rows, limit);
    let lines = rows.iter().map(|row| layout.line(row, false));
    let lines: Vec<_> = std::iter::once(layout.header()).chain(lines).collect();
    let left_out = layout.left_out().join(", ");
    lines.join("\n") + &if left_out.is_empty() { String::new() } else { format!("\n-- {left_out}") }
}

#[test]
fn golden_screens() {
    let (columns, rows) = pods();
    let basic = |row: &Vec<String>| row[..7].to_vec();
    let few: Vec<_> = rows.iter().map(basic).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layout/screens.txt");
    let mut found = String::new();
    for (title, columns, rows) in [("pods", &columns[..7], &few), ("pods, wide", &columns[..], &rows)] {
        for limit in [Some(80), Some(120), Some(200), None] {
            let width = limit.map_or("no limit".to_owned(), |limit: usize| limit.to_string());
            let _ = writeln!(found, "== {title}, {width}\n{}", screen(columns, rows, limit));
        }
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap_or_default(), "{found}");
}

#[test]
fn names_and_clusters_are_whole_while_other_columns_remain() {
    let (columns, rows) = pods();
    for limit in 62..220 {
        let layout = Layout::new(&columns, &rows, Some(limit));
        let text = screen(&columns, &rows, Some(limit));
        for row in &rows {
            let line = layout.line(row, false);
            assert!(width_of(&line) <= limit, "{limit}: {line}");
            assert!(line.contains(&row[0]) && line.contains(&row[2]), "{limit}:\n{text}");
        }
    }
    let narrow = Layout::new(&columns, &rows, Some(50));
    assert!(rows.iter().all(|row| width_of(&narrow.line(row, false)) <= 50), "{}", narrow.line(&rows[1], false));
    assert!(narrow.line(&rows[1], false).contains("…"));
}

#[test]
fn columns_that_were_asked_for_stay_while_names_can_be_shortened() {
    let (mut columns, rows) = pods();
    columns[7].priority = -1;
    let line = |limit: usize| Layout::new(&columns, &rows, Some(limit)).line(&rows[1], false);
    assert!(line(80).contains("10.64.17.203") && line(80).contains("payments-api-7d9c5b8f64-zl2mw"), "{}", line(80));
    assert!(line(64).contains("10.64.17.203") && line(64).contains('…'), "{}", line(64));
    assert!(!line(50).contains("10.64.17.203") && width_of(&line(50)) <= 50, "{}", line(50));
}

#[test]
fn later_rows_widen_columns_only_as_far_as_the_terminal_allows() {
    let (columns, rows) = pods();
    let long = vec![vec!["c".repeat(60), "n".repeat(60), "x".repeat(60)]];
    let mut layout = Layout::new(&columns, &rows, Some(100));
    layout.widen(&long);
    assert!(width_of(&layout.line(&long[0], false)) <= 100);
    let mut endless = Layout::new(&columns, &rows, None);
    endless.widen(&long);
    assert!(endless.line(&long[0], false).contains(&"x".repeat(60)));
    assert!(endless.line(&rows[0], false).contains(&format!("coredns-6f6b679f8f-7xkqp{}", " ".repeat(39))));
}

#[test]
fn status_words_are_coloured_and_untrusted_text_is_printable() {
    let (columns, mut rows) = pods();
    rows[0][2] = "a\x1b[2Jb\nc".to_owned();
    let layout = Layout::new(&columns, &rows, Some(120));
    assert!(
        layout.line(&rows[1], true).contains("\x1b[31mCrashLoopBackOff\x1b[39m"),
        "{}",
        layout.line(&rows[1], true)
    );
    assert!(!layout.line(&rows[1], false).contains('\x1b'));
    assert!(layout.line(&rows[0], false).contains("ab c"), "{}", layout.line(&rows[0], false));
}

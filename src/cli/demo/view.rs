//! Progress of the demo: a table redrawn in place, or lines.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::{Attribute, Cell, Color};

use super::columns;
use crate::cli::print::{InPlace, colours, grouped, lines, number, say, styled, table as plain_table, wrapped};

/// State of a cluster whose watches are all open.
pub(super) const FRESH: &str = "fresh";
/// State of a cluster whose first lists are not complete.
pub(super) const SYNCING: &str = "syncing";
/// Text for a cluster whose copy is complete.
pub(super) const UP_TO_DATE: &str = "up to date";
/// Text for a cluster during its outage.
pub(super) const DOWN_TEXT: &str = "down";
/// Maximum number of shown rows: the table fits a terminal of 24 lines.
const MAX_ROWS: usize = 15;

/// Row of the progress table: one cluster with its object counts and its situation.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    /// Freshness of the hub's copy of the cluster.
    pub(super) state: String,
    pub(super) truth: usize,
    pub(super) cache: u64,
    pub(super) receiver: usize,
    /// Present change or fault of the cluster, in words.
    pub(super) situation: String,
}

/// Deliveries of the hub to the receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deliveries {
    /// Acknowledged events.
    pub(super) delivered: u64,
    /// Events that wait for their delivery.
    pub(super) waiting: u64,
    /// Number of times that the hub sent a batch again.
    pub(super) repeated: u64,
}

/// State of the whole demo.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) elapsed: Duration,
    /// How long the clusters change and fail in all.
    pub(super) duration: Duration,
    pub(super) stage: String,
    pub(super) operations: u64,
    pub(super) rows: Vec<Row>,
    pub(super) deliveries: Deliveries,
}

/// How the demo shows its progress.
#[derive(Debug)]
pub(super) enum Screen {
    Silent,
    /// A progress line at an interval, for outputs that are not a terminal.
    Lines,
    /// A table redrawn in place.
    Live(InPlace),
}

impl Screen {
    pub(super) fn silent() -> Self {
        Self::Silent
    }

    pub(super) fn lines() -> Self {
        Self::Lines
    }

    pub(super) fn live() -> Self {
        Self::Live(InPlace::default())
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Self::Silent)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Prints a text, followed by a blank line. A silent screen prints nothing.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.is_silent() { Ok(()) } else { say(wrapped(text, columns(), "") + "\n") }
    }

    pub(super) fn show(&mut self, scene: &Scene) -> anyhow::Result<()> {
        match self {
            Self::Silent => Ok(()),
            Self::Lines => say(line(scene)),
            Self::Live(place) => place.draw(&table(scene, columns(), colours())),
        }
    }

    /// Removes the progress table. With progress lines, prints a blank line instead.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Silent => Ok(()),
            Self::Lines => say(""),
            Self::Live(place) => place.draw(""),
        }
    }
}

/// Renders the scene as a line, wrapped with indentation.
pub(super) fn line(scene: &Scene) -> String {
    let truth: usize = scene.rows.iter().map(|row| row.truth).sum();
    let cache: u64 = scene.rows.iter().map(|row| row.cache).sum();
    let receiver: usize = scene.rows.iter().map(|row| row.receiver).sum();
    let down: Vec<_> =
        scene.rows.iter().filter(|row| row.situation == DOWN_TEXT).map(|row| row.name.as_str()).collect();
    let mut text = format!(
        "{:5.1} s  {} changes; objects: {truth} in the clusters, {cache} in the hub, {receiver} at the receiver",
        scene.elapsed.as_secs_f64(),
        grouped(scene.operations),
    );
    let _ = write!(text, "; {}", deliveries(&scene.deliveries));
    if !down.is_empty() {
        text.push_str("; down: ");
        text.push_str(&down.join(", "));
    }
    if !scene.stage.is_empty() {
        text.push_str("; ");
        text.push_str(&scene.stage);
    }
    wrapped(&text, super::COLUMNS, "         ")
}

fn deliveries(of: &Deliveries) -> String {
    let [delivered, waiting, repeated] = [of.delivered, of.waiting, of.repeated].map(grouped);
    format!("{delivered} events delivered, {waiting} waiting, {repeated} sent again")
}

pub(super) fn table(scene: &Scene, width: usize, colours: bool) -> String {
    let mut table = plain_table(&["CLUSTER", "OBJECTS", "IN THE HUB", "AT RECEIVER", "NOW"]);
    for row in shown(&scene.rows) {
        let numbers = [row.truth as u64, row.cache, row.receiver as u64];
        let mut cells = vec![Cell::new(&row.name)];
        cells.extend(numbers.map(|figure| number(grouped(figure))));
        cells.push(painted(&row.situation, &now(row), colours));
        table.add_row(cells);
    }
    let table = lines(&styled(table, colours));
    let more = match scene.rows.len().saturating_sub(MAX_ROWS) {
        0 => String::new(),
        more => format!("\n … and {more} more clusters"),
    };
    let elapsed = scene.elapsed.min(scene.duration).as_secs_f64();
    let (of, changes) = (scene.duration.as_secs_f64(), grouped(scene.operations));
    let sent = deliveries(&scene.deliveries);
    let stage = if scene.stage.is_empty() { String::new() } else { format!("\n {}", scene.stage) };
    let below = format!(" {elapsed:.1} s of {of:.0} s: {changes} changes; {sent}{stage}");
    format!("{table}{more}\n\n{}", wrapped(&below, width, " "))
}

/// Returns the situation of a cluster and, if the hub's copy is stale, its age.
fn now(row: &Row) -> String {
    match row.state.as_str() {
        FRESH | SYNCING => row.situation.clone(),
        age => format!("{}; {age}", row.situation),
    }
}

/// Selects at most [`MAX_ROWS`] rows, clusters with problems first, and keeps their order.
fn shown(rows: &[Row]) -> Vec<&Row> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|&at| rows.get(at).is_some_and(|row| row.situation == UP_TO_DATE));
    places.truncate(MAX_ROWS);
    places.sort_unstable();
    places.into_iter().filter_map(|at| rows.get(at)).collect()
}

fn painted(situation: &str, text: &str, colours: bool) -> Cell {
    let cell = Cell::new(text);
    match situation {
        _ if !colours => cell,
        UP_TO_DATE => cell.fg(Color::Green),
        DOWN_TEXT => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        _ => cell.fg(Color::Yellow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        let row = |name: &str, state: &str, situation: &str| Row {
            name: name.into(),
            state: state.into(),
            truth: 308,
            cache: 307,
            receiver: 306,
            situation: situation.into(),
        };
        let rows = vec![
            row("cluster-001", FRESH, UP_TO_DATE),
            row("cluster-002", "copy is 1.5 s old", DOWN_TEXT),
            row("cluster-003", "copy is 0.2 s old", "reconnecting"),
        ];
        let deliveries = Deliveries { delivered: 12_345, waiting: 6, repeated: 7 };
        let duration = Duration::from_secs(10);
        Scene { elapsed: Duration::from_millis(1500), duration, operations: 42, rows, deliveries, ..Scene::default() }
    }

    #[test]
    fn a_table_shows_each_cluster_in_80_columns() {
        let scene = Scene { stage: super::super::INTERRUPTED.to_owned(), ..scene() };
        let text = table(&scene, 80, false);
        for part in
            ["cluster-001", "up to date", "down; copy is 1.5 s old", "308", "307", "306", "42 changes", "of 10 s"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("\n interrupted, waiting"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
        assert!(table(&scene, 80, true).contains('\x1b'));
    }

    #[test]
    fn clusters_with_problems_are_shown_if_not_all_fit() {
        let row = |at: usize| Row {
            name: format!("cluster-{at:03}"),
            situation: if at == 90 { DOWN_TEXT.into() } else { UP_TO_DATE.into() },
            ..Row::default()
        };
        let text = table(&Scene { rows: (0..100).map(row).collect(), ..Scene::default() }, 80, false);
        assert!(
            text.contains("cluster-090") && text.contains("cluster-013") && !text.contains("cluster-014"),
            "{text}"
        );
        assert!(text.contains("and 85 more"), "{text}");
        assert!(text.lines().count() < 24);
    }

    #[test]
    fn a_line_has_totals_and_names_the_clusters_that_are_down() {
        let text = line(&scene());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("objects: 924 in the clusters, 921 in the hub, 918 at the receiver"), "{text}");
        assert!(text.ends_with("down: cluster-002"), "{text}");
    }
}

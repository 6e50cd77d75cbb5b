//! What is shown while the demo runs: a table that is redrawn in place, or a line now and then.

use std::time::Duration;

use comfy_table::{Attribute, Cell, Color, Table, presets};

use crate::cli::print::{InPlace, colours, number, say, styled};
use crate::sink::SinkStatus;

/// The state of a cluster whose watches are all open.
pub(super) const FRESH: &str = "fresh";
/// The state of a cluster that has never been listed to the end.
pub(super) const SYNCING: &str = "syncing";
/// What is going on with a cluster that the demo has taken down.
pub(super) const DOWN_TEXT: &str = "down";
/// Rows that are shown at a time: as many as an old terminal has room for.
const ROWS: usize = 15;

/// One cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) truth: usize,
    pub(super) cache: u64,
    pub(super) receiver: usize,
    pub(super) events: u64,
    pub(super) relists: u64,
    pub(super) plight: String,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) elapsed: Duration,
    pub(super) stage: String,
    pub(super) operations: u64,
    pub(super) rows: Vec<Row>,
    pub(super) sink: Option<SinkStatus>,
}

/// Where it is shown.
#[derive(Debug)]
pub(super) enum Screen {
    /// Nowhere.
    Silent,
    /// A line each time.
    Lines,
    /// In place.
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

    pub(super) fn show(&mut self, scene: &Scene) -> anyhow::Result<()> {
        match self {
            Self::Silent => Ok(()),
            Self::Lines => say(line(scene)),
            Self::Live(place) => place.draw(&table(scene, colours())),
        }
    }
}

/// The scene in one line.
pub(super) fn line(scene: &Scene) -> String {
    let fresh = scene.rows.iter().filter(|row| row.state == FRESH).count();
    let truth: usize = scene.rows.iter().map(|row| row.truth).sum();
    let cache: u64 = scene.rows.iter().map(|row| row.cache).sum();
    let receiver: usize = scene.rows.iter().map(|row| row.receiver).sum();
    let relists: u64 = scene.rows.iter().map(|row| row.relists).sum();
    let down: Vec<_> = scene.rows.iter().filter(|row| row.plight == DOWN_TEXT).map(|row| row.name.as_str()).collect();
    let mut text = format!(
        "{:5.1} s  {fresh}/{} fresh, objects {truth} (cache {cache}, receiver {receiver}), {} operations, {relists} relists",
        scene.elapsed.as_secs_f64(),
        scene.rows.len(),
        scene.operations,
    );
    if let Some(sink) = &scene.sink {
        text.push_str("; sink: ");
        text.push_str(&sink_text(sink));
    }
    if !down.is_empty() {
        text.push_str("; down: ");
        text.push_str(&down.join(", "));
    }
    if !scene.stage.is_empty() {
        text.push_str("; ");
        text.push_str(&scene.stage);
    }
    text
}

fn sink_text(sink: &SinkStatus) -> String {
    format!(
        "{} delivered in {} batches, {} pending, {} retries",
        sink.delivered, sink.batches, sink.pending_events, sink.retries
    )
}

/// The scene as a table.
pub(super) fn table(scene: &Scene, colours: bool) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    let header = ["cluster", "state", "in truth", "cache", "receiver", "events", "relists", "what is going on"];
    table.set_header(header);
    for row in shown(&scene.rows) {
        let numbers = [row.truth as u64, row.cache, row.receiver as u64, row.events, row.relists];
        let mut cells = vec![Cell::new(&row.name), painted(&row.state, colours)];
        cells.extend(numbers.map(number));
        cells.push(painted(&row.plight, colours));
        table.add_row(cells);
    }
    let table = styled(table, colours);
    let stage = if scene.stage.is_empty() { "running" } else { &scene.stage };
    let sink = scene.sink.as_ref().map(sink_text).unwrap_or_default();
    let elapsed = scene.elapsed.as_secs_f64();
    let more = match scene.rows.len().saturating_sub(ROWS) {
        0 => String::new(),
        more => format!("\n … and {more} more clusters"),
    };
    format!("{table}{more}\n {stage}, {elapsed:.1} s, {} operations\n sink: {sink}", scene.operations)
}

/// The rows that there is room for, in their order: those in trouble before the others.
fn shown(rows: &[Row]) -> Vec<&Row> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|&at| rows.get(at).is_some_and(|row| row.plight.is_empty()));
    places.truncate(ROWS);
    places.sort_unstable();
    places.into_iter().filter_map(|at| rows.get(at)).collect()
}

fn painted(text: &str, colours: bool) -> Cell {
    let cell = Cell::new(text);
    match text {
        _ if !colours => cell,
        FRESH => cell.fg(Color::Green),
        DOWN_TEXT => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        _ => cell.fg(Color::Yellow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        let row = |name: &str, state: &str, plight: &str| Row {
            name: name.into(),
            state: state.into(),
            truth: 308,
            cache: 307,
            receiver: 306,
            events: 99,
            relists: 2,
            plight: plight.into(),
        };
        let rows = vec![row("cluster-1", "fresh", ""), row("cluster-2", "stale 1.5 s", "down")];
        Scene { elapsed: Duration::from_millis(1500), operations: 42, rows, ..Scene::default() }
    }

    #[test]
    fn a_table_shows_each_cluster_and_has_no_escapes_without_colours() {
        let text = table(&scene(), false);
        for part in ["cluster-1", "cluster-2", "stale 1.5 s", "down", "308", "307", "306", "42 operations"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
        assert!(table(&scene(), true).contains('\x1b'));
    }

    #[test]
    fn a_large_fleet_shows_its_troubled_clusters_first() {
        let row = |at: usize| Row {
            name: format!("cluster-{at:03}"),
            plight: if at == 90 { "down".into() } else { String::new() },
            ..Row::default()
        };
        let text = table(&Scene { rows: (0..100).map(row).collect(), ..Scene::default() }, false);
        assert!(
            text.contains("cluster-090") && text.contains("cluster-013") && !text.contains("cluster-014"),
            "{text}"
        );
        assert!(text.contains("and 85 more"), "{text}");
        assert!(text.lines().count() < 24);
    }

    #[test]
    fn a_line_adds_the_clusters_up_and_names_those_that_are_down() {
        let text = line(&scene());
        assert!(text.contains("1/2 fresh, objects 616 (cache 614, receiver 612)"), "{text}");
        assert!(text.ends_with("down: cluster-2"), "{text}");
    }
}

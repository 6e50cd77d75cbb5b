//! Output of `watch`: a change as a line.

use crate::cli::print::{colours, width};
use informer_hub_apiclient::StreamEvent;
use informer_hub_screen::{Difference, Tone, cut, cut_middle, paint, summary, width_of};
use informer_hub_types::printable;

/// Blanks between columns.
const GAP: usize = 2;
/// Maximum widths of the column of clusters and of the column of objects, on a terminal.
const WIDEST: [usize; 2] = [20, 44];
/// Minimum width for the description of a change; in less room it is omitted.
const LEAST: usize = 12;
/// Maximum number of changed fields that a line shows on a terminal.
const MOST: usize = 4;

/// Writer of lines. Each column is as wide as its longest value so far.
#[derive(Debug)]
pub(super) struct ChangeLines {
    /// Whether the names of objects are preceded by their kind.
    has_kinds: bool,
    /// Whether there is only one cluster, which needs no column.
    is_one_cluster: bool,
    /// Present widths of the column of clusters and of the column of objects.
    widths: [usize; 2],
    /// Returns the width of the terminal and whether to use colours. Called for each line, because a window may be
    /// resized.
    terminal: fn() -> (Option<usize>, bool),
}

impl ChangeLines {
    /// Creates a writer for standard output.
    pub(super) fn new(has_kinds: bool, is_one_cluster: bool) -> Self {
        Self { has_kinds, is_one_cluster, widths: [0, 0], terminal: || (width(), colours()) }
    }

    /// Returns the line of a change: time, cluster, event, object, and what has changed.
    pub(super) fn line(&mut self, name: &str, event: &StreamEvent) -> String {
        let (limit, colours) = (self.terminal)();
        let data = &event.data;
        let time = printable(event.time.get(11..19).unwrap_or(&event.time)) + "Z";
        let object =
            [self.kind(event), data.namespace.clone().unwrap_or_default(), data.name.clone().unwrap_or_default()];
        let object: Vec<&str> = object.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let mut places = vec![(1, printable(&object.join("/")))];
        if !self.is_one_cluster {
            places.insert(0, (0, printable(&data.cluster)));
        }
        let mut line = time;
        let gap = " ".repeat(GAP);
        for (at, text) in places {
            // The event stands between cluster and object.
            if at == 1 {
                line += &gap;
                line += &painted(name, colours);
                line += &" ".repeat("updated".len().saturating_sub(name.len()));
            }
            let text = if limit.is_some() { cut_middle(&text, WIDEST[at]) } else { text };
            self.widths[at] = self.widths[at].max(width_of(&text));
            let blanks = self.widths[at] - width_of(&text);
            for part in [&gap, &text, &" ".repeat(blanks)] {
                line += part;
            }
        }
        let used = width_of(&line) - if colours { paint("", tone(name)).len() } else { 0 };
        let room = limit.map(|limit| limit.saturating_sub(used + GAP));
        let what = what(event, room);
        if !what.is_empty() && room.is_none_or(|room| room >= LEAST) {
            line += &gap;
            line += &what;
        }
        let line = line.trim_end().to_owned();
        match limit {
            Some(limit) if used > limit && !colours => cut(&line, limit),
            _ => line,
        }
    }

    fn kind(&self, event: &StreamEvent) -> String {
        let kind = event.data.resource.kind.to_lowercase();
        if self.has_kinds { kind } else { String::new() }
    }
}

fn tone(name: &str) -> Tone {
    match name {
        "added" => Tone::Good,
        "deleted" => Tone::Bad,
        _ => Tone::Pending,
    }
}

fn painted(name: &str, colours: bool) -> String {
    let name = printable(name);
    if colours { paint(&name, tone(&name)) } else { name }
}

/// Describes a change in at most `room` columns: the changed fields of an update, the phase of an added object, or a
/// deletion that was not seen.
fn what(event: &StreamEvent, room: Option<usize>) -> String {
    let data = &event.data;
    let text = match event.change() {
        Some("updated") => {
            let of = |it: &informer_hub_apiclient::ChangedPath| Difference {
                path: it.path.clone(),
                old: it.old.clone(),
                new: it.new.clone(),
            };
            let differences: Vec<Difference> = data.changed.iter().map(of).collect();
            if differences.is_empty() {
                return String::new();
            }
            let more = if data.changed_more > 0 { format!(", and {} more", data.changed_more) } else { String::new() };
            summary(&differences, if room.is_some() { MOST } else { usize::MAX }, room.unwrap_or(usize::MAX)) + &more
        }
        Some("deleted") if data.tombstone => "(the deletion itself was not seen)".to_owned(),
        Some("added") => {
            let phase =
                data.object["status"]["phase"].as_str().map(|phase| format!("status.phase: {}", printable(phase)));
            let initial = data.initial.then(|| "(present)".to_owned());
            [initial, phase].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    };
    room.map_or(text.clone(), |room| cut(&text, room))
}

#[cfg(test)]
mod tests {
    use informer_hub_types::printable::hostile::{TEXT, assert_harmless};
    use serde_json::{Value, json};

    use super::*;

    fn event(name: &str, data: &Value) -> StreamEvent {
        let event = json!({
            "type": format!("io.informer-hub.resource.{name}.v1"), "time": "2026-01-01T09:00:01.123Z", "data": data,
        });
        StreamEvent::parse(event.to_string().as_bytes()).unwrap()
    }

    fn update() -> Value {
        json!({
            "cluster": "prod-eu", "resource": { "kind": "Deployment" }, "namespace": "shop", "name": "web",
            "changed": [
                { "path": "spec.replicas", "old": 2, "new": 5 },
                { "path": "spec.template.spec.containers[name=main].image", "old": "registry.example.com/web:1.27.0", "new": "registry.example.com/web:1.28.0" },
                { "path": "metadata.generation", "old": 1, "new": 2 },
            ],
        })
    }

    fn line(lines: &mut ChangeLines, name: &str, data: &Value) -> String {
        lines.line(name, &event(name, data))
    }

    #[test]
    fn line_names_what_has_changed_within_the_width() {
        let mut lines = ChangeLines { terminal: || (Some(80), false), ..ChangeLines::new(false, false) };
        assert_eq!(
            line(&mut lines, "updated", &update()),
            "09:00:01Z  prod-eu  updated  shop/web  spec.replicas: 2 → 5, +2 more"
        );
        let deleted = json!({ "cluster": "dev", "name": "node-1", "tombstone": true });
        assert_eq!(
            line(&mut lines, "deleted", &deleted),
            "09:00:01Z  dev      deleted  node-1    (the deletion itself was not seen)"
        );
        for width in [80, 120, 200] {
            let terminal: fn() -> (Option<usize>, bool) = match width {
                80 => || (Some(80), false),
                120 => || (Some(120), false),
                _ => || (Some(200), false),
            };
            let mut lines = ChangeLines { terminal, ..ChangeLines::new(true, false) };
            let text = line(&mut lines, "updated", &update());
            assert!(width_of(&text) <= width && text.contains("deployment/shop/web"), "{width}: {text}");
        }
        let mut lines = ChangeLines { terminal: || (None, false), ..ChangeLines::new(false, true) };
        let text = line(&mut lines, "updated", &update());
        assert!(
            text.contains("image: registry.example.com/web:1.27.0 → registry.example.com/web:1.28.0, meta"),
            "{text}"
        );
    }

    #[test]
    fn foreign_text_is_harmless() {
        let changed = json!([{ "path": TEXT, "old": TEXT, "new": TEXT }]);
        let data = json!({ "cluster": TEXT, "namespace": TEXT, "name": TEXT, "changed": changed, "object": { "status": { "phase": TEXT } } });
        for name in ["updated", "added", "deleted"] {
            for terminal in [(|| (None, false)) as fn() -> _, || (Some(120), false)] {
                let mut lines = ChangeLines { terminal, ..ChangeLines::new(true, false) };
                assert_harmless(name, &line(&mut lines, name, &data), 0);
            }
        }
    }
}

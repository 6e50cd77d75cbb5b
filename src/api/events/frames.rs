//! Writer of events: Server-Sent Events, or a CloudEvent per line.

use std::fmt::Write;

use rand::Rng;
use serde_json::{Value, json};

use crate::api::v1::{Form, changed_members};
use informer_hub_screen::Difference;
use informer_hub_sink::Event;
use informer_hub_types::{clock, rng};

/// Time after which a client of Server-Sent Events reconnects, in milliseconds.
const RETRY: u32 = 1000;

/// Event about the stream itself instead of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// The present objects have been sent.
    Synced,
    /// Changes may be missing, and the stream starts anew.
    Expired,
    Warning,
    End,
    /// Sign that the stream is alive, although nothing has changed. In Server-Sent Events, it is a comment.
    Heartbeat,
}

impl Notice {
    fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Expired => "expired",
            Self::Warning => "warning",
            Self::End => "end",
            Self::Heartbeat => "heartbeat",
        }
    }
}

/// Writes the events of one stream, as Server-Sent Events or as lines of JSON.
#[derive(Debug)]
pub(super) struct Frames {
    is_lines: bool,
    has_begun: bool,
}

impl Frames {
    pub(super) fn new(form: Form) -> Self {
        Self { is_lines: form == Form::Lines, has_begun: false }
    }

    /// Appends a change. `position` is the position from which the client can resume after it.
    pub(super) fn change(
        &mut self,
        event: &Event,
        differences: Option<&[Difference]>,
        position: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let changed = differences.map(changed).unwrap_or_default();
        let json = event.json();
        // Inserts `changed` before the end of `data`, which is the last member of the event and a non-empty object.
        let (json, end) = if changed.is_empty() { (json, "") } else { (json.strip_suffix("}}").unwrap_or(json), "}}") };
        self.write(None, [json, &changed, end], position, out);
    }

    pub(super) fn notice(&mut self, notice: Notice, data: &Value, position: Option<&str>, out: &mut Vec<u8>) {
        let name = notice.as_str();
        if !self.is_lines && notice == Notice::Heartbeat {
            self.begin(out);
            out.extend_from_slice(b": heartbeat\n");
            write_id(position, out);
            out.push(b'\n');
            return;
        }
        let event = json!({
            "specversion": "1.0",
            "id": format!("{:016x}", rng::rng().random::<u64>()),
            "source": super::PATH,
            "type": format!("io.informer-hub.stream.{name}.v1"),
            "time": clock::wall().to_string(),
            "datacontenttype": "application/json",
        });
        // `data` is last, so that attributes can be added before it.
        let head = event.to_string();
        let data = format!(",\"data\":{data}}}");
        self.write(Some(name), [head.trim_end_matches('}'), &data, ""], position, out);
    }

    /// Writes the reconnection time, once, for clients of Server-Sent Events.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.extend_from_slice(format!("retry: {RETRY}\n").as_bytes());
        }
    }

    fn write(&mut self, name: Option<&str>, json: [&str; 3], position: Option<&str>, out: &mut Vec<u8>) {
        if self.is_lines {
            let (first, rest) = json[0].split_once(",\"data\":").unwrap_or((json[0], ""));
            let mut text = first.to_owned();
            if let Some(position) = position {
                // Writing to a string cannot fail.
                let _ = write!(text, ",\"position\":\"{position}\"");
            }
            if !rest.is_empty() {
                text.push_str(",\"data\":");
            }
            let parts = [&text, rest, json[1], json[2]];
            // Objects are stored as their clusters wrote them. Line breaks in this JSON occur only between tokens, so
            // spaces can replace them.
            let bytes = parts.iter().flat_map(|part| part.bytes());
            out.extend(bytes.map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
            out.push(b'\n');
            return;
        }
        self.begin(out);
        write_id(position, out);
        if let Some(name) = name {
            out.extend_from_slice(format!("event: {name}\n").as_bytes());
        }
        out.extend_from_slice(b"data: ");
        for part in json {
            let mut lines = part.split(['\n', '\r']);
            out.extend_from_slice(lines.next().unwrap_or_default().as_bytes());
            for line in lines {
                out.extend_from_slice(b"\ndata: ");
                out.extend_from_slice(line.as_bytes());
            }
        }
        out.extend_from_slice(b"\n\n");
    }
}

fn write_id(position: Option<&str>, out: &mut Vec<u8>) {
    if let Some(position) = position {
        out.extend_from_slice(format!("id: {position}\n").as_bytes());
    }
}

/// Returns the changed paths as JSON members of the object `data`. Each member begins with a comma.
fn changed(differences: &[Difference]) -> String {
    changed_members(differences).fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = write!(text, ",\"{name}\":{value}");
        text
    })
}

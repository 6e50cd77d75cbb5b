//! What commands write: text for people, JSON and YAML for programs; to a standard output that may be closed early.

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

pub(super) use super::out::{InPlace, ReaderGone, colours, say, write as out};

/// How an answer looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Tables and lines, for people
    #[default]
    Text,
    /// One JSON document, for programs
    Json,
    /// One YAML document, for programs
    Yaml,
}

/// Writes a document for programs, or else the text for people.
pub(super) fn answer(format: Format, document: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    out(&match format {
        Format::Text => text(),
        Format::Json => serde_json::to_string_pretty(document)? + "\n",
        Format::Yaml => yaml(document)?,
    })
}

/// A YAML document, ended by a line break.
pub(super) fn yaml(document: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(document).context("cannot be written as YAML")?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// A table without lines. What a terminal has no room for goes on in its next line, so that no name is cut in two.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// A table's lines, without blanks at their ends.
pub(super) fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Bytes in a unit that leaves few digits: `1.1 GiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut tenths, mut unit) = (bytes.saturating_mul(10), 0);
    while tenths >= 10_240 && unit + 1 < units.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    match (tenths / 10, tenths % 10) {
        (whole, _) if unit == 0 || whole >= 10 => format!("{whole} {}", units[unit]),
        (whole, tenth) => format!("{whole}.{tenth} {}", units[unit]),
    }
}

/// Seconds in the largest unit that fits: `8d`, `5h`, `30m`, `12s`.
pub(super) fn span(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds >= 2 * size).unwrap_or((1, "s"));
    format!("{}{unit}", seconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_in_few_digits() {
        let told = [0, 1023, 1024, 1126, 64 << 20, 3 << 29, u64::MAX].map(bytes);
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.0 KiB", "64 MiB", "1.5 GiB", "1677721 TiB"]);
        let told = [0, 119, 120, 7_199, 7_200, 86_400, 172_800].map(span);
        assert_eq!(told, ["0s", "119s", "2m", "119m", "2h", "24h", "2d"]);
    }

    #[test]
    fn yaml_keeps_texts_that_look_like_something_else_texts() {
        let value = serde_json::json!({ "a": "true", "b": "1.0", "c": "", "d": "x: y", "e": ["-"], "f": null });
        let text = yaml(&value).unwrap();
        let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }
}

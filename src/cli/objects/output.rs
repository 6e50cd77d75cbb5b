//! `-o`: the output format of commands that read objects.

use std::io::IsTerminal;
use std::str::FromStr;

use serde_json::Value;

use crate::cli::print::out;
use informer_hub_screen::Template;
use informer_hub_types::{nearest_name, printable};

/// Output format.
#[derive(Clone, PartialEq, Debug, Default)]
pub(in crate::cli) enum Output {
    /// Columns that fit the terminal.
    #[default]
    Table,
    /// The columns of `Table`, and those that the hub marks as less important.
    Wide,
    Json,
    Yaml,
    /// Kind and name, one object per line.
    Name,
    /// All columns, comma-separated.
    Csv,
    JsonPath(Template),
}

/// Names of the formats.
pub(in crate::cli) const FORMATS: [&str; 7] = ["table", "wide", "json", "yaml", "name", "csv", "jsonpath"];

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(template) = text.strip_prefix("jsonpath=") {
            return template.parse().map(Self::JsonPath).map_err(|error| format!("{error}: {template}"));
        }
        Ok(match text {
            "table" | "text" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "name" => Self::Name,
            "csv" => Self::Csv,
            "jsonpath" => return Err("a template is missing: -o jsonpath='{.items[*].metadata.name}'".to_owned()),
            other => {
                let known = FORMATS.join(", ");
                let nearest = nearest_name(other, FORMATS, 2);
                let hint = nearest.map(|nearest| format!("did you mean {nearest}? ")).unwrap_or_default();
                return Err(format!("{hint}write one of {known}=TEMPLATE"));
            }
        })
    }
}

impl Output {
    /// Whether rows are printed, not objects.
    pub(in crate::cli) fn is_rows(&self) -> bool {
        matches!(self, Self::Table | Self::Wide | Self::Csv)
    }
}

/// Applies a JSONPath template to a document and prints the result. On a terminal, control characters are replaced.
///
/// # Errors
/// If a path selects too many values, or standard output cannot be written.
pub(in crate::cli) fn print_template(template: &Template, document: &Value) -> anyhow::Result<()> {
    let mut text = String::new();
    template.render(document, &mut text)?;
    out(&if std::io::stdout().is_terminal() { harmless(&text) } else { text })
}

/// Makes a text safe on a terminal. Line breaks and tabs are kept, because templates have them.
fn harmless(text: &str) -> String {
    let part = |part: &str| match part.strip_suffix(['\n', '\t']) {
        Some(start) => printable(start) + &part[start.len()..],
        None => printable(part),
    };
    text.split_inclusive(['\n', '\t']).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_output_keeps_line_breaks_and_loses_escape_codes() {
        assert_eq!(harmless("a\tb\x1b[2J\nc\r\n\x1b]0;t\x07"), "a\tb\nc \n ]0;t ");
    }

    #[test]
    fn formats_are_read_and_mistakes_have_advice() {
        assert_eq!("wide".parse(), Ok(Output::Wide));
        assert!(matches!("jsonpath={.items[*].metadata.name}".parse(), Ok(Output::JsonPath(_))));
        let error = |text: &str| text.parse::<Output>().unwrap_err();
        assert!(error("jsn").starts_with("did you mean json? write one of table, wide"), "{}", error("jsn"));
        assert!(error("jsonpath={.a").contains("{.a"), "{}", error("jsonpath={.a"));
        assert!(error("jsonpath").contains("-o jsonpath='"));
    }
}

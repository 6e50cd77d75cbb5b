//! Lists of objects as JSON or YAML, printed object by object.

use serde_json::{Value, json};

use super::output::Output;
use crate::cli::print::{json, out, yaml};

/// Writer of a `List` whose items are printed as they arrive.
#[derive(Debug)]
pub(in crate::cli) struct Documents {
    is_yaml: bool,
    count: usize,
}

impl Documents {
    /// Creates a writer. Formats other than YAML are printed as JSON.
    pub(in crate::cli) fn new(output: &Output) -> Self {
        Self { is_yaml: *output == Output::Yaml, count: 0 }
    }

    /// Prints an item.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(in crate::cli) fn item(&mut self, object: &Value) -> anyhow::Result<()> {
        let text = if self.is_yaml {
            let head = if self.count == 0 { "apiVersion: v1\nitems:\n" } else { "" };
            head.to_owned() + &indented(&yaml(object)?, "- ", "  ")
        } else {
            let head = if self.count == 0 { "{\n  \"apiVersion\": \"v1\",\n  \"items\": [\n" } else { ",\n" };
            head.to_owned() + indented(&json(object)?, "    ", "    ").trim_end()
        };
        self.count += 1;
        out(&text)
    }

    /// Prints the end of the list.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(in crate::cli) fn end(&self) -> anyhow::Result<()> {
        if self.count == 0 {
            return document(&whole_list(&[]), self.is_yaml);
        }
        out(if self.is_yaml {
            "kind: List\nmetadata: {}\n"
        } else {
            "\n  ],\n  \"kind\": \"List\",\n  \"metadata\": {}\n}\n"
        })
    }
}

fn document(value: &Value, is_yaml: bool) -> anyhow::Result<()> {
    out(&if is_yaml { yaml(value)? } else { json(value)? + "\n" })
}

/// Returns a `List` of objects, as kubectl makes it.
pub(in crate::cli) fn whole_list(items: &[Value]) -> Value {
    json!({ "apiVersion": "v1", "items": items, "kind": "List", "metadata": {} })
}

/// Indents the non-empty lines of a text: the first line with `first`, the others with `others`.
fn indented(text: &str, first: &str, others: &str) -> String {
    let line = |(at, line): (usize, &str)| {
        let indent = if at == 0 { first } else { others };
        if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") }
    };
    text.lines().enumerate().map(line).collect()
}

//! Markdown reference of all keys, generated from the schema.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::node::{DURATION, SECRET};
use super::schema;
use crate::toml_text::toml;

const HEAD: &str = "\
# Configuration reference

For operators. After this page you know every key of `hub.toml`, its values and default, and when a change takes effect. The page is generated
by `make reference`. [config/hub.toml](../config/hub.toml) has examples of all keys. `informer-hub config show -c hub.toml` shows the effective
values and their origins.

**Notation.** A *duration* is whole numbers with units, largest first: `500ms`, `10m`, `1h30m`, `7d`. A *size* is a whole
number with a unit (`64MiB`, `10MB`), or a bare number of bytes. A *secret* is a reference: `{ env = \"NAME\" }` or
`{ file = \"path\" }`. A *path* selects a field of an object: `spec.containers[*].image`. Relative file names start at the
directory of `hub.toml`, and `~` is the home directory.

**Environment.** A variable overrides the key of the file: `INFORMER_HUB_` and the levels in upper case, joined by two
underscores, with `_` for `-`, `.` and `/`: `INFORMER_HUB_HUB__LISTEN`.

**Changes.** A changed value takes effect in a running hub at once, without a new list, unless the key is marked ([changing.md](changing.md)):
*lists again*: at once; the affected informers compare a new list with the cache. *Next start*: until then `configuration.needsRestart` in
`/v1/status` names the key.

";

/// When a changed value takes effect in a running hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// At once, without a new list.
    AtOnce,
    /// At once, with restarted informers.
    ListsAgain,
    /// At the next start.
    NextStart,
}

/// Effects by key; the first match applies. `*` matches one level, and a pattern matches all keys below it.
const EFFECTS: &[(&str, Effect)] = &[
    ("hub.memory_limit", Effect::AtOnce),
    ("hub.shutdown_deadline", Effect::AtOnce),
    ("hub.authorization", Effect::AtOnce),
    ("hub", Effect::NextStart),
    ("clusters.*.labels", Effect::ListsAgain),
    ("clusters.*.server", Effect::ListsAgain),
    ("clusters.*.in_cluster", Effect::ListsAgain),
    ("clusters", Effect::AtOnce),
    ("cluster_sources", Effect::AtOnce),
    ("resources.*.resync", Effect::AtOnce),
    ("resources.*.exclude", Effect::AtOnce),
    ("resources.*.limit", Effect::AtOnce),
    ("resources", Effect::ListsAgain),
    ("sinks.*.journal_limit", Effect::NextStart),
    ("sinks.*.dead_letter_limit", Effect::NextStart),
    ("sinks", Effect::AtOnce),
    ("readers", Effect::AtOnce),
    ("oidc", Effect::AtOnce),
];

/// Key of the reference.
#[derive(Debug)]
pub struct Key {
    /// Path from the top; `*` stands for a user-defined name.
    pub path: String,
    /// Accepted values, in words; empty for a schema form without a description.
    pub takes: String,
    bounds: Option<String>,
    required: bool,
    /// The default, if the key has one.
    pub default: Option<Value>,
    /// Example, in TOML types.
    pub example: Option<Value>,
    what: String,
    /// When a change takes effect; `None` if not classified.
    pub effect: Option<Effect>,
}

/// Section of the page: a table, or one type of a table with types.
struct Section {
    header: String,
    of: Option<String>,
    about: String,
    keys: Vec<Key>,
}

/// Returns the content of `docs/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for Section { header, of, about, keys } in sections() {
        let kind = of.map_or(String::new(), |kind| format!(", `type = \"{kind}\"`"));
        let _ = write!(page, "## `[{header}]`{kind}\n\n{about}\n\n");
        if keys.is_empty() {
            continue;
        }
        page += "| key | value | default | example | meaning |\n|---|---|---|---|---|\n";
        for key in keys {
            page += &key.row();
        }
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// Returns all keys. A key of only some types is listed for each of these types.
#[cfg(any(test, feature = "testing"))]
#[must_use]
pub fn keys() -> Vec<(Key, Option<String>)> {
    let keys = |section: Section| section.keys.into_iter().map(move |key| (key, section.of.clone()));
    sections().into_iter().flat_map(keys).collect()
}

fn sections() -> Vec<Section> {
    let mut found = Vec::new();
    for (name, node) in properties(&schema()) {
        below(&mut found, name, name, node);
    }
    found
}

/// Collects the sections of a table, its subtables and its types.
fn below(found: &mut Vec<Section>, path: &str, header: &str, node: &Value) {
    let names = &node["additionalProperties"];
    if names.is_object() {
        let (path, header) = (format!("{path}.*"), format!("{header}.<name>"));
        // Prefers the description of the members to that of the table.
        let about = describe(names).to_owned();
        let about = if about.is_empty() { describe(node).to_owned() } else { about };
        return shapes(found, &path, &header, names, &about);
    }
    shapes(found, path, header, node, describe(node));
}

fn shapes(found: &mut Vec<Section>, path: &str, header: &str, node: &Value, about: &str) {
    let shapes: Vec<_> = node["oneOf"].as_array().into_iter().flatten().filter(|one| kind_of(one).is_some()).collect();
    let [first, others @ ..] = &shapes[..] else {
        return table(found, (path, header, None), about, node, |_| true);
    };
    let is_common = |key: &str| {
        let sub = first["properties"].get(key);
        sub.is_some() && others.iter().all(|other| other["properties"].get(key) == sub)
    };
    let about = format!("{about} `type` selects one of the types below; these keys apply to all of them.");
    table(found, (path, header, None), &about, first, is_common);
    for &shape in &shapes {
        table(found, (path, header, kind_of(shape)), describe(shape), shape, |key| key != "type" && !is_common(key));
    }
}

/// Adds a section with the selected keys of a table, for one type if `of` is set.
fn table(
    found: &mut Vec<Section>,
    (path, header, of): (&str, &str, Option<&str>),
    about: &str,
    node: &Value,
    selected: impl Fn(&str) -> bool,
) {
    let selected = properties(node).filter(|(key, _)| selected(key));
    let (tables, leaves): (Vec<_>, Vec<_>) = selected.partition(|(_, node)| is_table(node));
    let is_required = |key: &String| node["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key));
    let key = |(key, node): (&String, &Value)| Key::new(format!("{path}.{key}"), node, is_required(key));
    let keys = leaves.into_iter().map(key).collect();
    found.push(Section { header: header.to_owned(), of: of.map(str::to_owned), about: about.to_owned(), keys });
    for (key, node) in tables {
        below(found, &format!("{path}.{key}"), &format!("{header}.{key}"), node);
    }
}

/// Whether a node has keys, or named members with keys.
fn is_table(node: &Value) -> bool {
    node["properties"].is_object() || node["additionalProperties"]["properties"].is_object()
}

fn properties(node: &Value) -> impl Iterator<Item = (&String, &Value)> {
    node["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn kind_of(shape: &Value) -> Option<&str> {
    shape["properties"]["type"]["const"].as_str()
}

fn describe(node: &Value) -> &str {
    node["description"].as_str().unwrap_or_default()
}

impl Key {
    fn new(path: String, node: &Value, required: bool) -> Self {
        let default = node.get("default").cloned();
        let choice = || Some(node["enum"].as_array()?.first()?.clone());
        let boolean = || (node["type"] == "boolean").then_some(Value::Bool(true));
        let example = node["examples"].get(0).cloned().or_else(|| default.clone()).or_else(choice).or_else(boolean);
        let (what, bounds) = bounds(node);
        let effect = EFFECTS.iter().find(|(pattern, _)| covers(pattern, &path)).map(|(_, effect)| *effect);
        Self { takes: takes(node), bounds, required, default, example, what, effect, path }
    }

    fn row(&self) -> String {
        let key = self.path.rsplit('.').next().unwrap_or_default();
        let takes = match &self.bounds {
            Some(bounds) => format!("{}, {bounds}", self.takes),
            None => self.takes.clone(),
        };
        let code = |value: &Value| format!("`{}`", toml(value).replace('|', "\\|"));
        let without = if self.required { "required" } else { "–" };
        let default = self.default.as_ref().map_or(without.to_owned(), code);
        let example = match &self.example {
            Some(example) if Some(example) != self.default.as_ref() => code(example),
            _ => String::new(),
        };
        let mark = match self.effect {
            Some(Effect::AtOnce) | None => "",
            Some(Effect::ListsAgain) => " *Lists again.*",
            Some(Effect::NextStart) => " *Next start.*",
        };
        // The head of the page explains secrets.
        let what = self.what.trim_end_matches(SECRET).trim_end();
        format!("| `{key}` | {takes} | {default} | {example} | {what}{mark} |\n")
    }
}

/// Describes the accepted values of a key.
fn takes(node: &Value) -> String {
    if let Some(words) = node["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    let any = |ways: &Value| -> Vec<Value> { ways.as_array().cloned().unwrap_or_default() };
    match (&node["type"], &any(&node["anyOf"])[..], &any(&node["oneOf"])[..]) {
        (_, [word, other], _) if word.get("const").is_some() => format!("`{}`, or a {}", word["const"], takes(other)),
        (_, [_, bytes], _) if bytes["type"] == "integer" => "size".to_owned(),
        (_, _, [env, _]) if env["properties"].get("env").is_some() => "secret".to_owned(),
        (_, _, [names, labels]) if names["type"] == "array" && labels["type"] == "object" => {
            "list of names, or table of labels".to_owned()
        }
        (Value::String(kind), ..) => match kind.as_str() {
            "boolean" => "`true`, `false`".to_owned(),
            "integer" => "whole number".to_owned(),
            "string" if node["pattern"] == DURATION => "duration".to_owned(),
            "string" => "text".to_owned(),
            "array" => match &node["items"]["enum"] {
                Value::Array(_) => format!("list of {}", takes(&node["items"])),
                _ if node["items"]["properties"].is_object() => "list of tables".to_owned(),
                _ => "list of texts".to_owned(),
            },
            "object" if node["additionalProperties"]["type"] == "string" => "table of texts".to_owned(),
            "object" if node["additionalProperties"]["anyOf"].is_array() => "table of texts and secrets".to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

/// Splits a description into text and bounds, which are its last sentence.
fn bounds(node: &Value) -> (String, Option<String>) {
    let about = describe(node).trim();
    let has_bounds = matches!(takes(node).as_str(), "whole number" | "duration" | "size");
    match about.trim_end_matches('.').rsplit_once(". ") {
        Some((about, bounds)) if has_bounds => {
            let bounds = bounds.split(';').next().unwrap_or_default();
            (format!("{about}."), Some(bounds.to_owned()))
        }
        _ => (about.to_owned(), None),
    }
}

fn covers(pattern: &str, path: &str) -> bool {
    let mut steps = path.split('.');
    pattern.split('.').all(|expected| steps.next().is_some_and(|step| expected == step))
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;

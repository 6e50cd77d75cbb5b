//! The configuration that is in force, value by value, and where each comes from. Secrets stay hidden.
//!
//! The schema says which keys there are and what holds where one is not given; what depends on other keys is taken from
//! the checked configuration.

use std::fmt::Write;
use std::path::Path;

use figment::value::Value as Raw;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::raw::{self, Environment};
use super::resolve::{self, Source};
use super::schema::schema;
use super::spans::{KeyPath, Step};
use super::{Config, ConfigErrors, HumanDuration, SinkConfig, process_environment};

/// What stands in place of what may be secret.
const HIDDEN: &str = "…";

/// A key and its value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setting {
    /// As TOML writes it: `sinks.audit.batch.max_events`.
    pub key: String,
    /// As it is written, and in TOML's types; what may be secret in it is left out.
    pub value: Value,
    /// Whether a part of the value, or all of it, is left out since it may be secret.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Where it comes from.
    pub origin: SettingOrigin,
    #[serde(skip)]
    path: KeyPath,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingOrigin {
    /// The file.
    File {
        /// From 1; unset where the file has no such line.
        line: Option<usize>,
    },
    /// A variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// Nobody has said anything else.
    Default,
}

/// Everything that is in force for a file under this process's environment. Checked as by [`Config::from_file_alone`]: secrets
/// need not be there to be hidden.
///
/// # Errors
/// All mistakes at once: of a configuration with one nothing is in force.
pub fn settings(file: &Path) -> Result<Vec<Setting>, ConfigErrors> {
    let text = std::fs::read_to_string(file).map_err(|error| resolve::unreadable(file, &error))?;
    of(&text, Some(file), &process_environment())
}

fn of(text: &str, file: Option<&Path>, environment: &Environment) -> Result<Vec<Setting>, ConfigErrors> {
    let config = resolve::resolve(&Source { file, text, environment: Some(environment), probes: None, whole: false })?;
    // What was resolved has been merged.
    let raw = raw::merge(text, environment).unwrap_or_default();
    let values = Raw::from(raw.values.clone());
    let mut walk = Walk { raw: &raw, config: &config, found: Vec::new() };
    walk.table(&schema(), Some(&values), &KeyPath::default());
    Ok(walk.found)
}

/// Settings as TOML that says the same, with where each comes from behind it. A value of which something is hidden is a
/// comment, and the first line counts them: what is left says less, and cannot be taken for the whole.
#[must_use]
pub fn settings_as_toml(settings: &[Setting]) -> String {
    let parent = |setting: &Setting| {
        let keys = setting.path.0.len().saturating_sub(1);
        KeyPath(setting.path.0[..keys].to_vec())
    };
    let mut tables: Vec<(KeyPath, Vec<&Setting>)> = Vec::new();
    for setting in settings {
        let parent = parent(setting);
        match tables.iter_mut().find(|(path, _)| *path == parent) {
            Some((_, settings)) => settings.push(setting),
            None => tables.push((parent, vec![setting])),
        }
    }
    let mut text = String::new();
    match settings.iter().filter(|setting| setting.hidden).count() {
        0 => {}
        1 => text.push_str("# 1 value may be secret and is hidden: its line is a comment\n"),
        count => {
            let _ = writeln!(text, "# {count} values may be secret and are hidden: their lines are comments");
        }
    }
    for (path, settings) in tables {
        let break_before = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{break_before}[{}]", header(&path));
        for setting in settings {
            let Some(Step::Key(key)) = setting.path.0.last() else { continue };
            let origin = match &setting.origin {
                SettingOrigin::File { line: Some(line) } => format!("line {line}"),
                SettingOrigin::File { line: None } => "file".to_owned(),
                SettingOrigin::Environment { variable } => format!("environment {variable}"),
                SettingOrigin::Default => "default".to_owned(),
            };
            let (mark, hidden) = if setting.hidden { ("# ", ", hidden") } else { ("", "") };
            let _ = writeln!(text, "{mark}{} = {}  # {origin}{hidden}", toml_edit::Key::new(key), toml(&setting.value));
        }
    }
    text
}

fn header(path: &KeyPath) -> String {
    let key = |step: &Step| match step {
        Step::Key(key) => toml_edit::Key::new(key).to_string(),
        Step::Index(index) => index.to_string(),
    };
    path.0.iter().map(key).collect::<Vec<_>>().join(".")
}

/// On one line: a comment goes behind it.
pub(super) fn toml(value: &Value) -> String {
    match value {
        // JSON's escapes are TOML's, but for the last control character.
        Value::String(text) => Value::from(text.as_str()).to_string().replace('\u{7f}', "\\u007f"),
        Value::Array(values) => format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| format!("{} = {}", toml_edit::Key::new(key), toml(value));
            format!("{{ {} }}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

struct Walk<'w> {
    raw: &'w raw::Raw,
    config: &'w Config,
    found: Vec<Setting>,
}

impl Walk<'_> {
    /// A table: the keys that the schema has, each with what is written or else with its default.
    fn table(&mut self, node: &Value, written: Option<&Raw>, path: &KeyPath) {
        let nothing = Map::new();
        let node = shape(node, written);
        let known = node["properties"].as_object().unwrap_or(&nothing);
        let values = written.and_then(Raw::as_dict);
        let has = |key: &str| values.is_some_and(|values| values.contains_key(key));
        for (key, sub) in known {
            let path = path.key(key);
            match values.and_then(|values| values.get(key)) {
                Some(value) => self.value(sub, value, &path),
                None if sub["type"] == "object" && sub.get("default").is_some() => self.table(sub, None, &path),
                None if is_in_force(node, key, &has) => {
                    if let Some(value) = sub.get("default") {
                        self.default(path, value);
                    }
                }
                None => {}
            }
        }
        for (key, value) in values.into_iter().flatten().filter(|(key, _)| !known.contains_key(*key)) {
            self.value(&node["additionalProperties"], value, &path.key(key));
        }
    }

    fn value(&mut self, node: &Value, value: &Raw, path: &KeyPath) {
        if let Raw::Dict(_, dict) = value
            && (!dict.is_empty() || node["properties"].is_object())
        {
            return self.table(node, Some(value), path);
        }
        let variable = path.ancestors().find_map(|path| self.raw.origins.get(&path));
        let text = variable.and_then(|origin| origin.text.clone()).filter(|_| node["type"] == "string");
        let plain = text.map_or_else(|| serde_json::to_value(value).unwrap_or(Value::Null), Value::String);
        let origin = match variable {
            Some(origin) => SettingOrigin::Environment { variable: origin.variable.clone() },
            None => SettingOrigin::File { line: self.raw.spans.find(path).map(|position| position.line) },
        };
        let shown = hide(path, &plain, variable.is_some());
        let hidden = shown.is_some();
        self.push(path.clone(), shown.unwrap_or(plain), hidden, origin);
    }

    fn default(&mut self, path: KeyPath, value: &Value) {
        let value = derived(self.config, &path).unwrap_or_else(|| value.clone());
        self.push(path, value, false, SettingOrigin::Default);
    }

    fn push(&mut self, path: KeyPath, value: Value, hidden: bool, origin: SettingOrigin) {
        self.found.push(Setting { key: path.to_string(), value, hidden, origin, path });
    }
}

/// Of a sink's four shapes the one of its type.
fn shape<'n>(node: &'n Value, written: Option<&Raw>) -> &'n Value {
    let kind = written.and_then(|written| written.as_dict()?.get("type")?.as_str());
    let shapes = node["oneOf"].as_array().into_iter().flatten();
    let mut shapes = shapes.filter(|shape| shape["properties"]["type"].get("const").is_some());
    shapes.find(|shape| shape["properties"]["type"]["const"].as_str() == kind).unwrap_or(node)
}

/// Whether a default holds beside the other keys: not without what it depends on, nor beside its opposite.
fn is_in_force(node: &Value, key: &str, has: &impl Fn(&str) -> bool) -> bool {
    const INSTEAD: [(&str, &[&str]); 2] = [("drop", &["keep"]), ("format", &["template", "template_file", "preset"])];
    let needs = node["dependentRequired"][key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut instead = INSTEAD.iter().filter(|(it, _)| *it == key).flat_map(|(_, others)| *others);
    let template = key != "content_type" || has("template") || has("template_file");
    needs.into_iter().all(has) && !instead.any(|other| has(other)) && template
}

/// Defaults that depend on other keys.
fn derived(config: &Config, path: &KeyPath) -> Option<Value> {
    let keys: Vec<_> = path.0.iter().map(|step| if let Step::Key(key) = step { key.as_str() } else { "" }).collect();
    let ["sinks", name, table, key] = keys[..] else { return None };
    let SinkConfig { batch, retry, .. } = config.sinks.iter().find(|sink| sink.name == name)?;
    let human = |duration| Some(json!(HumanDuration(duration).to_string()));
    match (table, key) {
        ("batch", "max_events") => Some(json!(batch.max_events)),
        ("batch", "max_wait") => human(batch.max_wait),
        ("retry", "first") => human(retry.first),
        ("retry", "max") => human(retry.max),
        ("retry", "give_up_after") => human(retry.give_up_after),
        ("retry", "refused_for") => human(retry.refused_for),
        _ => None,
    }
}

/// What stands in place of a value that may give access; `None`: it is shown whole. Hidden are headers that come from the
/// environment, and the path of a sink's address where it may hold a key, as the addresses of chats' hooks do.
fn hide(path: &KeyPath, value: &Value, from_environment: bool) -> Option<Value> {
    let keys: Vec<_> = path.0.iter().map(|step| if let Step::Key(key) = step { key.as_str() } else { "" }).collect();
    match (&keys[..], value) {
        (["sinks", _, "url"], Value::String(urls)) => {
            let shown = urls.split(',').map(|url| without_key(url, from_environment)).collect::<Vec<_>>().join(",");
            (shown != *urls).then(|| json!(shown))
        }
        (["sinks", _, "headers", _], _) if from_environment => Some(json!(HIDDEN)),
        _ => None,
    }
}

/// An address without its path, if that may hold a key: if it comes from the environment, where addresses go that are
/// secret, has a query or a fragment, or a segment that is not plainly a word.
fn without_key(url: &str, from_environment: bool) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (_, rest) = url.split_at(start);
    let Some(at) = rest.find(['/', '?', '#']).filter(|at| rest.len() > at + 1) else { return url.to_owned() };
    let (_, path) = rest.split_at(at);
    let is_plain = !from_environment && path.trim().split('/').all(is_word);
    if is_plain { url.to_owned() } else { format!("{}/{HIDDEN}", &url[..start + at]) }
}

/// Whether a segment of a path is a word (`events`, `k8s`, `audit-log`) and no key: keys are long, or mix digits in.
fn is_word(segment: &str) -> bool {
    const LONGEST: usize = 20;
    const SHORT: usize = 4;
    let is_letter = |c: char| c.is_ascii_lowercase() || matches!(c, '-' | '_' | '.');
    let is_short = segment.len() <= SHORT && segment.chars().all(|c| is_letter(c) || c.is_ascii_digit());
    is_short || (segment.len() <= LONGEST && segment.chars().all(is_letter))
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;

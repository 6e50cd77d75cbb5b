//! Effective configuration: every value with its origin, without secrets.
//!
//! Keys and static defaults are taken from the schema. Defaults that depend on other keys are taken from the checked
//! configuration.

use std::fmt::Write;
use std::path::Path;

use figment::value::Value as Raw;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::raw::{self, Environment};
use super::resolve::{self, Source};
use super::schema::schema;
use super::spans::{KeyPath, Step};
use super::toml_text::toml;
use super::{Config, ConfigErrors, HumanDuration, SinkConfig, process_environment};

/// Placeholder for values that may be secret.
const HIDDEN: &str = "…";

/// Effective value of a key.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setting {
    /// The key in TOML notation: `sinks.audit.batch.max_events`.
    pub key: String,
    /// The value as written, in TOML types, without parts that may be secret.
    pub value: Value,
    /// Whether parts of the value are hidden because they may be secret.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Origin of the value.
    pub origin: SettingOrigin,
    #[serde(skip)]
    path: KeyPath,
}

/// Origin of a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingOrigin {
    /// The configuration file.
    File {
        /// Line of the key in the file, from 1; `None` if unknown.
        line: Option<usize>,
    },
    /// Environment variable.
    Environment {
        /// Name of the variable.
        variable: String,
    },
    /// The default, because the key is not given.
    Default,
}

/// Returns the effective values of a file in this process's environment. Files and variables that the configuration
/// names, such as secrets, need not exist.
///
/// # Errors
/// All mistakes of the configuration.
pub fn settings(file: &Path) -> Result<Vec<Setting>, ConfigErrors> {
    let text = std::fs::read_to_string(file).map_err(|error| resolve::unreadable(file, &error))?;
    settings_of(&text, Some(file), &process_environment())
}

fn settings_of(text: &str, file: Option<&Path>, environment: &Environment) -> Result<Vec<Setting>, ConfigErrors> {
    let config = resolve::resolve(&Source {
        file,
        text,
        environment: Some(environment),
        probes: None,
        check_references: false,
    })?;
    // Cannot fail: `resolve` has already merged the same text and environment.
    let raw = raw::merge(text, environment).unwrap_or_default();
    let values = Raw::from(raw.values.clone());
    let mut walk = Walk { raw: &raw, config: &config, found: Vec::new() };
    walk.table(&schema(), Some(&values), &KeyPath::default());
    Ok(walk.found)
}

/// Formats settings as equivalent TOML, with the origin of each as a comment. A setting with hidden parts is commented
/// out. The first line has the number of such settings, so that the output is not mistaken for a complete
/// configuration.
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

struct Walk<'w> {
    raw: &'w raw::Raw,
    config: &'w Config,
    found: Vec<Setting>,
}

impl Walk<'_> {
    /// Collects the settings of a table: each key of the schema with its written value or its default.
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

/// Returns the part of the schema `node` that applies to the `type` of a sink or source in the file (`written`); `node`
/// itself if it has no types.
fn shape<'n>(node: &'n Value, written: Option<&Raw>) -> &'n Value {
    let kind = written.and_then(|written| written.as_dict()?.get("type")?.as_str());
    let shapes = node["oneOf"].as_array().into_iter().flatten();
    let mut shapes = shapes.filter(|shape| shape["properties"]["type"].get("const").is_some());
    shapes.find(|shape| shape["properties"]["type"]["const"].as_str() == kind).unwrap_or(node)
}

/// Returns whether the default of a missing key applies. It does not apply if another key that it requires is missing,
/// or if a key is set that replaces it (such as `template`, which replaces `format`).
fn is_in_force(node: &Value, key: &str, has: &impl Fn(&str) -> bool) -> bool {
    const INSTEAD: [(&str, &[&str]); 2] = [("drop", &["keep"]), ("format", &["template", "template_file", "preset"])];
    let needs = node["dependentRequired"][key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut instead = INSTEAD.iter().filter(|(it, _)| *it == key).flat_map(|(_, others)| *others);
    let template = key != "content_type" || has("template") || has("template_file");
    needs.into_iter().all(has) && !instead.any(|other| has(other)) && template
}

/// Returns the default of a key of `batch` or `retry`, if it depends on other keys; `None` for all other keys.
fn derived(config: &Config, path: &KeyPath) -> Option<Value> {
    let keys: Vec<_> = path.0.iter().map(|step| if let Step::Key(key) = step { key.as_str() } else { "" }).collect();
    let ["sinks", name, table, key] = keys[..] else { return None };
    let SinkConfig { batch, retry, .. } = config.sinks.iter().find(|sink| sink.table() == name)?;
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

/// Returns the redacted form of a value that may contain a secret; `None` if the value can be shown unchanged.
///
/// Redacts headers from the environment. Also redacts the path of a sink's address that may contain an access key, as
/// the addresses of chat webhooks do.
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

/// Removes the path of an address if the path may contain an access key: if the address is from the environment, or has
/// a query, a fragment, or a segment that is not a plain word.
fn without_key(url: &str, from_environment: bool) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (_, rest) = url.split_at(start);
    let Some(at) = rest.find(['/', '?', '#']).filter(|at| rest.len() > at + 1) else { return url.to_owned() };
    let (_, path) = rest.split_at(at);
    let is_plain = !from_environment && path.trim().split('/').all(is_word);
    if is_plain { url.to_owned() } else { format!("{}/{HIDDEN}", &url[..start + at]) }
}

/// Returns whether a path segment is a word (`events`, `k8s`, `audit-log`), not an access key. Access keys are long or
/// have capitals; words of more than 4 letters have no digits.
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

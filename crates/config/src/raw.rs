//! Raw configuration: figment merges the environment over the file into one tree of values, and this module records the
//! origin of each value.
//!
//! The tree stays untyped, because serde would stop at the first mistake.

use std::collections::BTreeMap;

use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml_edit::{Document, Item};

use super::spans::{KeyPath, Lines, Position, Spans};

/// Prefix of the environment variables that set keys.
const PREFIX: &str = "INFORMER_HUB_";
/// Separator of a key's levels in the name of a variable.
const LEVEL: &str = "__";

/// Environment variables by name.
pub(super) type Environment = BTreeMap<String, String>;

/// Environment variable as the origin of a value.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// Name of the variable.
    pub(super) variable: String,
    /// Text of the variable, before figment parsed it. `None` if the variable sets a whole table that contains this
    /// key.
    pub(super) text: Option<String>,
}

/// Merged file and environment.
#[derive(Debug, Default)]
pub(super) struct Raw {
    /// Values of the file, overridden by those of the environment.
    pub(super) values: Dict,
    /// Positions of the file's keys.
    pub(super) spans: Spans,
    /// Origin of each key that the environment sets. If a variable sets a whole table, the table's keys are listed.
    pub(super) origins: BTreeMap<KeyPath, Origin>,
    /// Variables whose names do not lead to exactly one key: name and description of the problem.
    pub(super) strays: Vec<(String, String)>,
}

/// Syntax error of a text that is not TOML.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) position: Option<Position>,
    pub(super) message: String,
}

/// Parses `text` and merges `environment` over it.
pub(super) fn merge(text: &str, environment: &Environment) -> Result<Raw, Syntax> {
    let document = Document::parse(text).map_err(|e| Syntax {
        position: e.span().map(|span| Lines::of(text).position(span.start)),
        // The error's `Display` is not used: it quotes the line, which may contain a secret.
        message: match (e.message(), e.span().and_then(|span| text.get(span))) {
            ("duplicate key", Some(key)) => format!("{key} is duplicated; keep one of them"),
            (message, _) => message.replace('\n', ", "),
        },
    })?;
    let spans = Spans::of(&document);
    let file = dict(document.iter());
    let mut layer = EnvLayer { values: Dict::new(), origins: BTreeMap::new(), strays: Vec::new() };
    for (variable, value) in environment {
        layer.add(variable, value, &file);
    }
    let merged = Figment::from(Layer("file", &file)).merge(Layer("environment", &layer.values)).data();
    let values = merged.map_err(|e| Syntax { position: None, message: e.to_string() })?;
    let values = values.into_iter().find_map(|(profile, values)| (profile == Profile::Default).then_some(values));
    Ok(Raw { values: values.unwrap_or_default(), spans, origins: layer.origins, strays: layer.strays })
}

/// Figment provider of values; the text is the provider's name.
struct Layer<'d>(&'static str, &'d Dict);

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.1.clone()))
    }
}

struct EnvLayer {
    values: Dict,
    origins: BTreeMap<KeyPath, Origin>,
    strays: Vec<(String, String)>,
}

impl EnvLayer {
    /// Adds the key that an environment variable sets.
    ///
    /// Ignores a name without the separator `__`. Kubernetes sets such variables itself, such as
    /// `INFORMER_HUB_SERVICE_HOST` in pods of a namespace with a service `informer-hub`.
    fn add(&mut self, variable: &str, text: &str, file: &Dict) {
        let Some(name) = variable.strip_prefix(PREFIX).filter(|name| name.contains(LEVEL)) else { return };
        let keys = match existing_keys(name, file) {
            Ok(keys) => keys,
            Err(problem) => return self.strays.push((variable.to_owned(), problem)),
        };
        let value: Value = text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {});
        let path = keys.iter().fold(KeyPath::default(), |path, key| path.key(key));
        self.note(path, &value, &Origin { variable: variable.to_owned(), text: Some(text.to_owned()) });
        insert(&mut self.values, &keys, value);
    }

    fn note(&mut self, path: KeyPath, value: &Value, origin: &Origin) {
        match value {
            Value::Dict(_, dict) if !dict.is_empty() => {
                let origin = Origin { text: None, ..origin.clone() };
                for (key, value) in dict {
                    self.note(path.key(key), value, &origin);
                }
            }
            _ => {
                self.origins.insert(path, origin.clone());
            }
        }
    }
}

/// Returns the path of the key that an environment variable sets. `name` is the variable's name without its prefix.
///
/// Each part of `name` is compared with the keys of the file, in which `-`, `.` and `/` count as `_`. If no key
/// matches, the part in lower case is the key.
///
/// # Errors
/// A description of the problem if a part is empty or matches two keys.
fn existing_keys(name: &str, file: &Dict) -> Result<Vec<String>, String> {
    let mut table = Some(file);
    let mut keys = Vec::new();
    for level in name.split(LEVEL) {
        if level.is_empty() {
            return Err("a level of the key is empty; write two underscores between levels".to_owned());
        }
        let spelt = spelling(level);
        let mut alike = table.into_iter().flat_map(Dict::keys).filter(|key| spelling(key) == spelt);
        let key = match (alike.next(), alike.next()) {
            (None, _) => level.to_lowercase(),
            (Some(key), None) => key.clone(),
            (Some(one), Some(other)) => {
                return Err(format!(
                    "{level} could mean {one:?} or {other:?}; rename one of them, or set the key in the file"
                ));
            }
        };
        table = table.and_then(|t| t.get(&key)).and_then(Value::as_dict);
        keys.push(key);
    }
    Ok(keys)
}

fn spelling(key: &str) -> String {
    key.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// Inserts a value at a path of keys, and adds the missing tables. A scalar within the path is replaced by a table.
fn insert(table: &mut Dict, keys: &[String], value: Value) {
    let Some((key, rest)) = keys.split_first() else { return };
    if rest.is_empty() {
        table.insert(key.clone(), value);
        return;
    }
    let entry = table.entry(key.clone()).or_insert_with(|| Value::from(Dict::new()));
    if !matches!(entry, Value::Dict(..)) {
        *entry = Value::from(Dict::new());
    }
    if let Value::Dict(_, inner) = entry {
        insert(inner, rest, value);
    }
}

fn dict<'i>(items: impl Iterator<Item = (&'i str, &'i Item)>) -> Dict {
    items.filter_map(|(key, item)| Some((key.to_owned(), from_item(item)?))).collect()
}

fn from_item(item: &Item) -> Option<Value> {
    Some(match item {
        Item::None => return None,
        Item::Value(value) => from_value(value),
        Item::Table(table) => Value::from(dict(table.iter())),
        Item::ArrayOfTables(tables) => {
            Value::Array(Tag::Default, tables.iter().map(|table| Value::from(dict(table.iter()))).collect())
        }
    })
}

fn from_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::from(text.value().as_str()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        toml_edit::Value::Float(number) => Value::from(*number.value()),
        toml_edit::Value::Boolean(boolean) => Value::from(*boolean.value()),
        toml_edit::Value::Datetime(time) => Value::from(time.value().to_string()),
        toml_edit::Value::Array(values) => Value::Array(Tag::Default, values.iter().map(from_value).collect()),
        toml_edit::Value::InlineTable(table) => {
            Value::from(table.iter().map(|(key, value)| (key.to_owned(), from_value(value))).collect::<Dict>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(text: &str, variables: &[(&str, &str)]) -> Raw {
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        merge(text, &environment).unwrap()
    }

    fn at<'r>(raw: &'r Raw, keys: &[&str]) -> Option<&'r Value> {
        let (first, rest) = keys.split_first()?;
        rest.iter().try_fold(raw.values.get(*first)?, |value, key| value.as_dict()?.get(*key))
    }

    #[test]
    fn environment_overrides_single_keys_of_the_file() {
        let raw = merged("[hub]\na = 1\nb = 2\n", &[("INFORMER_HUB_HUB__A", "3"), ("INFORMER_HUB_HUB__C", "x")]);
        assert_eq!(at(&raw, &["hub", "a"]).and_then(Value::to_i128), None, "figment reads it as unsigned");
        assert_eq!(at(&raw, &["hub", "a"]).and_then(Value::to_u128), Some(3));
        assert_eq!(at(&raw, &["hub", "b"]).and_then(Value::to_i128), Some(2));
        assert_eq!(at(&raw, &["hub", "c"]).and_then(Value::as_str), Some("x"));
        let origins: Vec<_> = raw.origins.keys().map(ToString::to_string).collect();
        assert_eq!(origins, ["hub.a", "hub.c"]);
    }

    #[test]
    fn level_matches_the_key_with_the_same_spelling() {
        let file = "[clusters.prod-eu]\n[clusters.Dev_1]\n[resources.\"deployments.apps\"]\n";
        let raw = merged(
            file,
            &[
                ("INFORMER_HUB_CLUSTERS__PROD_EU__SERVER", "s"),
                ("INFORMER_HUB_CLUSTERS__DEV_1__SERVER", "s"),
                ("INFORMER_HUB_CLUSTERS__NEW_ONE__SERVER", "s"),
                ("INFORMER_HUB_RESOURCES__DEPLOYMENTS_APPS__RESYNC", "10m"),
            ],
        );
        let clusters: Vec<_> = raw.values["clusters"].as_dict().unwrap().keys().cloned().collect();
        assert_eq!(clusters, ["Dev_1", "new_one", "prod-eu"]);
        assert_eq!(at(&raw, &["resources", "deployments.apps", "resync"]).and_then(Value::as_str), Some("10m"));
    }

    #[test]
    fn ambiguous_level_is_a_mistake() {
        let raw = merged("[clusters.a-b]\n[clusters.a_b]\n", &[("INFORMER_HUB_CLUSTERS__A_B__SERVER", "s")]);
        assert_eq!(raw.strays.len(), 1);
        assert!(raw.strays[0].1.contains("could mean \"a-b\" or \"a_b\""), "{:?}", raw.strays);
        assert!(raw.origins.is_empty());
    }

    #[test]
    fn service_variables_of_kubernetes_are_ignored() {
        let raw = merged("", &[("INFORMER_HUB_SERVICE_HOST", "10.0.0.1"), ("INFORMER_HUB_PORT", "tcp://10.0.0.1:80")]);
        assert!(raw.values.is_empty() && raw.strays.is_empty());
    }

    #[test]
    fn syntax_error_has_a_position_and_does_not_quote_the_line() {
        let syntax = merge("[hub]\nkey = hunter2\n", &Environment::new()).unwrap_err();
        assert_eq!(syntax.position.unwrap().line, 2);
        assert!(!syntax.message.contains("hunter2"), "{}", syntax.message);
    }
}

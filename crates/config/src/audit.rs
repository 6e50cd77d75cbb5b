//! Parser of `[hub.audit]`.

use std::ops::RangeInclusive;

use figment::value::Value;

use super::audit_config::{AuditConfig, AuditLevel, AuditOutputConfig, AuditRuleConfig};
use super::table::{Table, kind};
use super::transports::KEEP;
use informer_hub_types::{Exclusion, ResourceRef};

/// Bounds of `max_size` in bytes. Smaller files would be rotated all the time.
pub(super) const AUDIT_SIZE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Accepted values of a rule's `level`.
pub(super) const LEVELS: [(&str, AuditLevel); 2] = [("None", AuditLevel::None), ("Metadata", AuditLevel::Metadata)];

/// Levels of kube-apiserver that log bodies. The hub never logs bodies, and rejects these levels.
const LEVELS_WITH_BODIES: [&str; 2] = ["Request", "RequestResponse"];

/// Reads `[hub.audit]`. Returns `None` if the output is missing, and reports that as a mistake.
pub(super) fn audit(mut table: Table<'_>) -> Option<AuditConfig> {
    let is_missing = table.lacks(&["path", "stdout"]);
    if table.chosen(&["path", "stdout"]).is_empty() && is_missing {
        table.checker.mistake(&table.path, "has no output; write path = \"audit.log\" or stdout = true");
    }
    let size = table.has("max_size").then_some("max_size").or(table.has("keep").then_some("keep"));
    let path = table.output_file("path");
    let is_stdout = table.boolean("stdout");
    if is_stdout == Some(false) {
        table.mistake("stdout", "is false; write path = \"audit.log\" for a file, or remove [hub.audit]");
    }
    if let Some(key) = size.filter(|_| is_stdout == Some(true)) {
        table.mistake(key, "applies only to a file; remove it, or write path instead of stdout");
    }
    let max_size = table.size("max_size", AUDIT_SIZE);
    let kept = table.number("keep", KEEP);
    let output = match path.map(AuditOutputConfig::file) {
        Some(AuditOutputConfig::File { path, max_size: default, keep }) => Some(AuditOutputConfig::File {
            path,
            max_size: max_size.map_or(default, |size| size as u64),
            keep: kept.unwrap_or(keep),
        }),
        _ => is_stdout.map(|_| AuditOutputConfig::Stdout),
    };
    let rules = rules(&mut table);
    table.finish();
    output.map(|output| AuditConfig { output, rules })
}

fn rules(table: &mut Table<'_>) -> Vec<AuditRuleConfig> {
    let (checker, path) = (table.checker, table.path.key("rules"));
    let rules = match table.take("rules") {
        None => return Vec::new(),
        Some(Value::Array(_, rules)) => rules,
        Some(other) => {
            let example = "[{ level = \"None\", readers = [\"prometheus\"] }]";
            checker.mistake(&path, format!("expected a list of rules such as {example}, found {}", kind(&other)));
            return Vec::new();
        }
    };
    let rules = rules.into_iter().enumerate();
    rules.filter_map(|(at, value)| rule(Table::new(checker, path.index(at), value))).collect()
}

fn rule(mut table: Table<'_>) -> Option<AuditRuleConfig> {
    let level = level(&mut table);
    let readers = patterns(&mut table, "readers");
    let groups = patterns(&mut table, "groups");
    let verbs = verbs(&mut table);
    let resources = resources(&mut table);
    let paths = paths(&mut table);
    table.finish();
    Some(AuditRuleConfig { level: level?, readers, groups, verbs, resources, paths })
}

fn level(table: &mut Table<'_>) -> Option<AuditLevel> {
    if table.lacks(&["level"]) && !table.has("level") {
        table.checker.mistake(&table.path, "has no level; write level = \"Metadata\", or \"None\" to log nothing");
    }
    let text = table.text("level")?;
    if LEVELS_WITH_BODIES.contains(&text.as_str()) {
        table.mistake("level", format!("{text:?} would log bodies, which the hub never does; write \"Metadata\""));
        return None;
    }
    let found = LEVELS.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        table.mistake("level", format!("{text:?} is not a level; write \"Metadata\" or \"None\""));
    }
    found.map(|(_, level)| *level)
}

/// Reads a list of texts. Reports an empty list as a mistake, because it would match every request.
fn patterns(table: &mut Table<'_>, key: &'static str) -> Vec<String> {
    let texts = table.texts(key);
    if texts.as_ref().is_some_and(Vec::is_empty) && table.checker.is_clean(&table.path.key(key)) {
        table.mistake(key, "is empty; remove the key to match every request");
    }
    texts.unwrap_or_default().into_iter().map(|(_, text)| text).collect()
}

fn verbs(table: &mut Table<'_>) -> Vec<String> {
    let path = table.path.key("verbs");
    let verbs = patterns(table, "verbs");
    for (at, verb) in verbs.iter().enumerate().filter(|(_, verb)| !verb.bytes().all(|byte| byte.is_ascii_lowercase())) {
        table
            .checker
            .mistake(&path.index(at), format!("{verb:?} is not a verb; write one such as \"get\" or \"watch\""));
    }
    verbs
}

fn paths(table: &mut Table<'_>) -> Vec<String> {
    let path = table.path.key("paths");
    let paths = patterns(table, "paths");
    for (at, text) in paths.iter().enumerate().filter(|(_, text)| !text.starts_with(['/', '*'])) {
        let problem = format!("{text:?} is not a path; write one such as \"/v1/status\" or \"/clusters/test-*\"");
        table.checker.mistake(&path.index(at), problem);
    }
    paths
}

fn resources(table: &mut Table<'_>) -> Vec<Exclusion> {
    let (checker, path) = (table.checker, table.path.key("resources"));
    let Some(found) = table.parsed_list::<Exclusion>("resources") else { return Vec::new() };
    if found.is_empty() && checker.is_clean(&path) {
        checker.mistake(&path, "is empty; remove the key to match every request");
    }
    let each = found.into_iter().map(|(path, entry)| match entry {
        Exclusion::Resource(ResourceRef { version: Some(_), .. }) => {
            checker.mistake(&path, "has a version, but a rule applies to all versions; remove the version");
            entry
        }
        Exclusion::Resource(resource) => Exclusion::Resource(resource.canonical()),
        groups @ Exclusion::Groups(_) => groups,
    });
    each.collect()
}

//! Tests of `[hub.audit]`.

use super::*;
use crate::{AuditConfig, AuditLevel, AuditOutputConfig};

fn audit(lines: &str) -> Option<AuditConfig> {
    Config::from_toml(&format!("{BASE}[hub.audit]\n{lines}\n")).unwrap().hub.service.audit
}

/// Like [`only`], for lines of `[hub.audit]`, counted from 1; its header is 0.
#[track_caller]
fn only_in_audit(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}[hub.audit]\n{lines}\n"), line + 5, words);
}

#[test]
fn outputs_and_rules_are_read() {
    assert_eq!(Config::from_toml(BASE).unwrap().hub.service.audit, None);
    assert_eq!(audit("stdout = true"), Some(AuditConfig::new(AuditOutputConfig::Stdout)));
    assert_eq!(audit("path = \"audit.log\""), Some(AuditConfig::new(AuditOutputConfig::file("audit.log"))));
    let config = audit(
        "path = \"audit.log\"\nmax_size = \"5MiB\"\nkeep = 3\nrules = [\n\
         { level = \"None\", readers = [\"prom*\"], verbs = [\"watch\"], paths = [\"/clusters/test-*\"] },\n\
         { level = \"Metadata\", groups = [\"sre\"], resources = [\"deploy\", \"*.example.com\"] },\n]",
    );
    let config = config.unwrap();
    assert_eq!(config.output, AuditOutputConfig::File { path: "audit.log".into(), max_size: 5 << 20, keep: 3 });
    let [none, some] = &config.rules[..] else { panic!("{:?}", config.rules) };
    assert_eq!((none.level, some.level), (AuditLevel::None, AuditLevel::Metadata));
    assert_eq!((&none.readers[..], &none.verbs[..]), (&["prom*".to_owned()][..], &["watch".to_owned()][..]));
    assert_eq!((&none.paths[..], &some.groups[..]), (&["/clusters/test-*".to_owned()][..], &["sre".to_owned()][..]));
    let resources: Vec<_> = some.resources.iter().map(ToString::to_string).collect();
    assert_eq!(resources, ["deployments.apps", "*.example.com"]);
}

#[test]
fn outputs_are_checked() {
    only_in_audit("", 0, "hub.audit: has no output; write path = \"audit.log\" or stdout = true");
    only_in_audit("paht = \"audit.log\"", 1, "did you mean \"path\"?");
    only_in_audit("path = \"audit.log\"\nstdout = true", 0, "has path and stdout; keep one of them");
    only_in_audit("stdout = false", 1, "hub.audit.stdout: is false");
    only_in_audit("stdout = true\nmax_size = \"5MiB\"", 2, "hub.audit.max_size: applies only to a file");
    only_in_audit("path = \"audit.log\"\nmax_size = \"1KiB\"", 2, "1KiB is out of range: from 1MiB to 1TiB");
    only_in_audit("path = \"audit.log\"\nkeep = 0", 2, "expected a whole number from 1 to 1000, found 0");
}

#[test]
fn rules_are_checked() {
    let rule = |rule: &str, words: &str| only_in_audit(&format!("stdout = true\nrules = [{{ {rule} }}]"), 2, words);
    rule("readers = [\"a\"]", "hub.audit.rules[0]: has no level; write level = \"Metadata\"");
    for level in ["Request", "RequestResponse"] {
        rule(&format!("level = {level:?}"), "would log bodies, which the hub never does; write \"Metadata\"");
    }
    rule("level = \"metadata\"", "\"metadata\" is not a level; write \"Metadata\" or \"None\"");
    rule("level = \"None\", verbs = []", "verbs: is empty; remove the key to match every request");
    rule("level = \"None\", verbs = [\"GET\"]", "\"GET\" is not a verb");
    rule("level = \"None\", paths = [\"v1\"]", "\"v1\" is not a path");
    rule(
        "level = \"None\", resources = [\"deployments.v1.apps\"]",
        "has a version, but a rule applies to all versions",
    );
    rule("level = \"None\", reader = [\"a\"]", "did you mean \"readers\"?");
    only_in_audit("stdout = true\nrules = 7", 2, "expected a list of rules such as");
}

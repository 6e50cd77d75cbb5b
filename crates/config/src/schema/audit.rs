//! Schema of `[hub.audit]`.

use serde_json::{Value, json};

use super::RESOURCE;
use super::node::{boolean, bytes, choice, default, list, size, table, text, whole};
use crate::AuditOutputConfig;
use crate::audit::{AUDIT_SIZE, LEVELS};
use crate::transports::KEEP;

pub(super) fn audit() -> Value {
    let mut max_size = size("Size at which the file is rotated.", &AUDIT_SIZE);
    let mut keep = whole("Number of rotated files to keep.", &KEEP);
    if let AuditOutputConfig::File { max_size: usual, keep: kept, .. } = AuditOutputConfig::file("") {
        max_size = default(max_size, bytes(usual));
        keep = default(keep, kept);
    }
    let rules = "Rules. The first that matches a request decides. Unset or no match: logged, except allowed requests of /livez, /readyz and /metrics.";
    let mut audit = table(
        "Audit log: a line of JSON for each request of the port. Either path or stdout.",
        vec![
            ("path", text("File, readable by its owner only. Its directory must exist.")),
            ("stdout", boolean("Whether the log is written to the standard output.")),
            ("max_size", max_size),
            ("keep", keep),
            ("rules", list(rules, 0, &rule())),
        ],
    );
    audit["oneOf"] =
        json!([{ "required": ["path"] }, { "required": ["stdout"], "properties": { "stdout": { "const": true } } }]);
    audit["dependentRequired"] = json!({ "max_size": ["path"], "keep": ["path"] });
    audit
}

fn rule() -> Value {
    let texts = |about: &str| list(about, 1, &json!({ "type": "string", "pattern": "\\S" }));
    let words = LEVELS.map(|(word, _)| word);
    let mut rule = table(
        "Matches a request for which each of its lists has an entry.",
        vec![
            ("level", choice("None logs nothing, Metadata everything but bodies.", &words)),
            ("readers", texts("Names of users, or patterns. Unset: all.")),
            ("groups", texts("Groups of users, or patterns. Unset: all.")),
            ("verbs", list("Verbs. Unset: all.", 1, &json!({ "type": "string", "pattern": "^[a-z]+$" }))),
            (
                "resources",
                list("Resources and patterns. Unset: all.", 1, &json!({ "type": "string", "pattern": RESOURCE })),
            ),
            ("paths", list("Paths, or patterns. Unset: all.", 1, &json!({ "type": "string", "pattern": "^[/*]" }))),
        ],
    );
    rule["required"] = json!(["level"]);
    rule
}

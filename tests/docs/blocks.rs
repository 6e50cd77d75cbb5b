//! Tests of fenced blocks: TOML blocks are valid configurations, JSON blocks are valid JSON.

use std::collections::BTreeMap;

use informer_hub::Config;
use informer_hub_config::ConfigErrors;

use crate::pages::{Block, all};

/// Mistakes that depend on the reader's machine: missing files, folders and variables.
const ENVIRONMENT_MISTAKES: [&str; 3] = ["there is no such file", "there is no directory", "is not set"];

/// Completes a TOML block to a whole file. A ```` ```toml sink ```` block has keys of a webhook sink, others have
/// tables.
fn whole(block: &Block) -> String {
    let mut text = block.text.clone();
    if block.is("sink") {
        text = format!("[sinks.shown]\ntype = \"webhook\"\nurl = \"https://example.com\"\n{text}");
    }
    let has = |table: &str| text.lines().any(|line| line.starts_with(&format!("[{table}")));
    let (clusters, resources) = (has("clusters"), has("resources"));
    let needs_fleet = text.contains("agent = true") && !has("fleet");
    if !clusters {
        text += "\n[clusters.beside]\nserver = \"https://example.com\"\nlabels = { env = \"dev\", tier = \"prod\" }\n";
    }
    if needs_fleet {
        text += "\n[fleet]\nnats = [\"nats://nats\"]\nname = \"prod\"\nroles = [\"collect\"]\n";
    }
    if !resources {
        text += "\n[resources.pods]\n";
    }
    text
}

fn read(text: &str) -> Result<Config, ConfigErrors> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    std::fs::write(&file, text).unwrap();
    Config::from_file_with_env(&file, [("HOME".to_owned(), folder.path().to_string_lossy().into_owned())])
}

/// Returns the mistakes that do not depend on the reader's machine.
fn mistakes(text: &str) -> Vec<String> {
    let Err(errors) = read(text) else { return Vec::new() };
    let is_environment = |problem: &str| ENVIRONMENT_MISTAKES.iter().any(|words| problem.contains(words));
    let mistakes = errors.mistakes().iter().filter(|mistake| !is_environment(&mistake.problem));
    mistakes.map(|mistake| format!("{}: {}", mistake.key, mistake.problem)).collect()
}

#[test]
fn toml_blocks_are_valid_configurations() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in all() {
        for block in page.blocks().iter().filter(|block| block.language() == "toml") {
            count += 1;
            let found = mistakes(&whole(block));
            wrong.extend(found.into_iter().map(|problem| format!("{}:{}: {problem}", page.path, block.line)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 10, "{count} blocks");
}

#[test]
fn toml_check_finds_a_mistake() {
    let block = |info: &str, text: &str| Block { info: info.to_owned(), text: text.to_owned(), line: 1 };
    assert_eq!(mistakes(&whole(&block("toml", "[hub.tls]\ncert_file = \"gone\"\nkey_file = \"gone\"\n"))), [""; 0]);
    let found = mistakes(&whole(&block("toml", "[hub]\nlisten = \"here\"\n")));
    assert!(found.len() == 1 && found[0].starts_with("hub.listen: "), "{found:?}");
    let found = mistakes(&whole(&block("toml sink", "presett = \"slack\"\n")));
    assert!(found.len() == 1 && found[0].starts_with("sinks.shown.presett: unknown key"), "{found:?}");
}

#[test]
fn json_blocks_are_valid_json() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in all() {
        for block in page.blocks().iter().filter(|block| block.language() == "json") {
            count += 1;
            // A block may show members without the surrounding braces.
            let text = if block.text.trim_start().starts_with('"') {
                format!("{{{}}}", block.text)
            } else {
                block.text.clone()
            };
            if let Err(error) = serde_json::from_str::<serde_json::Value>(&text) {
                wrong.push(format!("{}:{}: {error}", page.path, block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 3, "{count} blocks");
}

/// Rejects unknown block languages, since a misspelt one would skip its checks.
#[test]
fn fenced_blocks_have_a_known_language() {
    const KNOWN: [&str; 16] = [
        "bash",
        "console",
        "diff",
        "dockerfile",
        "error",
        "go",
        "ini",
        "javascript",
        "json",
        "python",
        "query",
        "rust",
        "sh",
        "text",
        "toml",
        "yaml",
    ];
    let mut unknown = BTreeMap::new();
    for page in all() {
        for block in page.blocks() {
            if !KNOWN.contains(&block.language()) {
                unknown.insert(format!("{}:{}", page.path, block.line), block.info);
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}; known languages: {}", KNOWN.join(", "));
}

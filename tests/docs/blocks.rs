//! Blocks of TOML are configurations, blocks of JSON are JSON.

use std::collections::BTreeMap;

use informer_hub::Config;
use informer_hub_config::ConfigErrors;

use crate::pages::{Block, all};

/// What a page cannot bring along: files, folders and variables of who reads it.
const OF_THE_READERS: [&str; 3] = ["there is no such file", "there is no directory", "is not set"];

/// What a block of TOML is part of. ```` ```toml sink ```` has keys of a webhook, everything else tables.
fn whole(block: &Block) -> String {
    let mut text = block.text.clone();
    if block.is("sink") {
        text = format!("[sinks.shown]\ntype = \"webhook\"\nurl = \"https://example.com\"\n{text}");
    }
    let has = |table: &str| text.lines().any(|line| line.starts_with(&format!("[{table}")));
    let (clusters, resources) = (has("clusters"), has("resources"));
    if !clusters {
        text += "\n[clusters.beside]\nserver = \"https://example.com\"\nlabels = { env = \"dev\", tier = \"prod\" }\n";
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

/// What is wrong with it wherever it is read.
fn mistakes(text: &str) -> Vec<String> {
    let Err(errors) = read(text) else { return Vec::new() };
    let of_the_readers = |problem: &str| OF_THE_READERS.iter().any(|words| problem.contains(words));
    let mistakes = errors.mistakes().iter().filter(|mistake| !of_the_readers(&mistake.problem));
    mistakes.map(|mistake| format!("{}: {}", mistake.key, mistake.problem)).collect()
}

#[test]
fn every_configuration_is_one() {
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
fn a_configuration_with_a_mistake_is_found() {
    let block = |info: &str, text: &str| Block { info: info.to_owned(), text: text.to_owned(), line: 1 };
    assert_eq!(mistakes(&whole(&block("toml", "[hub.tls]\ncert_file = \"gone\"\nkey_file = \"gone\"\n"))), [""; 0]);
    let found = mistakes(&whole(&block("toml", "[hub]\nlisten = \"here\"\n")));
    assert!(found.len() == 1 && found[0].starts_with("hub.listen: "), "{found:?}");
    let found = mistakes(&whole(&block("toml sink", "presett = \"slack\"\n")));
    assert!(found.len() == 1 && found[0].starts_with("sinks.shown.presett: unknown key"), "{found:?}");
}

#[test]
fn every_block_of_json_is_json() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in all() {
        for block in page.blocks().iter().filter(|block| block.language() == "json") {
            count += 1;
            // Members without the braces around them are shown too.
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

/// Languages of blocks, so that one that is misspelt does not go unlooked at.
#[test]
fn every_block_says_what_it_is() {
    const KNOWN: [&str; 15] = [
        "bash",
        "console",
        "diff",
        "dockerfile",
        "error",
        "go",
        "ini",
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
    assert!(unknown.is_empty(), "{unknown:?}; there is {}", KNOWN.join(", "));
}

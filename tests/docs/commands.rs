//! Tests of command lines in the documents: the program's parser accepts each of them.

use clap::Parser;
use clap::error::ErrorKind;
use informer_hub::cli::Cli;

use crate::pages::{Page, all};

const NAME: &str = "informer-hub";

/// Languages of blocks that contain commands.
const SHELLS: [&str; 4] = ["bash", "console", "sh", "text"];

/// Shell operators that end a command.
const OPERATORS: [&str; 6] = ["|", "||", "&&", ";", "&", ">"];

/// Returns the hub's commands in a shell line, as words. An unparsable line has none.
fn commands(line: &str) -> Vec<Vec<String>> {
    // Removes the prompt. A command within `$(…)` is not checked.
    let line = line.replace("$ ", "").replace("$(", "(");
    let Some(words) = shlex::split(&line) else { return Vec::new() };
    let starts = |word: &String| word == NAME || word.ends_with(&format!("/{NAME}"));
    let parts = words.split(|word| OPERATORS.contains(&word.as_str()));
    let command = |part: &[String]| {
        let start = part.iter().position(starts)?;
        let is_first =
            part[..start].iter().all(|word| word.contains('=') || ["sudo", "exec", "nice"].contains(&word.as_str()));
        let end = part.iter().position(|word| word.starts_with('>')).unwrap_or(part.len());
        (is_first && start + 1 < end).then(|| part[start..end].to_vec())
    };
    parts.filter_map(command).collect()
}

/// Returns the parser's error for a command. If `inline`, the command is part of a sentence and may lack required
/// arguments.
fn refused(words: &[String], inline: bool) -> Option<String> {
    // An ellipsis ends the checked part (`dead-letters …`). Of alternatives (`bash|zsh|fish`) the first is checked.
    let words = words.iter().take_while(|word| *word != "…").map(|word| word.split('|').next().unwrap_or_default());
    let left_out = |error: &clap::Error| match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::MissingRequiredArgument => inline,
        _ => false,
    };
    match Cli::try_parse_from(words) {
        Ok(_) => None,
        Err(error) if !error.use_stderr() || left_out(&error) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// A shell line or inline code span that may contain commands.
struct Line {
    text: String,
    number: usize,
    /// Whether the line is a code span within a sentence.
    inline: bool,
}

/// Returns the shell lines of a page: lines of blocks, and code spans that begin with the program's name.
fn lines(page: &Page) -> Vec<Line> {
    let mut found = Vec::new();
    for block in page.blocks().iter().filter(|block| SHELLS.contains(&block.language())) {
        // A trailing backslash joins lines.
        let text = block.text.replace("\\\n", " ");
        let line =
            |(at, line): (usize, &str)| Line { text: line.to_owned(), number: block.line + 1 + at, inline: false };
        found.extend(text.lines().enumerate().map(line));
    }
    // The name alone is not a command.
    let spans = page.spans().into_iter().filter(|(span, _)| span.starts_with(&format!("{NAME} ")));
    found.extend(spans.map(|(text, number)| Line { text, number, inline: true }));
    found
}

/// Removes the description from a synopsis line.
fn without_remark(line: &str) -> &str {
    line.split_once("  ").filter(|_| line.starts_with(NAME)).map_or(line, |(command, _)| command)
}

#[test]
fn documented_commands_are_accepted_by_the_parser() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in all() {
        for Line { text, number, inline } in lines(&page) {
            for command in commands(without_remark(&text)) {
                count += 1;
                if let Some(error) = refused(&command, inline) {
                    wrong.push(format!("{}:{number}: {}\n{error}", page.path, command.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count} commands");
}

#[test]
fn command_search_finds_commands_in_shell_lines() {
    let found = |line: &str| commands(line).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        found("informer-hub rbac -c a --cluster b | kubectl apply -f -"),
        ["informer-hub rbac -c a --cluster b"]
    );
    assert_eq!(found("$ A=1 ./target/release/informer-hub check -c hub.toml  # fine?").len(), 1);
    assert_eq!(found("informer-hub completions bash > /etc/a && informer-hub man --dir 'b c'").len(), 2);
    assert_eq!(found("kill -HUP \"$(pidof informer-hub)\""), [""; 0]);
    assert_eq!(found("cargo install informer-hub"), [""; 0]);
}

#[test]
fn command_check_refuses_invalid_commands() {
    let refused = |line: &str| refused(&commands(line)[0], false);
    assert_eq!(refused("informer-hub run -c hub.toml"), None);
    assert_eq!(refused("informer-hub dead-letters …"), None);
    assert!(refused("informer-hub run --confg hub.toml").is_some());
    assert!(refused("informer-hub chek -c hub.toml").is_some());
    assert!(refused("informer-hub check").is_some(), "an argument is missing");
}

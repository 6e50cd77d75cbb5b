//! Every command line of the documents is one that the program takes.

use clap::Parser;
use clap::error::ErrorKind;
use informer_hub::cli::Cli;

use crate::pages::{Page, all};

const NAME: &str = "informer-hub";

/// Languages of blocks in which commands are.
const SHELLS: [&str; 4] = ["bash", "console", "sh", "text"];

/// What ends a command, or begins another, in a shell.
const BETWEEN: [&str; 6] = ["|", "||", "&&", ";", "&", ">"];

/// The hub's commands in a line of a shell, as words. A line that no shell can read has none.
fn commands(line: &str) -> Vec<Vec<String>> {
    // A substitution stands for a word.
    let line = line.replace("$ ", "").replace("$(", "(");
    let Some(words) = shlex::split(&line) else { return Vec::new() };
    let starts = |word: &String| word == NAME || word.ends_with(&format!("/{NAME}"));
    let parts = words.split(|word| BETWEEN.contains(&word.as_str()));
    let command = |part: &[String]| {
        let start = part.iter().position(starts)?;
        let is_first =
            part[..start].iter().all(|word| word.contains('=') || ["sudo", "exec", "nice"].contains(&word.as_str()));
        let end = part.iter().position(|word| word.starts_with('>')).unwrap_or(part.len());
        (is_first && start + 1 < end).then(|| part[start..end].to_vec())
    };
    parts.filter_map(command).collect()
}

/// What the program would say against a command. One that is only named may lack its arguments.
fn refused(words: &[String], named: bool) -> Option<String> {
    // What the page leaves out, nobody can check: `dead-letters …`. Of `bash|zsh|fish` one is as good as the others.
    let words = words.iter().take_while(|word| *word != "…").map(|word| word.split('|').next().unwrap_or_default());
    let left_out = |error: &clap::Error| match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::MissingRequiredArgument => named,
        _ => false,
    };
    match Cli::try_parse_from(words) {
        Ok(_) => None,
        Err(error) if !error.use_stderr() || left_out(&error) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// A line with the program's name in it.
struct Line {
    text: String,
    number: usize,
    /// Whether it stands within a sentence.
    named: bool,
}

/// Lines of shells, with their numbers: those of blocks, and spans that begin with the program's name.
fn lines(page: &Page) -> Vec<Line> {
    let mut found = Vec::new();
    for block in page.blocks().iter().filter(|block| SHELLS.contains(&block.language())) {
        // Lines that go on with a backslash are one.
        let text = block.text.replace("\\\n", " ");
        let line =
            |(at, line): (usize, &str)| Line { text: line.to_owned(), number: block.line + 1 + at, named: false };
        found.extend(text.lines().enumerate().map(line));
    }
    // One word alone names the program.
    let spans = page.spans().into_iter().filter(|(span, _)| span.starts_with(&format!("{NAME} ")));
    found.extend(spans.map(|(text, number)| Line { text, number, named: true }));
    found
}

/// A line of a synopsis: the command, and behind it what it does.
fn without_remark(line: &str) -> &str {
    line.split_once("  ").filter(|_| line.starts_with(NAME)).map_or(line, |(command, _)| command)
}

#[test]
fn every_command_is_one_that_the_program_takes() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in all() {
        for Line { text, number, named } in lines(&page) {
            for command in commands(without_remark(&text)) {
                count += 1;
                if let Some(error) = refused(&command, named) {
                    wrong.push(format!("{}:{number}: {}\n{error}", page.path, command.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count} commands");
}

#[test]
fn commands_are_found_in_lines_of_a_shell() {
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
fn a_command_that_is_none_is_refused() {
    let refused = |line: &str| refused(&commands(line)[0], false);
    assert_eq!(refused("informer-hub run -c hub.toml"), None);
    assert_eq!(refused("informer-hub dead-letters …"), None);
    assert!(refused("informer-hub run --confg hub.toml").is_some());
    assert!(refused("informer-hub chek -c hub.toml").is_some());
    assert!(refused("informer-hub check").is_some(), "an argument is missing");
}

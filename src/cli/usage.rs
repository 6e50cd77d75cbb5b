//! Parser of the command line, with a list of all commands in the error for an unknown one.

use std::ffi::OsString;
use std::fmt::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};

use super::print::wrapped;
use super::{Cli, WRONG_INPUT};
use informer_hub_types::nearest_name;

/// Command names that users may expect from other programs, with the commands of this program to suggest instead.
const ELSEWHERE: [(&[&str], &str); 6] = [
    (&["list", "ls", "show", "describe", "top", "ps"], "get, tree, query, status"),
    (&["tail", "logs", "events"], "watch"),
    (&["start", "serve", "server", "daemon"], "run"),
    (&["validate", "lint", "test", "doctor", "verify"], "check"),
    (&["import", "init", "add"], "import-kubeconfig"),
    (&["replay", "purge"], "dead-letters"),
];

/// Width of a message in columns.
const WIDTH: usize = 80;

/// Parses the command line of this process. Ends the process on an error and on a request for help.
#[must_use]
pub fn parse() -> Cli {
    let arguments: Vec<_> = std::env::args_os().collect();
    Cli::try_parse_from(&arguments).unwrap_or_else(|error| match unknown(&error, &arguments) {
        Some(text) => {
            note!("{text}");
            std::process::exit(i32::from(WRONG_INPUT));
        }
        None => error.exit(),
    })
}

/// Returns the message for an unknown command; `None` for other errors.
fn unknown(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let root = Cli::command();
    let (mut command, mut path) = (&root, root.get_name().to_owned());
    for argument in arguments.iter().skip(1).take_while(|argument| *argument != given.as_str()) {
        if let Some(inner) = argument.to_str().and_then(|name| command.find_subcommand(name)) {
            path = format!("{path} {}", inner.get_name());
            command = inner;
        }
    }
    let is_root = command.get_name() == root.get_name();
    let commands: Vec<_> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
    let first = format!("error: unrecognized subcommand '{given}'{}", hint(given, &commands, is_root));
    let mut text = format!("{}\n\nCommands:\n", wrapped(&first, WIDTH, "  "));
    let longest = commands.iter().map(|it| it.get_name().len()).max().unwrap_or_default();
    for command in commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let line = format!("  {:longest$}  {about}", command.get_name());
        let _ = writeln!(text, "{}", wrapped(&line, WIDTH, &" ".repeat(longest + 4)));
    }
    let _ = write!(text, "\nFor more information, try '{path} --help'.");
    Some(text)
}

fn hint(given: &str, commands: &[&Command], is_root: bool) -> String {
    let names = commands.iter().map(|command| command.get_name());
    if let Some(name) = nearest_name(given, names, 3) {
        return format!("; did you mean '{name}'?");
    }
    let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| is_root && theirs.contains(&given));
    elsewhere.map(|(_, ours)| format!("; use instead: {ours}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = ["informer-hub"].iter().chain(arguments).map(Into::into).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("must be refused");
        unknown(&error, &arguments).unwrap_or_else(|| error.to_string())
    }

    #[test]
    fn an_unknown_command_lists_all_commands_and_suggests_the_nearest() {
        let get = message(&["describe", "pods"]);
        assert!(get.starts_with("error: unrecognized subcommand 'describe'; use instead: get, tree, query, status\n"));
        for name in
            Cli::command().get_subcommands().filter(|it| !it.is_hide_set()).map(|it| format!("\n  {} ", it.get_name()))
        {
            assert!(get.contains(&name), "{name} is missing in\n{get}");
        }
        assert!(get.lines().all(|line| line.chars().count() <= WIDTH), "{get}");
        assert!(message(&["statsu"]).starts_with("error: unrecognized subcommand 'statsu'; did you mean 'status'?\n"));
        let inner = message(&["dead-letters", "-o", "json", "lst"]);
        assert!(inner.contains("'lst'; did you mean 'list'?") && inner.contains("\n  purge  "), "{inner}");
        assert!(inner.ends_with("try 'informer-hub dead-letters --help'."), "{inner}");
        let unlike = message(&["xyzzy"]);
        assert!(unlike.lines().next().is_some_and(|first| !first.contains(';')), "no command is similar: {unlike}");
        assert!(
            message(&["status", "--colour"]).contains("unexpected argument '--colour'"),
            "clap has its own message"
        );
    }
}

//! `informer-hub completions` and `informer-hub man`: completion scripts and manual pages, generated from the
//! arguments.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args as ClapArgs, CommandFactory, ValueEnum};
use clap_complete::Shell as CompleteShell;

use super::Cli;
use super::print::out;

const PROGRAM: &str = "informer-hub";

/// Arguments of `completions`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub completions bash > /etc/bash_completion.d/informer-hub\n  informer-hub \
    completions zsh > \"${fpath[1]}/_informer-hub\"\n  informer-hub completions fish > \
    ~/.config/fish/completions/informer-hub.fish"
)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `man`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub man | man -l -\n  informer-hub man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(args: &Completions) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        Shell::Bash => CompleteShell::Bash,
        Shell::Zsh => CompleteShell::Zsh,
        Shell::Fish => CompleteShell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    out(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(args: &Man) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let written = clap_mangen::generate_to(Cli::command(), dir);
        written.with_context(|| format!("cannot write to {}", dir.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).context("cannot render the manual page")?;
    out(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        fn examine(command: &clap::Command, path: &str, lacking: &mut Vec<String>) {
            let inner: Vec<_> = command.get_subcommands().filter(|it| it.get_name() != "help").collect();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if inner.is_empty() && !help.contains("Example") {
                lacking.push(path.to_owned());
            }
            for command in inner {
                examine(command, &format!("{path} {}", command.get_name()), lacking);
            }
        }
        let mut lacking = Vec::new();
        examine(&Cli::command(), PROGRAM, &mut lacking);
        // Subcommands share the examples of their parent command.
        lacking.retain(|path| !path.contains(" dead-letters ") && !path.contains(" state "));
        assert!(lacking.is_empty(), "{lacking:?}");
    }
}

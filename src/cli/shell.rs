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
    let script = String::from_utf8_lossy(&script).into_owned();
    out(&with_hub(args.shell, script))?;
    Ok(ExitCode::SUCCESS)
}

/// Extends a completion script, so that it asks the running hub for candidates. If the hub does not answer, the script
/// uses its static candidates.
fn with_hub(shell: Shell, script: String) -> String {
    match shell {
        // For a program name with a hyphen, clap_complete 4.6 sets one command name but matches another.
        Shell::Bash => script.replace("informer__subcmd__hub", "informer__hub") + BASH,
        Shell::Zsh => {
            // zsh autoloads the file as a function of the file's name, so the outer function must have this name.
            let script = script.replacen("\n_informer-hub() {", "\n_informer-hub-static() {", 1);
            let at = script.rfind("\nif [ \"$funcstack[1]\"").unwrap_or(script.len());
            format!("{}{ZSH}{}", &script[..at], &script[at..])
        }
        Shell::Fish => script + FISH,
    }
}

/// Bash function that asks `informer-hub complete` for candidates first, except for options.
const BASH: &str = r#"
_informer_hub_of_hub() {
    local word="${COMP_WORDS[COMP_CWORD]}" IFS=$'\n' found
    [[ "$word" == -* ]] && return 1
    found=($("$1" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)) || return 1
    [[ ${#found[@]} -gt 0 ]] || return 1
    # bash splits words at the equals sign, and completes the part behind it.
    [[ "$word" == "=" || "${COMP_WORDS[COMP_CWORD - 1]}" == "=" ]] && found=("${found[@]##*=}")
    COMPREPLY=("${found[@]}")
}

_informer_hub_all() {
    _informer_hub_of_hub "$@" || _informer__hub "$@"
}

complete -F _informer_hub_all -o bashdefault -o default informer-hub
"#;

/// Zsh function that asks `informer-hub complete` for candidates first, except for options.
const ZSH: &str = r#"
_informer-hub() {
    local -a found
    if [[ "$words[CURRENT]" != -* ]]; then
        found=(${(f)"$("$words[1]" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)"})
        if (( $#found )); then
            compadd -- $found
            return
        fi
    fi
    _informer-hub-static "$@"
}
"#;

/// Fish function that asks `informer-hub complete` for candidates for arguments, and for options whose values are
/// names.
const FISH: &str = r#"
function __fish_informer_hub_of_hub
    set -l words (commandline -opc)
    informer-hub complete -- $words[2..] (commandline -ct) 2>/dev/null </dev/null
end
complete -c informer-hub -n "__fish_seen_subcommand_from get query watch tree clusters resources sinks" -f -a "(__fish_informer_hub_of_hub)"
for option in "n namespace" "o output" "r resource"
    set -l names (string split " " $option)
    complete -c informer-hub -n "__fish_seen_subcommand_from get query watch tree status clusters resources" -s $names[1] -l $names[2] -x -a "(__fish_informer_hub_of_hub)"
end
for option in clusters cluster
    complete -c informer-hub -n "__fish_seen_subcommand_from get query watch tree status clusters resources" -l $option -x -a "(__fish_informer_hub_of_hub)"
end
"#;

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

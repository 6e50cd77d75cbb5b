//! `informer-hub config`: configuration in force, JSON Schema and key reference.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::WRONG_INPUT;
use super::print::{out, yaml};
use informer_hub_config::{reference, schema, settings, settings_as_toml};
use informer_hub_types::printable_lines;

/// Arguments of `config`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show every value in force with its origin: file, environment or default. Secrets are hidden
    Show(Show),
    /// Print the JSON Schema of a configuration file, for editors
    #[command(
        after_help = "Example:\n  informer-hub config schema > hub.schema.json\n\nEditors with taplo use it if this is \
            the first line of hub.toml:\n  #:schema ./hub.schema.json"
    )]
    Schema,
    /// Print the reference of all keys as Markdown
    #[command(after_help = "Example:\n  informer-hub config reference > docs/configuration.md")]
    Reference,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub config show -c hub.toml\n  informer-hub config show -c hub.toml -o \
    json | jq '.[] | select(.origin != \"default\")'\n\nExit codes: 0 shown, 2 the configuration has mistakes.")]
struct Show {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// An equivalent configuration file, with the origins as comments
    #[default]
    Toml,
    /// A list of keys, values and origins in JSON
    Json,
    /// The same list in YAML
    Yaml,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let show = match &args.command {
        Command::Schema => {
            out(&(serde_json::to_string_pretty(&schema())? + "\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Reference => {
            out(&reference())?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Show(show) => show,
    };
    let settings = match settings(&show.config) {
        Ok(settings) => settings,
        Err(mistakes) => {
            note!("{}", printable_lines(&mistakes.to_string(), false));
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    out(&match show.output {
        Format::Toml => settings_as_toml(&settings),
        Format::Json => serde_json::to_string_pretty(&settings)? + "\n",
        Format::Yaml => yaml(&settings)?,
    })?;
    Ok(ExitCode::SUCCESS)
}

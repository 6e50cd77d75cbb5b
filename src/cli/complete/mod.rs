//! `informer-hub complete`: candidates for the completion of a shell, from the running hub.
//!
//! Hidden from the help: only the scripts of `completions` call it. It prints no errors. If the hub does not answer in
//! time, it prints no candidates, and the script uses its static ones.

mod candidates;
mod completed_word;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, CommandFactory};

use self::candidates::candidates;
use self::completed_word::CompletedWord;
use super::Cli;
use super::print::out;
use super::{block_on, runtime};

/// Deadline for the hub's answer. The shell waits for it.
const DEADLINE: Duration = Duration::from_millis(800);
/// Maximum number of candidates.
const MOST: usize = 200;

/// Arguments of `complete`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub complete -- get pods -n ''")]
pub(super) struct Args {
    /// The words behind the name of the program, up to the one that is completed
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let Some((current, before)) = args.words.split_last() else { return Ok(ExitCode::SUCCESS) };
    let Some(completed) = CompletedWord::of(Cli::command(), before, current) else { return Ok(ExitCode::SUCCESS) };
    let asked = async { tokio::time::timeout(DEADLINE, candidates(&completed)).await };
    let runtime = runtime()?;
    let found = block_on(&runtime, asked).ok().and_then(Result::ok).unwrap_or_default();
    runtime.shutdown_background();
    let mut found: Vec<String> = found.into_iter().map(|name| completed.prefix.clone() + &name).collect();
    // Names with other characters would need the quoting of the shell.
    found.retain(|name| name.starts_with(&*completed.word) && name.chars().all(is_plain));
    found.sort();
    found.dedup();
    found.truncate(MOST);
    out(&found.into_iter().map(|name| name + "\n").collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._:/=,@%+-".contains(c)
}

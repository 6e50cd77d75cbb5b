//! The command line: one file per subcommand.
//!
//! # Exit codes
//! 0: done; `run`: ended by a signal, with no events left in any sink. 1: it failed; `run`: or events were undelivered
//! at `hub.shutdown_deadline` and are lost; `demo`: or what arrived differs from the truth; `state verify`: or
//! something is damaged or lost. 2: the configuration or the command line is wrong; nothing was started. `check` has
//! codes of its own: 1 for warnings, 2 for errors. 130 and 143 (128 and the signal's number): `run` was ended at once
//! by a second SIGINT or SIGTERM. A command whose output has no reader any more (`| head`) ends with 0.
//! docs/command-line.md has all of it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use informer_hub_config::{ClusterConfig, ConfigErrors};
use informer_hub_source::end_plugins;
use informer_hub_types::printable_lines;

mod check;
mod client;
mod config;
mod dead_letters;
mod demo;
mod fit;
#[cfg(test)]
mod foreign_tests;
mod import;
mod print;
mod quote;
mod rbac;
mod run;
mod shell;
mod state;
mod status;
mod usage;

pub use self::usage::parse;

/// Watches many Kubernetes clusters so that nothing else has to.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "Exit codes: 0 done, 1 failed (run: or events lost at shutdown), 2 wrong configuration or command \
    line, 130/143 ended by a second signal."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the clusters of a configuration file and deliver what changes
    Run(run::Args),
    /// Show what a running hub is doing, and what is in trouble
    Status(status::StatusArgs),
    /// Show the clusters of a running hub, those in trouble first
    Clusters(status::ClustersArgs),
    /// Show what a running hub watches in each cluster, what is in trouble first
    Resources(status::ResourcesArgs),
    /// Show the sinks of a running hub, those in trouble first
    Sinks(status::SinksArgs),
    /// Say whether a configuration will work: connections, credentials, rights, resources, memory
    Check(check::Args),
    /// Print the least rights (RBAC) that serve a configuration, to apply to its clusters
    Rbac(rbac::Args),
    /// Print a configuration of the contexts of a kubeconfig
    ImportKubeconfig(import::Args),
    /// Show the configuration that is in force, or the schema of its file
    Config(config::Args),
    /// Print what makes a shell complete this program's commands
    Completions(shell::Completions),
    /// Print the manual page, or write those of all commands
    Man(shell::Man),
    /// List, show, replay or purge what sinks of a running hub have given up
    DeadLetters(dead_letters::Args),
    /// Show it at work on simulated clusters; needs no Kubernetes
    Demo(demo::Args),
    /// Look at what a hub keeps over restarts
    State(state::Args),
}

/// Does what the command line says.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Status(args) => status::status(args),
        Command::Clusters(args) => status::clusters(args),
        Command::Resources(args) => status::resources(args),
        Command::Sinks(args) => status::sinks(args),
        Command::Check(args) => check::main(&args),
        Command::Rbac(args) => rbac::main(&args),
        Command::ImportKubeconfig(args) => import::main(&args),
        Command::Config(args) => config::main(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::DeadLetters(args) => dead_letters::main(&args),
        Command::Demo(args) => demo::main(args),
        Command::State(args) => state::main(&args),
    };
    // Credential plugins may run still, with nobody to wait for them.
    end_plugins();
    done.unwrap_or_else(|error| {
        if error.is::<print::ReaderGone>() {
            return ExitCode::SUCCESS;
        }
        if let Some(mistakes) = error.downcast_ref::<ConfigErrors>() {
            eprintln!("{}", printable_lines(&mistakes.to_string(), false));
            return ExitCode::from(WRONG_INPUT);
        }
        print::complain(&error);
        ExitCode::FAILURE
    })
}

/// The exit code for a configuration or command line that is wrong.
const WRONG_INPUT: u8 = 2;

/// The exit code for an end by a signal, to which its number is added: what shells show for it.
const SIGNALLED: i32 = 128;

/// A runtime for the command itself; the hub brings its own threads.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context;
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("cannot start a runtime")
}

/// Waits for what a command does, unless a signal ends the process first. Credential plugins have process groups of
/// their own, which a terminal's Ctrl-C does not reach: they are killed before.
fn interruptible<T>(runtime: &tokio::runtime::Runtime, work: impl Future<Output = T>) -> T {
    use tokio::signal::unix::{SignalKind, signal};
    runtime.block_on(async {
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return work.await };
        let signal = tokio::select! {
            done = work => return done,
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
        };
        end_plugins();
        std::process::exit(SIGNALLED + signal.as_raw_value())
    })
}

/// The clusters that somebody asks for by name, or all of them.
fn chosen<'c>(clusters: &'c [ClusterConfig], names: &[String]) -> anyhow::Result<Vec<&'c ClusterConfig>> {
    if let Some(unknown) = names.iter().find(|name| !clusters.iter().any(|it| it.name.as_str() == name.as_str())) {
        let known: Vec<_> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        anyhow::bail!("there is no cluster {unknown:?}; there is {}", known.join(", "));
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(clusters.iter().filter(|cluster| wanted(cluster.name.as_str())).collect())
}

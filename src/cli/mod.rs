//! Command line of `informer-hub`: one file or folder for each subcommand.
//!
//! # Exit codes
//!
//! - 0: done. `run`: ended by a signal, and no undelivered event is lost.
//! - 1: failed. `run`: undelivered events were lost at `hub.shutdown_deadline`. `demo`: the copies differ. `state
//!   verify`: damage or loss. `check`: warnings.
//! - 2: wrong configuration or command line, nothing was started. `check`: errors.
//! - 130, 143 (128 and the signal number): SIGINT or SIGTERM ended the command. `run` and `agent` end so at a second
//!   signal, without waiting for their shutdown.
//!
//! A command whose output has no reader any more (`| head`) ends with 0. Details: docs/command-line.md.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use informer_hub_apiclient::DEEP_STACK;

use informer_hub_config::{ClusterConfig, ConfigErrors};
use informer_hub_source::end_plugins;
use informer_hub_types::printable_lines;

/// Prints a line to standard error, as `eprintln!` does, but does not panic if standard error is closed or full.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::cli::print::note(format_args!($($text)*))
    };
}

mod agent;
mod check;
mod client;
mod complete;
mod config;
mod dead_letters;
mod demo;
mod fit;
mod fleet;
#[cfg(test)]
mod foreign_tests;
mod get;
mod import;
mod kubeconfig;
mod objects;
mod print;
mod query;
mod quote;
mod rbac;
mod reviews;
mod run;
mod shell;
mod state;
mod status;
mod tree;
mod usage;
mod watch;

pub use self::usage::parse;

/// Arguments of the program.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "Exit codes: 0 done, 1 failed (run: also events lost at shutdown), 2 wrong configuration or command \
        line, 130/143 ended by a signal (run and agent: by a second one)."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the clusters of a configuration file and deliver their changes
    Run(run::Args),
    /// Watch the cluster of this pod for a fleet, with no connection but the one to NATS
    Agent(agent::Args),
    /// Show the state of a running hub and its problems
    Status(status::StatusArgs),
    /// Show the clusters of a running hub, those with problems first
    Clusters(status::ClustersArgs),
    /// Show the resources that a running hub watches in each cluster, those with problems first
    Resources(status::ResourcesArgs),
    /// Show the sinks of a running hub, those with problems first
    Sinks(status::SinksArgs),
    /// List objects of all clusters, as kubectl get does
    Get(get::Args),
    /// Print every change in all clusters as it happens, and what has changed
    Watch(watch::Args),
    /// Show the owners and the children of an object as a tree
    Tree(tree::Args),
    /// Query the objects of one resource in all clusters of a running hub
    Query(query::Args),
    /// Print a kubeconfig for the clusters of a running hub, for kubectl and other clients
    Kubeconfig(kubeconfig::Args),
    /// Check whether a configuration will work: connections, credentials, rights, resources, memory
    Check(check::Args),
    /// Print the least RBAC rights that a configuration needs, to apply to its clusters
    Rbac(rbac::Args),
    /// Print a configuration made from the contexts of a kubeconfig
    ImportKubeconfig(import::Args),
    /// Show the configuration in force, or the schema of its file
    Config(config::Args),
    /// Print the completion script for a shell
    Completions(shell::Completions),
    /// Print candidates for the word that a shell completes
    #[command(hide = true)]
    Complete(complete::Args),
    /// Print the manual page, or write the pages of all commands
    Man(shell::Man),
    /// List, show, replay or purge the dead letters of the sinks of a running hub
    DeadLetters(dead_letters::Args),
    /// Show the collectors and deliverers of a fleet, move clusters between collectors, or drain one
    Fleet(fleet::Args),
    /// Run the hub on simulated clusters; needs no Kubernetes
    Demo(demo::Args),
    /// Inspect, verify or prune the state directory of a hub
    State(state::Args),
}

/// Runs the command. Prints errors to standard error and returns the exit code.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Agent(args) => agent::main(&args),
        Command::Status(args) => status::status(args),
        Command::Clusters(args) => status::clusters(args),
        Command::Resources(args) => status::resources(args),
        Command::Sinks(args) => status::sinks(args),
        Command::Get(args) => on_deep_stack(|| get::main(&args)),
        Command::Watch(args) => on_deep_stack(|| watch::main(&args)),
        Command::Tree(args) => tree::main(&args),
        Command::Query(args) => on_deep_stack(|| query::main(&args)),
        Command::Kubeconfig(args) => kubeconfig::main(&args),
        Command::Check(args) => check::main(&args),
        Command::Rbac(args) => rbac::main(&args),
        Command::ImportKubeconfig(args) => import::main(&args),
        Command::Config(args) => config::main(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Complete(args) => complete::main(&args),
        Command::Man(args) => shell::man(&args),
        Command::DeadLetters(args) => dead_letters::main(&args),
        Command::Fleet(args) => fleet::main(&args),
        Command::Demo(args) => demo::main(args),
        Command::State(args) => state::main(&args),
    };
    // Credential plugins may still run, although nothing waits for them.
    end_plugins();
    done.unwrap_or_else(|error| {
        if error.is::<print::ReaderGone>() {
            return ExitCode::SUCCESS;
        }
        if let Some(mistakes) = error.downcast_ref::<ConfigErrors>() {
            note!("{}", printable_lines(&mistakes.to_string(), false));
            return ExitCode::from(WRONG_INPUT);
        }
        print::print_error(&error);
        if is_misuse(&error) { ExitCode::from(WRONG_INPUT) } else { ExitCode::FAILURE }
    })
}

/// Returns whether the command line is wrong, either found by this program or reported by the hub.
fn is_misuse(error: &anyhow::Error) -> bool {
    let is_rejected = |refused: &client::Refused| client::is_rejected(refused.refusal.code);
    error.is::<Misuse>() || error.downcast_ref().is_some_and(is_rejected)
}

/// Error of a command line that is wrong although clap accepts it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misuse(String);

impl Misuse {
    fn error(text: impl Into<String>) -> anyhow::Error {
        Self(text.into()).into()
    }
}

/// Exit code for a wrong configuration or command line.
const WRONG_INPUT: u8 = 2;

/// Base of the exit code for an end by a signal, as in shells; the signal number is added.
const SIGNALLED: i32 = 128;

/// Runs a command on a thread with a large stack, for objects that are deeply nested.
fn on_deep_stack(command: impl FnOnce() -> anyhow::Result<ExitCode> + Send) -> anyhow::Result<ExitCode> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(DEEP_STACK).spawn_scoped(scope, command);
        let thread = thread.context("cannot start a thread")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Creates the runtime of the command itself; the hub has its own threads.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("cannot start threads")
}

/// Runs `work` on a runtime. Boxes it, because tokio's `block_on` would compile the code of the future three times.
fn block_on<T>(runtime: &tokio::runtime::Runtime, work: impl Future<Output = T>) -> T {
    let work: std::pin::Pin<Box<dyn Future<Output = T> + '_>> = Box::pin(work);
    runtime.block_on(work)
}

/// Waits for `work`, unless a signal ends the process first. Kills credential plugins on a signal: Ctrl-C of a terminal
/// does not reach their process groups.
fn interruptible<T>(runtime: &tokio::runtime::Runtime, work: impl Future<Output = T>) -> T {
    use tokio::signal::unix::{SignalKind, signal};
    block_on(runtime, async {
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

/// Returns the clusters with these names, or all clusters if `names` is empty.
fn chosen<'c>(clusters: &'c [ClusterConfig], names: &[String]) -> anyhow::Result<Vec<&'c ClusterConfig>> {
    if let Some(unknown) = names.iter().find(|name| !clusters.iter().any(|it| it.name.as_str() == name.as_str())) {
        let known: Vec<_> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        anyhow::bail!("there is no cluster {unknown:?}; known: {}", known.join(", "));
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    Ok(clusters.iter().filter(|cluster| is_chosen(cluster.name.as_str())).collect())
}

//! `informer-hub state`: what is in a state directory.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use comfy_table::{Cell, Table};

use super::print::{Format, answer, number, say, table};
use crate::state::caches::CacheReport;
use crate::state::fleet::SourcedCluster;
use crate::state::{self, Access, ReaderReport, StateDir, StateReport};
use informer_hub_disk::RealDisk;
use informer_hub_journal::inspect::JournalReport;

/// Arguments of `state`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the caches have, what each sink and durable subscriber still has to be told, and which clusters sources
    /// have brought
    Inspect(Where),
    /// Check every checksum and every body; fails where something is damaged or lost
    Verify(Where),
    /// Remove all that is kept for sinks or durable subscribers that are there no more; undelivered events with it
    Prune(Prune),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub state prune --dir /var/lib/informer-hub old-audit\n\n\
    No hub may be using the directory.")]
struct Prune {
    /// The state directory (hub.state_dir)
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Their names, as `state inspect` shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub state inspect --dir /var/lib/informer-hub -o json\n\n\
    It changes nothing. While a hub uses the directory, what is seen may be half of something.")]
struct Where {
    /// The state directory (hub.state_dir)
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (place, verify) = match &args.command {
        Command::Inspect(place) => (place, false),
        Command::Verify(place) => (place, true),
        Command::Prune(which) => return prune(which),
    };
    let (dir, access) = StateDir::look(Arc::new(RealDisk), &place.dir)?;
    let report = state::inspect(&dir, access, verify)?;
    answer(place.output, &report, || text(&report))?;
    if let Access::InUse(pid) = access {
        let holder = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        eprintln!("a hub uses this directory{holder}: what is seen may be half of something");
    }
    Ok(if !verify || report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All names are checked before anything is removed.
fn prune(which: &Prune) -> anyhow::Result<ExitCode> {
    // Looked at first: what is taken is made where there is none.
    drop(StateDir::look(Arc::new(RealDisk), &which.dir)?);
    let dir = StateDir::open(Arc::new(RealDisk), &which.dir)?;
    let there = dir.readers()?;
    if let Some(unknown) = which.names.iter().find(|name| !there.contains(name)) {
        anyhow::bail!("{unknown:?} is not in {}; there are: {}", which.dir.display(), there.join(", "));
    }
    for name in &which.names {
        dir.remove_reader(name)?;
        say(format_args!("{name}: removed"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &StateReport) -> String {
    let fleet = report.fleet.as_ref().map(|fleet| format!("\n{}\n", clusters(&fleet.clusters)));
    let (caches, readers) = (caches(&report.caches), readers(&report.readers));
    let mut out = format!("{caches}\n\n{readers}\n{}", fleet.unwrap_or_default());
    // Writing to a string does not fail.
    let mut line = |place: &str, what: &str| _ = writeln!(out, "{place}: {what}");
    for cache in &report.caches {
        cache.damage.iter().for_each(|damage| line(&cache.directory, damage));
    }
    for reader in &report.readers {
        for place in reader.journal.damaged.iter().chain(&reader.dead_letters.damaged) {
            let range = format!("{} is damaged from byte {} to {}", place.file, place.from, place.to);
            line(&reader.name, &range);
        }
        reader.error.iter().for_each(|error| line(&reader.name, error));
    }
    report.names_damage.iter().for_each(|damage| line("names.json", damage));
    if let Some(fleet) = &report.fleet {
        fleet.damage.iter().for_each(|damage| line(&fleet.file, damage));
    }
    out
}

fn caches(reports: &[CacheReport]) -> Table {
    let mut table = table(&["CACHE", "CLUSTER", "SCOPE", "OBJECTS", "VERSION", "SYNCED", "ALIVE", "BYTES", "DAMAGED"]);
    for cache in reports {
        for it in &cache.partitions {
            table.add_row(vec![
                Cell::new(&cache.directory),
                Cell::new(&it.cluster),
                Cell::new(&it.scope),
                number(it.objects as u64),
                Cell::new(it.resource_version.as_deref().unwrap_or("")),
                Cell::new(it.synced),
                Cell::new(it.alive.map_or_else(String::new, |alive| alive.to_string())),
            ]);
        }
        let mut all: Vec<_> = [cache.directory.as_str(), "all"].iter().map(Cell::new).collect();
        all.extend([Cell::new(""), number(cache.partitions.iter().map(|it| it.objects as u64).sum::<u64>())]);
        all.extend(["", "", ""].iter().map(Cell::new));
        all.extend([number(cache.snapshot_bytes + cache.deltas_bytes), number(cache.damage.len() as u64)]);
        table.add_row(all);
    }
    table
}

fn clusters(brought: &[SourcedCluster]) -> Table {
    let mut table = table(&["CLUSTER", "LABELS", "SOURCE", "FOUND IN"]);
    for it in brought {
        let labels: Vec<_> = it.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.add_row([it.name.as_str(), &labels.join(","), &it.source, &it.object]);
    }
    table
}

fn readers(reports: &[ReaderReport]) -> Table {
    let mut table = table(&["READER", "LOG", "FILE", "RECORDS", "PENDING", "BYTES", "LOST", "DAMAGED"]);
    for reader in reports {
        for (log, found) in [("journal", &reader.journal), ("dead letters", &reader.dead_letters)] {
            for file in &found.files {
                let numbers = [file.records, file.pending, file.bytes];
                table.add_row(row(&reader.name, log, &file.file, numbers, None, file.damaged_bytes));
            }
            let numbers = [found.records, found.pending, found.bytes];
            table.add_row(row(&reader.name, log, "all", numbers, Some(found.lost), damaged(found)));
        }
    }
    table
}

fn damaged(report: &JournalReport) -> u64 {
    report.damaged.iter().map(|place| place.to - place.from).sum()
}

fn row(reader: &str, log: &str, file: &str, numbers: [u64; 3], lost: Option<u64>, damaged: u64) -> Vec<Cell> {
    let mut cells = vec![Cell::new(reader), Cell::new(log), Cell::new(file)];
    cells.extend(numbers.map(number));
    cells.push(lost.map_or_else(|| Cell::new(""), number));
    cells.push(number(damaged));
    cells
}

//! `informer-hub state`: inspects, verifies and prunes a state directory.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use comfy_table::{Cell, Table};

use super::print::{Format, answer, number, say, table};
use crate::state::caches::CacheReport;
use crate::state::sourced_clusters::SourcedCluster;
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
    /// Show the caches, the undelivered events of each sink and durable subscriber, and the clusters of sources
    Inspect(Inspection),
    /// Check every checksum and every body; fails if there is damage or loss
    Verify(Inspection),
    /// Delete the data of sinks or durable subscribers that are no longer configured, undelivered events included
    Prune(Prune),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub state prune --dir /var/lib/informer-hub old-audit\n\n\
    No hub may use the directory.")]
struct Prune {
    /// The state directory (hub.state_dir)
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Names as shown by `state inspect`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub state inspect --dir /var/lib/informer-hub -o json\n\n\
    It changes nothing. While a hub uses the directory, the output may show an incomplete write.")]
struct Inspection {
    /// The state directory (hub.state_dir)
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (inspection, verify) = match &args.command {
        Command::Inspect(inspection) => (inspection, false),
        Command::Verify(inspection) => (inspection, true),
        Command::Prune(args) => return prune(args),
    };
    let (dir, access) = StateDir::look(Arc::new(RealDisk), &inspection.dir)?;
    let report = state::inspect(&dir, access, verify)?;
    answer(inspection.output, &report, || text(&report) + if verify { verdict(&report) } else { "" })?;
    match access {
        Access::Idle => {}
        Access::InUse(pid) => {
            let holder = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
            note!("a hub uses this directory{holder}: the output may show an incomplete write");
        }
        Access::ReadOnly => {
            note!("the directory is read-only: if a hub uses it, the output may show an incomplete write");
        }
    }
    Ok(if !verify || report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Deletes the data of sinks and durable subscribers. Deletes nothing if a name is unknown.
fn prune(args: &Prune) -> anyhow::Result<ExitCode> {
    // `open` would create a missing directory, `look` fails on it.
    drop(StateDir::look(Arc::new(RealDisk), &args.dir)?);
    let dir = StateDir::open(Arc::new(RealDisk), &args.dir)?;
    let readers = dir.readers()?;
    if let Some(unknown) = args.names.iter().find(|name| !readers.contains(name)) {
        anyhow::bail!("{unknown:?} is not in {}; known: {}", args.dir.display(), readers.join(", "));
    }
    for name in &args.names {
        dir.remove_reader(name)?;
        say(format_args!("{name}: removed"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verdict(report: &StateReport) -> &'static str {
    if report.is_sound() { "\nnothing is damaged or lost\n" } else { "\nparts are damaged or lost: see above\n" }
}

fn text(report: &StateReport) -> String {
    let fleet = report.fleet.as_ref().map(|fleet| format!("\n{}\n", clusters(&fleet.clusters)));
    let (caches, readers) = (caches(&report.caches), readers(&report.readers));
    let mut out = format!("{caches}\n\n{readers}\n{}", fleet.unwrap_or_default());
    // Writing to a string does not fail.
    let mut line = |place: &str, problem: &str| _ = writeln!(out, "{place}: {problem}");
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

fn clusters(sourced: &[SourcedCluster]) -> Table {
    let mut table = table(&["CLUSTER", "LABELS", "SOURCE", "FOUND IN"]);
    for it in sourced {
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

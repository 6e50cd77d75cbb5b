//! `informer-hub state`: what is in a state directory.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::disk::RealDisk;
use crate::journal::inspect::JournalReport;
use crate::state::{self, Access, StateDir, StateReport};

/// Arguments of `state`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what each sink and durable subscriber still has to be told
    Inspect(Where),
    /// Check every checksum; fails where something is damaged or lost
    Verify(Where),
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
    output: Output,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (Command::Inspect(place) | Command::Verify(place)) = &args.command;
    let (dir, access) = StateDir::look(Arc::new(RealDisk), &place.dir)?;
    let report = state::inspect(&dir, access)?;
    match place.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Table => print(&report),
    }
    if let Access::InUse(pid) = access {
        let holder = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        eprintln!("a hub uses this directory{holder}: what is seen may be half of something");
    }
    let sound = report.is_sound() || matches!(args.command, Command::Inspect(_));
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &StateReport) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(if std::io::stdout().is_terminal() {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    table.set_header(["READER", "LOG", "FILE", "RECORDS", "PENDING", "BYTES", "LOST", "DAMAGED"]);
    for reader in &report.readers {
        for (log, found) in [("journal", &reader.journal), ("dead letters", &reader.dead_letters)] {
            for file in &found.files {
                let numbers = [file.records, file.pending, file.bytes];
                table.add_row(row(&reader.name, log, &file.file, numbers, None, file.damaged_bytes));
            }
            if found.files.len() != 1 || found.lost > 0 {
                let numbers = [found.records, found.pending, found.bytes];
                table.add_row(row(&reader.name, log, "all", numbers, Some(found.lost), damaged(found)));
            }
        }
    }
    println!("{table}");
    for reader in &report.readers {
        let places = reader.journal.damaged.iter().chain(&reader.dead_letters.damaged);
        for place in places {
            println!("{}: {} is damaged from byte {} to {}", reader.name, place.file, place.from, place.to);
        }
        if let Some(error) = &reader.error {
            println!("{}: {error}", reader.name);
        }
    }
}

fn damaged(report: &JournalReport) -> u64 {
    report.damaged.iter().map(|place| place.to - place.from).sum()
}

fn row(reader: &str, log: &str, file: &str, numbers: [u64; 3], lost: Option<u64>, damaged: u64) -> Vec<Cell> {
    let number = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
    let mut cells = vec![Cell::new(reader), Cell::new(log), Cell::new(file)];
    cells.extend(numbers.map(number));
    cells.push(lost.map_or_else(|| Cell::new(""), number));
    cells.push(number(damaged));
    cells
}

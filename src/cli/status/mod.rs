//! `informer-hub status`, `clusters`, `resources` and `sinks`: what a running hub is doing, once or again and again.

mod rows;
mod select;
mod watch;
mod why;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args as ClapArgs, ValueEnum};
use comfy_table::Color;
use serde_json::Value;

use self::rows::{Row, Shape};
use self::select::Selection;
use super::client::HubArgs;
use super::fit::{self, Fitted};
use super::print::{colours, json, out, say, show, width, wrapped, yaml};
use super::runtime;
use informer_hub_config::HumanDuration;
use informer_hub_types::{clock, printable};

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Everything, added up, and what is in trouble.
    Status,
    /// Clusters.
    Clusters,
    /// Informers: the resources of each cluster.
    Resources,
    /// Sinks.
    Sinks,
}

/// How it is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    #[default]
    Table,
    /// One document, for programs; with --watch one a line
    Json,
    /// The same
    Yaml,
    /// Kind and name, a line each: cluster/prod-eu
    Name,
}

/// How it is looked at.
#[derive(Debug, ClapArgs)]
struct View {
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    /// Again and again: in place on a terminal, else a line for each change
    #[arg(short, long)]
    watch: bool,
    /// How often, with --watch
    #[arg(long, default_value = "2s", value_name = "DURATION")]
    interval: HumanDuration,
    #[command(flatten)]
    hub: HubArgs,
}

/// Arguments of `status`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub status --watch\n  informer-hub status --cluster prod-eu -o json\n  \
    informer-hub status --url https://hub.example.com:7080 --token-file hub-token --ca-file hub-ca.pem\n\n\
    What is wrong comes first. The exit code is 0 when there was an answer, whatever it says.")]
pub(super) struct StatusArgs {
    /// Only these clusters
    #[arg(long, value_name = "NAME")]
    cluster: Vec<String>,
    /// Only these resources, e.g. pods or deployments.apps
    #[arg(long, value_name = "NAME")]
    resource: Vec<String>,
    #[command(flatten)]
    view: View,
}

/// Arguments of `clusters`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub clusters\n  informer-hub clusters prod-eu prod-us --watch\n  \
    informer-hub clusters --resource nodes -o name")]
pub(super) struct ClustersArgs {
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only those in which one of these is watched
    #[arg(long, value_name = "NAME")]
    resource: Vec<String>,
    #[command(flatten)]
    view: View,
}

/// Arguments of `resources`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub resources\n  informer-hub resources pods --cluster prod-eu\n  \
    informer-hub resources --watch")]
pub(super) struct ResourcesArgs {
    /// Only these, e.g. pods or deployments.apps
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only in these clusters
    #[arg(long, value_name = "NAME")]
    cluster: Vec<String>,
    #[command(flatten)]
    view: View,
}

/// Arguments of `sinks`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub sinks\n  informer-hub sinks audit --watch --interval 500ms")]
pub(super) struct SinksArgs {
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    view: View,
}

pub(super) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let StatusArgs { cluster: clusters, resource: resources, view } = args;
    look(Subject::Status, &Selection { clusters, resources, sinks: Vec::new() }, &view)
}

pub(super) fn clusters(args: ClustersArgs) -> anyhow::Result<ExitCode> {
    let ClustersArgs { names: clusters, resource: resources, view } = args;
    look(Subject::Clusters, &Selection { clusters, resources, sinks: Vec::new() }, &view)
}

pub(super) fn resources(args: ResourcesArgs) -> anyhow::Result<ExitCode> {
    let ResourcesArgs { names: resources, cluster: clusters, view } = args;
    look(Subject::Resources, &Selection { clusters, resources, sinks: Vec::new() }, &view)
}

pub(super) fn sinks(args: SinksArgs) -> anyhow::Result<ExitCode> {
    let SinksArgs { names: sinks, view } = args;
    look(Subject::Sinks, &Selection { sinks, ..Selection::default() }, &view)
}

fn look(subject: Subject, selection: &Selection, view: &View) -> anyhow::Result<ExitCode> {
    if view.watch && view.output == Form::Name {
        bail!("names do not change: --watch goes with -o table, json or yaml");
    }
    if view.interval.0 < Duration::from_millis(100) {
        bail!("--interval {} is too short: 100ms at least", view.interval);
    }
    let client = view.hub.client()?;
    let (runtime, selection) = (runtime()?, &selection.bare());
    if view.watch {
        runtime.block_on(watch::watch(&client, subject, selection, view))?;
    } else {
        let status = runtime.block_on(client.get(&["v1", "status"], &[]))?;
        print(subject, &selection.of(&status)?, view.output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(subject: Subject, status: &Value, form: Form) -> anyhow::Result<()> {
    match form {
        Form::Table => show(&page(subject, status, width(), colours())),
        Form::Json => say(json(&select::document(subject, status))?),
        Form::Yaml => out(&yaml(&select::document(subject, status))?),
        Form::Name => select::names(subject, status).into_iter().try_for_each(|name| say(printable(&name))),
    }
}

/// A line for each row whose state is another than before; at first one in any case, so that silence is no riddle.
fn changes(subject: Subject, before: Option<&[Row]>, now: &[Row]) -> Vec<String> {
    let time = clock::wall().strftime("%H:%M:%SZ").to_string();
    let Some(before) = before.or((!now.is_empty()).then_some(&[])) else {
        let nothing = match subject {
            Subject::Status => "nothing is in trouble".to_owned(),
            _ => format!("there are no {}", rows::plural(subject)),
        };
        return vec![format!("{time} {nothing}")];
    };
    // Of a status the rows are what is in trouble.
    let gone = if subject == Subject::Status { "no longer in trouble" } else { "gone" };
    let known = |rows: &[Row], name: &str| rows.iter().find(|row| row.name == name).map(|row| row.state.clone());
    let changed = now.iter().filter(|row| known(before, &row.name).as_ref() != Some(&row.state));
    // What is wrong with a cluster is told in the place of what is wrong with its resources.
    let is_of = |row: &Row, of: &Row| {
        let (resource, cluster) = (row.name.strip_prefix("resource "), of.name.strip_prefix("cluster "));
        resource
            .zip(cluster)
            .and_then(|(resource, cluster)| resource.strip_prefix(cluster)?.strip_prefix('/'))
            .is_some()
    };
    let is_over = |row: &&Row| known(now, &row.name).is_none() && !now.iter().any(|of| is_of(row, of));
    let over = before.iter().filter(is_over);
    let told = changed.map(|row| format!("{time} {}: {}", row.name, row.state));
    told.chain(over.map(|row| format!("{time} {}: {gone}", row.name))).collect()
}

/// What people are shown, in at most `width` columns.
fn page(subject: Subject, status: &Value, width: Option<usize>, colours: bool) -> String {
    let rows = rows::rows(subject, status);
    let head = if subject == Subject::Status { rows::summary(status) } else { String::new() };
    let notes = match subject {
        Subject::Sinks => Vec::new(),
        Subject::Status => [why::further_mistakes(&status["configuration"]), rows::notes(status)].concat(),
        Subject::Clusters | Subject::Resources => rows::notes(status),
    };
    let room = width.unwrap_or(usize::MAX);
    let mut notes: Vec<_> = notes.iter().map(|note| wrapped(&printable(note), room, "  ")).collect();
    if rows.is_empty() {
        let first = if subject == Subject::Status { head } else { format!("there are no {}", rows::plural(subject)) };
        return std::iter::once(first).chain(notes).collect::<Vec<_>>().join("\n");
    }
    let Shape { header, numbers, spare } = rows::shape(subject);
    let paint = |row: &Row| {
        let colour = if row.concern?.is_bad() { Color::Red } else { Color::Yellow };
        Some((row.stated, colour))
    };
    let rows = rows.into_iter().map(|row| (row.cells.clone(), paint(&row))).collect();
    let table = Fitted { header, numbers, spare, rows };
    let (table, left_out) = table.render(width, colours);
    notes.extend(fit::note(&left_out, width));
    let below = if notes.is_empty() { String::new() } else { format!("\n\n{}", notes.join("\n")) };
    let head = if head.is_empty() { head } else { head + "\n\n" };
    head + &table + &below
}

/// What people are shown where there is room for everything.
#[cfg(test)]
fn text(subject: Subject, status: &Value, colours: bool) -> String {
    page(subject, status, None, colours)
}

/// All screens of a status.
#[cfg(test)]
pub(super) fn screens(status: &Value) -> Vec<(&'static str, String)> {
    let all = [
        ("status", Subject::Status),
        ("clusters", Subject::Clusters),
        ("resources", Subject::Resources),
        ("sinks", Subject::Sinks),
    ];
    all.map(|(name, subject)| (name, text(subject, status, false))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_each_change_of_a_state_is_told_once() {
        let row = |name: &str, state: &str| Row { name: name.into(), state: state.into(), ..Row::default() };
        let first = vec![row("c0", "connected"), row("c1", "connecting")];
        let changes = |before: &[Row], now: &[Row]| super::changes(Subject::Clusters, Some(before), now);
        assert_eq!(super::changes(Subject::Clusters, None, &first).len(), 2);
        let second = vec![row("c0", "connected"), row("c2", "connecting")];
        let told = changes(&first, &second);
        assert!(matches!(&told[..], [new, gone] if new.ends_with(" c2: connecting") && gone.ends_with(" c1: gone")));
        assert!(changes(&second, &second).is_empty());
    }

    #[test]
    fn a_status_without_a_terminal_says_that_all_is_well_and_when_it_is_again() {
        let trouble = vec![Row { name: "cluster c0".into(), state: "unreachable".into(), ..Row::default() }];
        let told = |before: Option<&[Row]>, now: &[Row]| changes(Subject::Status, before, now).join("\n");
        assert!(told(None, &[]).ends_with("Z nothing is in trouble"));
        assert!(told(Some(&[]), &trouble).ends_with(" cluster c0: unreachable"));
        assert!(told(Some(&trouble), &[]).ends_with(" cluster c0: no longer in trouble"));
        assert_eq!(told(Some(&[]), &[]), "");
        let resource = [Row { name: "resource c0/pods".into(), state: "stale".into(), ..Row::default() }];
        let other = [Row { name: "resource c01/pods".into(), state: "stale".into(), ..Row::default() }];
        assert!(!told(Some(&resource), &trouble).contains("no longer"), "its cluster is worse off");
        assert!(told(Some(&other), &trouble).contains("resource c01/pods: no longer in trouble"));
        assert!(changes(Subject::Sinks, None, &[])[0].ends_with("there are no sinks"));
    }
}

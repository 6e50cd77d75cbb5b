//! `informer-hub get`: lists objects as kubectl does, of one cluster or of many.
//!
//! `target` reads the words of the command line, `rows` prints tables, `items` prints objects, and `follow` watches.

mod follow;
mod items;
mod rows;
mod sink;
mod sort;
mod target;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use self::items::Items;
use self::rows::Rows;
use self::sink::Sink;
use self::sort::SortKey;
use self::target::{Target, targets};
use super::client::{Client, HubArgs};
use super::objects::{Ended, List, Output, PlaceArgs, Warnings, resources};
use super::print::until_unread;
use super::{Misuse, interruptible, runtime};
use informer_hub_types::printable;

/// Arguments of `get`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub get pods\n  informer-hub get pods,deployments -n shop --clusters tier=prod\n  \
        informer-hub get pod web-0 -o yaml\n  informer-hub get pods -l app=web --sort-by restarts --desc --limit 10\n  \
        informer-hub get nodes --clusters prod-eu -o wide\n  informer-hub get pods -o jsonpath='{range \
        .items[*]}{.metadata.name}{\"\\n\"}{end}'\n  informer-hub get pods -A --watch\n\nWithout -n and --clusters, \
        objects of all namespaces and clusters are listed, also those given by name.\n\nExit code 0: done, also if \
        nothing is found. 1: a named object does not exist, or the hub refuses or does not answer. 2: wrong command line."
)]
pub(super) struct Args {
    /// Resources, comma-separated, then names; or one or more RESOURCE/NAME. Short names and categories work: po, all
    #[arg(required = true, value_name = "RESOURCE [NAME]")]
    what: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Only objects with these labels, e.g. 'app=web,tier!=dev'
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Only objects with these fields, e.g. status.phase=Failed
    #[arg(long, value_name = "FIELDS")]
    field_selector: Option<String>,
    /// The output format: table, wide, json, yaml, name, csv, jsonpath=TEMPLATE
    #[arg(short, long, default_value = "table", hide_default_value = true, value_name = "FORMAT")]
    output: Output,
    /// Sort by a column (restarts) or a path (.metadata.creationTimestamp)
    #[arg(long, value_name = "COLUMN|PATH")]
    sort_by: Option<SortKey>,
    /// Sort in descending order
    #[arg(long, requires = "sort_by")]
    desc: bool,
    /// After the list, print each object that changes, until Ctrl-C
    #[arg(short, long, conflicts_with = "sort_by")]
    watch: bool,
    /// The maximum number of objects of each resource
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroUsize>,
    /// Omit the title line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.hub.client()?;
    let work = async {
        if args.output.is_rows() {
            run(args, &client, &mut Rows::new(args)).await
        } else {
            run(args, &client, &mut Items::new(args)?).await
        }
    };
    let runtime = runtime()?;
    if args.watch { interruptible(&runtime, until_unread(work)) } else { interruptible(&runtime, work) }
}

async fn run<S: Sink>(args: &Args, client: &Client, sink: &mut S) -> anyhow::Result<ExitCode> {
    let known = resources(client, args.place.root()).await?;
    let targets = targets(&args.what, &known)?;
    check(args, &targets)?;
    sink.prepare(&targets);
    let mut warnings = Warnings::default();
    let (mut is_missing, mut found) = (false, 0);
    for target in &targets {
        for name in target.lookups() {
            let list = list(args, target, name);
            if args.watch {
                return follow::follow(client, &list, sink, &mut warnings).await;
            }
            let ended = list.read(client, &mut warnings, |page| sink.page(target.resource, page)).await?;
            found += ended.count;
            let resource = target.resource.api.gvr.to_string();
            if let Some(name) = name.filter(|_| ended.count == 0) {
                is_missing = true;
                note!("informer-hub: {resource} {:?} not found{}", printable(name), args.place.described());
            }
            note_rest(&resource, &ended);
        }
        sink.end_of(target.resource)?;
    }
    sink.end()?;
    if found == 0 && !is_missing {
        note!("informer-hub: no {} found{}", described(&targets), args.place.described());
    }
    Ok(if is_missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Rejects options that contradict each other or the selected resources and names.
fn check(args: &Args, targets: &[Target<'_>]) -> anyhow::Result<()> {
    let has_names = targets.iter().any(|target| !target.names.is_empty());
    if has_names && (args.selector.is_some() || args.field_selector.is_some()) {
        return Err(Misuse::error("give either names or a selector (-l, --field-selector), not both"));
    }
    if args.output == Output::Csv && targets.len() > 1 {
        return Err(Misuse::error("-o csv takes one resource, because each has different columns"));
    }
    if args.watch && (targets.len() > 1 || targets.iter().any(|target| target.names.len() > 1)) {
        return Err(Misuse::error(
            "--watch takes one resource, and at most one name; see informer-hub watch for several",
        ));
    }
    Ok(())
}

fn list<'l>(args: &'l Args, target: &Target<'l>, name: Option<&str>) -> List<'l> {
    let mut selectors = Vec::new();
    if let Some(name) = name {
        selectors.push(("fieldSelector", format!("metadata.name={name}")));
    }
    selectors.extend(args.selector.clone().map(|labels| ("labelSelector", labels)));
    selectors.extend(args.field_selector.clone().map(|fields| ("fieldSelector", fields)));
    if args.output.is_rows() && matches!(args.sort_by, Some(SortKey::Path(_))) {
        selectors.push(("includeObject", "Object".to_owned()));
    }
    // A list to sort is read completely, and cut off afterwards.
    let limit = args.limit.map(NonZeroUsize::get).filter(|_| args.sort_by.is_none());
    List {
        resource: target.resource,
        root: args.place.root(),
        namespace: args.place.namespace.as_deref(),
        selectors,
        limit,
    }
}

fn note_rest(resource: &str, ended: &Ended) {
    match ended.remaining {
        _ if !ended.is_cut => {}
        None => note!("informer-hub: there are more {resource} than --limit shows"),
        Some(more) => note!("informer-hub: there are {more} more {resource} than --limit shows"),
    }
}

fn described(targets: &[Target<'_>]) -> String {
    match targets {
        [one] => one.resource.api.gvr.to_string(),
        _ => "objects".to_owned(),
    }
}

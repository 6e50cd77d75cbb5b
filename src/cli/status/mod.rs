//! `informer-hub status`, `clusters`, `resources` and `sinks`: print the status of a running hub, once or repeatedly.

mod args;
mod concern;
mod fleet;
mod readers;
mod rows;
mod screen;
mod select;
mod subject;
mod values;
mod watch;
mod why;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

pub(super) use self::args::{ClustersArgs, ResourcesArgs, SinksArgs, StatusArgs};
use self::args::{Form, View};
use self::screen::page;
#[cfg(test)]
pub(super) use self::screen::{resources_table, screens};
use self::select::Selection;
use self::subject::Subject;
use super::print::{colours, json, out, say, show, until_unread, yaml};
use super::{Misuse, block_on, runtime};
use informer_hub_types::printable;

pub(super) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let StatusArgs { cluster: clusters, resource: resources, view } = args;
    run(Subject::Status, &Selection { clusters, resources, sinks: Vec::new() }, &view)
}

pub(super) fn clusters(args: ClustersArgs) -> anyhow::Result<ExitCode> {
    let ClustersArgs { names: clusters, resource: resources, view } = args;
    run(Subject::Clusters, &Selection { clusters, resources, sinks: Vec::new() }, &view)
}

pub(super) fn resources(args: ResourcesArgs) -> anyhow::Result<ExitCode> {
    let ResourcesArgs { names: resources, cluster: clusters, view } = args;
    run(Subject::Resources, &Selection { clusters, resources, sinks: Vec::new() }, &view)
}

pub(super) fn sinks(args: SinksArgs) -> anyhow::Result<ExitCode> {
    let SinksArgs { names: sinks, view } = args;
    run(Subject::Sinks, &Selection { sinks, ..Selection::default() }, &view)
}

fn run(subject: Subject, selection: &Selection, view: &View) -> anyhow::Result<ExitCode> {
    if view.watch && view.output == Form::Name {
        return Err(Misuse::error("--watch cannot print names; use -o table, json or yaml"));
    }
    if view.interval.0 < Duration::from_millis(100) {
        return Err(Misuse::error(format!("--interval {} is too short; the minimum is 100ms", view.interval)));
    }
    let client = view.hub.client()?;
    let (runtime, selection) = (runtime()?, &selection.without_kinds());
    if view.watch {
        block_on(&runtime, until_unread(watch::watch(&client, subject, selection, view)))?;
    } else {
        let status = block_on(&runtime, client.get(&["v1", "status"], &[]))?;
        print(subject, &selection.of(&status)?, view.output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(subject: Subject, status: &Value, form: Form) -> anyhow::Result<()> {
    match form {
        Form::Table | Form::Wide => show(&page(subject, status, form.width(), colours())),
        Form::Json => say(json(&select::document(subject, status))?),
        Form::Yaml => out(&yaml(&select::document(subject, status))?),
        Form::Name => select::names(subject, status).into_iter().try_for_each(|name| say(printable(&name))),
    }
}

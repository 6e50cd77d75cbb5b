//! `informer-hub query`: runs a query on a running hub.

mod cells;
mod explain;
mod uids;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use serde_json::{Value, json};

use self::cells::Cells;
use self::uids::malformed_uid;
use super::client::{Client, HubArgs, Refused, Request};
use super::objects::{Output, TableWriter, Warnings, csv_line, print_template, resources};
use super::print::{json as pretty, out, say, yaml};
use super::{Misuse, WRONG_INPUT, interruptible, runtime};
use informer_hub_apiclient::{QueryAnswer, Resource, parse_deep};
use informer_hub_config::HumanDuration;
use informer_hub_types::{printable, printable_lines};

/// Maximum bytes of an answer. The hub's own limit is lower.
const LONGEST: usize = 512 << 20;

/// Arguments of `query`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub query 'status.phase = Failed'\n  \
    informer-hub query 'count by cluster'\n  \
    informer-hub query 'spec.containers[*].image prefix \"nginx:1.25\" select cluster, namespace, name'\n  \
    informer-hub query --resource nodes 'spec.unschedulable = true' -o name\n  \
    informer-hub query 'namespace = shop order by status.startTime desc limit 10' --clusters tier=prod\n  \
    informer-hub query 'spec.nodeName = node-7' --explain\n\n\
    docs/queries.md describes the language. An empty text selects all objects.\n\n\
    Exit code 0: done, also if nothing matches. 1: the hub refuses or does not answer. 2: the text has a mistake.")]
pub(super) struct Args {
    /// The text of the query; several words are joined by blanks
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
    /// The resource: plural, kind or short name
    #[arg(short, long, default_value = "pods", value_name = "NAME")]
    resource: String,
    /// Only these clusters: a name, or a selector of their labels such as tier=prod; default: all
    #[arg(long, value_name = "NAME|SELECTOR", default_value = "*", hide_default_value = true)]
    clusters: String,
    /// The output format: table, wide, json, yaml, name, csv, jsonpath=TEMPLATE
    #[arg(short, long, default_value = "table", hide_default_value = true, value_name = "FORMAT")]
    output: Output,
    /// Show how the hub would find the answer, and do not run the query
    #[arg(long)]
    explain: bool,
    /// The maximum number of objects, rows or values
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroUsize>,
    /// Continue an answer that a limit cut off, with the token that it printed
    #[arg(long = "continue", value_name = "TOKEN")]
    continuation: Option<String>,
    /// The time limit of the search; default: 10s
    #[arg(long, value_name = "DURATION")]
    timeout: Option<HumanDuration>,
    /// Omit the title line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.hub.client()?;
    match interruptible(&runtime()?, run(args, &client)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => match error.downcast_ref::<Refused>().and_then(|refused| refused.refusal.excerpt.as_ref()) {
            Some(excerpt) => {
                note!("informer-hub: {}", printable_lines(excerpt, false));
                Ok(ExitCode::from(WRONG_INPUT))
            }
            None => Err(error),
        },
    }
}

async fn run(args: &Args, client: &Client) -> anyhow::Result<()> {
    let known = resources(client, ["clusters", &args.clusters]).await?;
    let found = known.find(&args.resource)?;
    let [resource] = found[..] else {
        return Err(Misuse::error(format!("--resource {} is a category; name one resource", args.resource)));
    };
    let request = Request {
        path: vec!["v1", "query"],
        accept: "application/json",
        body: Some(body(args, resource)),
        ..Request::default()
    };
    let (json, warnings) = client.whole(&request, LONGEST).await?;
    Warnings::default().print(warnings);
    let answer = QueryAnswer::parse(&json);
    let answer = answer.with_context(|| format!("the server at {} sends no answer to a query", client.address()))?;
    match &args.output {
        Output::Json => say(pretty(&parse_deep::<Value>(&json)?)?)?,
        Output::Yaml => out(&yaml(&parse_deep::<Value>(&json)?)?)?,
        Output::JsonPath(template) => print_template(template, &parse_deep(&json)?)?,
        _ if args.explain => out(&explain::text(&answer, resource))?,
        _ => rows(args, resource, &answer)?,
    }
    if !args.explain {
        notes(&answer, resource, &args.text.join(" "));
    }
    Ok(())
}

fn body(args: &Args, resource: &Resource) -> Value {
    let mut body = json!({
        "q": args.text.join(" "), "resource": resource.api.gvr.long(), "clusters": args.clusters, "explain": args.explain,
    });
    if let Some(limit) = args.limit {
        body["limit"] = json!(limit);
    }
    if let Some(token) = &args.continuation {
        body["continue"] = json!(token);
    }
    if let Some(timeout) = &args.timeout {
        body["timeout"] = json!(timeout.to_string());
    }
    body
}

/// Prints a table, CSV or names.
fn rows(args: &Args, resource: &Resource, answer: &QueryAnswer<'_>) -> anyhow::Result<()> {
    let cells = Cells::new(answer, resource, &args.text.join(" "), &args.output)?;
    if args.output == Output::Name {
        let names = cells.names()?;
        return names.iter().try_for_each(|name| say(format_args!("{}/{}", resource.prefix(), printable(name))));
    }
    if args.output == Output::Csv {
        if !args.no_headers {
            out(&csv_line(cells.fields().iter().map(String::as_str)))?;
        }
        return cells.rows().try_for_each(|row| out(&csv_line(row?.iter().map(String::as_str))));
    }
    let mut writer = TableWriter::new(!args.no_headers);
    writer.begin(cells.columns())?;
    cells.rows().try_for_each(|row| writer.row(row?))?;
    writer.end()
}

/// Prints notes about the result on standard error.
fn notes(answer: &QueryAnswer<'_>, resource: &Resource, text: &str) {
    let is_empty = answer.items.as_ref().is_some_and(Vec::is_empty)
        || answer.rows.as_ref().is_some_and(Vec::is_empty)
        || answer.groups.as_ref().is_some_and(Vec::is_empty)
        || answer.values.as_ref().is_some_and(Vec::is_empty);
    if is_empty {
        note!("informer-hub: no {} match", resource.api.gvr);
    }
    if (is_empty || answer.count == Some(0))
        && let Some(uid) = malformed_uid(text)
    {
        let uid = printable(&uid);
        note!("informer-hub: {uid:?} does not have the form of a uid; a condition on a name is name = {uid}");
    }
    if !answer.paths_without_values.is_empty() {
        let paths = printable(&answer.paths_without_values.join(", "));
        note!("informer-hub: no examined object has {paths}; check the spelling");
    }
    match &answer.continuation {
        Some(token) => note!("informer-hub: there are more results: query again with --continue {}", printable(token)),
        None if answer.more => note!("informer-hub: there are more results than the limit allows"),
        None => {}
    }
}

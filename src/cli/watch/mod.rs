//! `informer-hub watch`: prints every change as it happens, and what has changed.

mod lines;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use self::lines::ChangeLines;
use super::client::{Client, HubArgs, Request};
use super::objects::{PlaceArgs, Retry, Warnings, resources};
use super::print::{say, until_unread};
use super::{Misuse, interruptible, runtime};
use informer_hub_apiclient::{Lines, StreamEvent};
use informer_hub_types::{first_names, printable, printable_json};

/// Maximum time without data before the stream counts as broken. The hub sends a heartbeat every 15 s.
const SILENCE: Duration = Duration::from_secs(50);
/// Maximum size of an event in bytes. It may have the old and the new state of an object.
const LONGEST: usize = 64 << 20;

/// Arguments of `watch`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub watch pods -n shop\n  \
    informer-hub watch pods,deployments --clusters tier=prod --events updated\n  \
    informer-hub watch nodes --filter \"object.spec.unschedulable == true\"\n  \
    informer-hub watch '*' -o json | jq .subject\n\n\
    A line has time, cluster, event, object, and the paths that changed with their old and new values. After an \
    interruption the stream goes on where it ended.\n\n\
    Exit code 1: the hub refuses or does not answer at the start. 2: wrong command line. 130: ended by Ctrl-C.")]
pub(super) struct Args {
    /// Resources, comma-separated; '*' for all that the hub has
    #[arg(required = true, value_name = "RESOURCE")]
    resources: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Only objects with these labels, before or after the change
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Only changes for which this CEL expression is true, e.g. "object.status.phase == 'Failed'"
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// Only these events
    #[arg(long, value_enum, value_delimiter = ',', value_name = "EVENT,…")]
    events: Vec<Event>,
    /// Begin with the present objects
    #[arg(long)]
    initial: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    hub: HubArgs,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Event {
    Added,
    Updated,
    Deleted,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line for each change, shortened to the width of a terminal
    #[default]
    #[value(aliases = ["table", "wide"])]
    Text,
    /// One CloudEvent per line, as webhooks receive it
    Json,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.hub.client()?;
    interruptible(&runtime()?, until_unread(run(args, &client)))
}

async fn run(args: &Args, client: &Client) -> anyhow::Result<ExitCode> {
    let names = names(args, client).await?;
    let mut watch = Watch {
        args,
        query: query(args, &names),
        lines: ChangeLines::new(names.len() > 1 || names[0] == "*", args.place.clusters_are_one()),
        warnings: Warnings::default(),
        position: None,
    };
    let (mut has_begun, mut retry) = (false, Retry::default());
    loop {
        match watch.stream(client, &mut has_begun).await {
            Ok(()) => retry.ended().await,
            Err(error) if !has_begun => return Err(error),
            Err(error) => retry.failed(error).await?,
        }
    }
}

/// Asks the hub for the full names of the resources that the command names.
async fn names(args: &Args, client: &Client) -> anyhow::Result<Vec<String>> {
    let words: Vec<&str> =
        args.resources.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty()).collect();
    if words.contains(&"*") {
        return Ok(vec!["*".to_owned()]);
    }
    let known = resources(client, args.place.root()).await?;
    let mut names: Vec<String> = Vec::new();
    for word in words {
        if word.contains('/') {
            return Err(Misuse::error(format!(
                "{word}: watch takes resources; see informer-hub get --watch for one object"
            )));
        }
        for name in known.find(word)?.iter().map(|resource| resource.api.gvr.long()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() { Err(Misuse::error("name a resource, e.g. pods")) } else { Ok(names) }
}

fn query(args: &Args, names: &[String]) -> Vec<(&'static str, String)> {
    let mut query =
        vec![("resource", names.join(",")), ("clusters", args.place.clusters.clone()), ("changed", "true".to_owned())];
    query.extend(args.place.namespace.clone().map(|namespace| ("namespace", namespace)));
    query.extend(args.selector.clone().map(|labels| ("labels", labels)));
    query.extend(args.filter.clone().map(|filter| ("filter", filter)));
    if !args.events.is_empty() {
        let name = |event: &Event| Some(event.to_possible_value()?.get_name().to_owned());
        query.push(("events", args.events.iter().filter_map(name).collect::<Vec<_>>().join(",")));
    }
    query
}

/// A stream of changes over several connections.
struct Watch<'a> {
    args: &'a Args,
    query: Vec<(&'static str, String)>,
    lines: ChangeLines,
    warnings: Warnings,
    /// ID of the last received event, after which the next connection continues.
    position: Option<String>,
}

impl Watch<'_> {
    /// Prints the changes of one connection until it ends. Sets `has_begun` once the hub has accepted the request.
    async fn stream(&mut self, client: &Client, has_begun: &mut bool) -> anyhow::Result<()> {
        let position = self.position.clone();
        let mut query = self.query.clone();
        // An interrupted replay begins again, because it has no positions.
        if self.args.initial && position.is_none() {
            query.push(("initial", "replay".to_owned()));
        }
        let request = Request {
            path: vec!["v1", "events"],
            query,
            accept: "application/x-ndjson",
            last_event: position.as_deref(),
            ..Request::default()
        };
        let mut answer = client.open(&request).await?;
        *has_begun = true;
        self.warnings.print(answer.warnings());
        let mut lines = Lines::new(LONGEST);
        while let Some(part) = answer.part(SILENCE).await? {
            for line in lines.push(&part)?.iter().filter(|line| !line.is_empty()) {
                self.line(line)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let event = StreamEvent::parse(line)?;
        match (event.change(), event.notice(), self.args.output) {
            (_, Some("heartbeat" | "end"), _) => {}
            (_, _, Form::Json) => say(printable_json(&String::from_utf8_lossy(line)))?,
            (Some(name), _, Form::Text) => say(self.lines.line(name, &event))?,
            (_, Some("expired" | "warning"), Form::Text) => {
                let names = first_names(&event.data.resources);
                let about = if names.is_empty() { String::new() } else { format!("{names}: ") };
                note!("informer-hub: {}", printable(&format!("{about}{}", event.data.message)));
            }
            _ => {}
        }
        if event.position.is_some() {
            self.position = event.position;
        }
        Ok(())
    }
}

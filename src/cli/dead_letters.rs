//! `informer-hub dead-letters`: what sinks of a running hub have given up.

use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::client::{Client, HubArgs};
use super::fit::{Fitted, note};
use super::print::{Format, answer, json, width};
use super::runtime;

/// Arguments of `dead-letters`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub dead-letters list audit\n  informer-hub dead-letters show audit 17\n  \
    informer-hub dead-letters replay audit --error 422\n  informer-hub dead-letters purge audit --all"
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
    /// How it is printed
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List them, oldest first
    List {
        /// The sink
        sink: String,
        #[command(flatten)]
        filter: Filter,
    },
    /// Show one with its event
    Show {
        /// The sink
        sink: String,
        /// Its number, as `list` shows it
        number: u64,
    },
    /// Have them delivered again, with the ids that they had
    Replay(Which),
    /// Throw them away
    Purge(Which),
}

#[derive(Debug, ClapArgs)]
struct Which {
    /// The sink
    sink: String,
    /// All of them
    #[arg(long, conflicts_with_all = ["id", "cluster", "subject", "error", "before"])]
    all: bool,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Debug, Default, ClapArgs)]
struct Filter {
    /// Those with one of these event ids
    #[arg(long)]
    id: Vec<String>,
    /// Those of a cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Those whose subject (group/version/resource/namespace/name) has this in it
    #[arg(long)]
    subject: Option<String>,
    /// Those whose error has this in it
    #[arg(long)]
    error: Option<String>,
    /// Those given up before then (RFC 3339)
    #[arg(long)]
    before: Option<jiff::Timestamp>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        let Self { id, cluster, subject, error, before } = self;
        id.is_empty() && cluster.is_none() && subject.is_none() && error.is_none() && before.is_none()
    }

    fn json(&self) -> Value {
        let Self { id, cluster, subject, error, before } = self;
        json!({ "ids": id, "cluster": cluster, "subject": subject, "error": error, "before": before })
    }

    fn query(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        ensure!(self.id.len() <= 1, "list takes one --id");
        let Self { id, cluster, subject, error, before } = self;
        let before = before.map(|before| before.to_string());
        let parts = [("id", id.first().cloned()), ("cluster", cluster.clone()), ("subject", subject.clone())];
        let parts = parts.into_iter().chain([("error", error.clone()), ("before", before)]);
        Ok(parts.filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.hub.client()?;
    runtime()?.block_on(args.run(&client))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    async fn run(&self, client: &Client) -> anyhow::Result<()> {
        match &self.what {
            What::List { sink, filter } => self.list(client, sink, filter).await,
            What::Show { sink, number } => {
                let shown = client.get(&path(sink, Some(&number.to_string())), &[]).await?;
                let text = json(&shown)? + "\n";
                answer(self.output, &shown, || text)
            }
            What::Replay(which) => self.act(client, "replay", "will be delivered again", which).await,
            What::Purge(which) => self.act(client, "purge", "thrown away", which).await,
        }
    }

    async fn list(&self, client: &Client, sink: &str, filter: &Filter) -> anyhow::Result<()> {
        let mut letters = Vec::new();
        let mut from = Some(0);
        while let Some(first) = from {
            let mut query = filter.query()?;
            query.extend([("from", first.to_string()), ("limit", "1000".to_owned())]);
            let page = client.get(&path(sink, None), &query).await?;
            letters.extend(page["letters"].as_array().cloned().unwrap_or_default());
            from = page["next"].as_u64();
        }
        let text = || if letters.is_empty() { "no dead letters\n".to_owned() } else { format!("{}\n", rows(&letters)) };
        answer(self.output, &letters, text)
    }

    async fn act(&self, client: &Client, action: &str, done: &str, which: &Which) -> anyhow::Result<()> {
        ensure!(which.all || !which.filter.is_empty(), "say which: a filter, or --all");
        let answered = client.post(&path(&which.sink, Some(action)), &which.filter.json()).await?;
        answer(self.output, &answered, || format!("{} {done}\n", answered["count"]))
    }
}

fn path<'p>(sink: &'p str, last: Option<&'p str>) -> Vec<&'p str> {
    ["v1", "sinks", sink, "dead-letters"].into_iter().chain(last).collect()
}

/// A table in which the error is the last column.
fn rows(letters: &[Value]) -> String {
    let row = |letter: &Value| {
        let text = |key: &str| letter[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| letter[key].to_string();
        let cells = [
            number("number"),
            text("at"),
            text("cluster"),
            text("event"),
            text("subject"),
            number("attempts"),
            text("error"),
        ];
        (cells.to_vec(), None)
    };
    let table = Fitted {
        header: &["NUMBER", "GIVEN UP", "CLUSTER", "EVENT", "SUBJECT", "TRIES", "ERROR"],
        numbers: &[],
        spare: &[5, 1, 3],
        rows: letters.iter().map(row).collect(),
    };
    let width = width();
    let (table, left_out) = table.render(width, false);
    let note = note(&left_out, width).map(|note| format!("\n\n{note}"));
    table + &note.unwrap_or_default()
}

#[cfg(test)]
pub(super) fn screen(letters: &[Value]) -> String {
    rows(letters)
}

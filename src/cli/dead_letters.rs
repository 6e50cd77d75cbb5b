//! `informer-hub dead-letters`: lists, shows, replays and purges the dead letters of sinks of a running hub.

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::client::{Client, HubArgs};
use super::fit::{Fitted, note};
use super::print::{Format, answer, json, width, without_kind};
use super::{Misuse, block_on, runtime};

/// Arguments of `dead-letters`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub dead-letters list audit\n  informer-hub dead-letters show audit 17\n  \
    informer-hub dead-letters replay audit --error 422\n  informer-hub dead-letters purge audit --all"
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// The output format
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters, oldest first
    List {
        /// The sink
        sink: String,
        #[command(flatten)]
        filter: Filter,
    },
    /// Show a dead letter with its event
    Show {
        /// The sink
        sink: String,
        /// The number of the dead letter, as shown by `list`
        number: u64,
    },
    /// Deliver dead letters again, with the same event ids
    Replay(Target),
    /// Delete dead letters
    Purge(Target),
}

#[derive(Debug, ClapArgs)]
struct Target {
    /// The sink
    sink: String,
    /// All dead letters of the sink
    #[arg(long, conflicts_with_all = ["id", "cluster", "subject", "error", "before"])]
    all: bool,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Debug, Default, ClapArgs)]
struct Filter {
    /// Only these event ids
    #[arg(long)]
    id: Vec<String>,
    /// Only this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Only subjects (group/version/resource/namespace/name) that contain this text
    #[arg(long)]
    subject: Option<String>,
    /// Only errors that contain this text
    #[arg(long)]
    error: Option<String>,
    /// Only dead letters from before this time (RFC 3339)
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
        let cluster = cluster.as_deref().map(|cluster| without_kind("cluster", cluster));
        json!({ "ids": id, "cluster": cluster, "subject": subject, "error": error, "before": before })
    }

    fn query(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        if self.id.len() > 1 {
            return Err(Misuse::error("list accepts only one --id"));
        }
        let Self { id, cluster, subject, error, before } = self;
        let before = before.map(|before| before.to_string());
        let cluster = cluster.as_deref().map(|cluster| without_kind("cluster", cluster).to_owned());
        let parts = [("id", id.first().cloned()), ("cluster", cluster), ("subject", subject.clone())];
        let parts = parts.into_iter().chain([("error", error.clone()), ("before", before)]);
        Ok(parts.filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.hub.client()?;
    block_on(&runtime()?, args.run(&client))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    async fn run(&self, client: &Client) -> anyhow::Result<()> {
        match &self.command {
            Command::List { sink, filter } => self.list(client, sink, filter).await,
            Command::Show { sink, number } => {
                let shown = client.get(&path(sink, Some(&number.to_string())), &[]).await?;
                let text = json(&shown)? + "\n";
                answer(self.output, &shown, || text)
            }
            Command::Replay(target) => self.act(client, "replay", "will be delivered again", target).await,
            Command::Purge(target) => self.act(client, "purge", "deleted", target).await,
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

    async fn act(&self, client: &Client, action: &str, done: &str, target: &Target) -> anyhow::Result<()> {
        if !target.all && target.filter.is_empty() {
            return Err(Misuse::error("select dead letters with a filter, or give --all"));
        }
        let answered = client.post(&path(&target.sink, Some(action)), &target.filter.json()).await?;
        answer(self.output, &answered, || format!("{} {done}\n", answered["count"]))
    }
}

fn path<'p>(sink: &'p str, last: Option<&'p str>) -> Vec<&'p str> {
    ["v1", "sinks", without_kind("sink", sink), "dead-letters"].into_iter().chain(last).collect()
}

/// Returns a time without fractions of a second, so that all times have one width. Returns any other text unchanged.
fn seconds(time: &str) -> String {
    let parsed = time.parse::<jiff::Timestamp>();
    parsed.map_or_else(|_| time.to_owned(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Renders dead letters as a table with the error in the last column.
fn rows(letters: &[Value]) -> String {
    let row = |letter: &Value| {
        let text = |key: &str| letter[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| letter[key].to_string();
        let cells = [
            number("number"),
            seconds(&text("at")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_width() {
        let times = ["2026-01-02T03:04:05.678901234Z", "2026-01-02T03:04:05.6Z", "2026-01-02T03:04:05Z"].map(seconds);
        assert_eq!(times, ["2026-01-02T03:04:05Z"; 3]);
        assert_eq!(seconds("soon"), "soon");
    }

    #[test]
    fn names_of_other_commands_are_accepted() {
        assert_eq!(path("sink/audit", None), path("audit", None));
        let filter = |cluster: &str| Filter { cluster: Some(cluster.to_owned()), ..Filter::default() };
        assert_eq!(filter("cluster/eu").json(), filter("eu").json());
        assert_eq!(filter("cluster/eu").query().unwrap(), [("cluster", "eu".to_owned())]);
    }
}

//! The Kubernetes API of the hub beside that of a kube-apiserver: the same client reads the same pods from both.
//!
//! `make bench-read` builds the apiserver and kubectl (tests/testbed), and sets `BENCH_TESTBED` and `BENCH_KUBECTL`.
//! Both servers speak TLS. The hub has its default configuration, so it drops `managedFields`.
//!
//! Variables: `BENCH_PODS` (20,000), `BENCH_ROUNDS` (3), `BENCH_WATCHES` (10,000 idle watches), `BENCH_EVENTS` (2,000
//! events to 100 watchers), `BENCH_SECONDS` (10, of paced events), `BENCH_OBJECTS` (1,000,000, for queries),
//! `BENCH_ONLY` (`lists`, `watches`, `latency`, `audit` or `queries`), `BENCH_KIND` (a part of the name of a kind of
//! query).

mod audit;
mod latency;
mod lists;
mod queries;
mod query_clients;
mod servers;
mod watches;

use comfy_table::presets::ASCII_MARKDOWN;
use serde_json::{Value, json};

use crate::common::figures::Rounds;
use crate::common::{number, process, runtime, table};
pub(crate) use query_clients::serve as serve_query_clients;
use servers::{Apiserver, HubServer, Server};

/// One compared figure.
pub(super) struct Row {
    what: String,
    unit: &'static str,
    apiserver: Option<Rounds>,
    hub: Rounds,
    goal: &'static str,
}

impl Row {
    fn new(
        what: impl Into<String>,
        unit: &'static str,
        apiserver: Option<Rounds>,
        hub: Rounds,
        goal: &'static str,
    ) -> Self {
        Self { what: what.into(), unit, apiserver, hub, goal }
    }
}

pub(crate) fn run() {
    eprintln!("load: {}", process::load());
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let is_wanted = |part: &str| only.is_empty() || only == part;
    let pods = number("BENCH_PODS", 20_000);
    let mut rows = Vec::new();
    runtime().block_on(async {
        if is_wanted("lists") || is_wanted("watches") {
            let apiserver = Apiserver::start(pods).await;
            let hub = HubServer::beside(&apiserver).await;
            let servers = (apiserver.server(), hub.server());
            if is_wanted("lists") {
                lists::measure(&servers, &hub, &apiserver, &mut rows).await;
            }
            if is_wanted("watches") {
                watches::measure(&servers, &mut rows).await;
            }
        }
        if is_wanted("latency") {
            latency::measure(pods, &mut rows).await;
        }
        if is_wanted("audit") {
            audit::measure(&mut rows).await;
        }
        if is_wanted("queries") {
            queries::measure(&mut rows).await;
        }
    });
    print(pods, &rows);
}

fn print(pods: u64, rows: &[Row]) {
    println!("{pods} pods; medians, least and most of the rounds");
    let mut printed = table::figures(ASCII_MARKDOWN, ["what", "kube-apiserver", "hub", "goal"]);
    for row in rows {
        let text = |rounds: &Rounds| format!("{} {}", rounds.text(digits(rounds.median())), row.unit);
        let apiserver = row.apiserver.as_ref().map_or_else(|| "–".to_owned(), text);
        printed.add_row([row.what.clone(), apiserver, text(&row.hub), row.goal.to_owned()]);
    }
    println!("{printed}");
    let out = std::path::PathBuf::from(std::env::var("BENCH_OUT").unwrap_or_else(|_| "target/bench".to_owned()));
    std::fs::create_dir_all(&out).unwrap();
    let row = |row: &Row| {
        json!({
            "what": row.what, "unit": row.unit, "goal": row.goal, "hub": row.hub.0,
            "apiserver": row.apiserver.as_ref().map(|rounds| &rounds.0),
        })
    };
    let report = json!({ "pods": pods, "rows": rows.iter().map(row).collect::<Vec<Value>>() });
    std::fs::write(out.join("read.json"), serde_json::to_string_pretty(&report).unwrap() + "\n").unwrap();
    eprintln!("load: {}", process::load());
}

fn digits(value: f64) -> usize {
    match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ => 2,
    }
}

/// The apiserver and the hub.
type Both = (Server, Server);

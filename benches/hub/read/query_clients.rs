//! The clients of queries, in a process of their own at idle priority: they stand for other machines, so they use only
//! the CPU that the hub, the cluster and the subscriber leave.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::servers::Server;
use crate::common::process::Helper;
use crate::common::runtime;

/// Timeout of one query.
const TIMEOUT: &str = "25s";

/// How long [`Run::stop`] waits for the first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(25);

/// A kind of query: its name and its text, in which `{}` is a value.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    text: &'static str,
    values: Vec<String>,
}

impl Kind {
    /// Returns the text of a client's query number `turn`. The values are used in turn.
    fn text_of(&self, turn: usize) -> String {
        let value = self.values.get(turn % self.values.len().max(1));
        value.map_or_else(|| self.text.to_owned(), |value| self.text.replace("{}", &format!("{value:?}")))
    }
}

/// Names of the kinds of queries.
pub(super) const KINDS: [&str; 4] = ["index", "label scan", "body scan", "group by"];

/// Handle of the process, for the bench.
pub(super) struct QueryClients(Helper);

/// Answers of one run.
pub(super) struct Answers {
    pub(super) seconds: f64,
    /// Times of the answers in milliseconds, sorted.
    pub(super) millis: Vec<f64>,
    pub(super) refused: f64,
}

impl QueryClients {
    /// Starts the process for a reader of a hub.
    pub(super) fn start(server: &Server) -> Self {
        let variables =
            [("QUERY_ROOT", server.root.clone()), ("QUERY_TOKEN", server.token.clone().unwrap_or_default())];
        let mut helper = Helper::start_idle(&["query-clients"], &variables);
        eprintln!("query clients see {} objects", helper.line());
        Self(helper)
    }

    /// Starts clients that query in a loop.
    pub(super) fn run(&mut self, kind: &str, clients: usize) {
        self.0.ask(&format!("{clients} {kind}"));
    }

    /// Stops the clients after their first answer and returns all answers.
    pub(super) fn stop(&mut self) -> Answers {
        let answers: Value = serde_json::from_str(&self.0.ask("stop")).unwrap();
        let millis = answers["millis"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let number = |name: &str| answers[name].as_f64().unwrap();
        Answers { seconds: number("seconds"), millis, refused: number("refused") }
    }
}

/// Runs as the process of the clients.
pub(crate) fn serve() {
    let variable = |name| std::env::var(name).unwrap();
    let server = Server::plain(variable("QUERY_ROOT"), variable("QUERY_TOKEN"));
    let runtime = runtime();
    let kinds = runtime.block_on(kinds(&server));
    let mut running: Option<Run> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            None => {
                let run = running.take().unwrap();
                println!("{}", runtime.block_on(run.stop()));
            }
            Some((clients, name)) => {
                let kind = kinds.iter().find(|kind| kind.name == name).unwrap();
                let _inside = runtime.enter();
                running = Some(Run::start(&server, kind, clients.parse().unwrap()));
                println!("started");
            }
        }
    }
}

/// Returns the kinds of queries, with index values that occur in the cluster. Prints the number of objects.
async fn kinds(server: &Server) -> [Kind; 4] {
    let client = server.client(false);
    let count = ask(server, &client, "count").await.expect("an answer");
    println!("{}", count["count"]);
    let rows = ask(server, &client, "select status.podIP limit 1000").await.expect("rows");
    let values = rows["rows"].as_array().unwrap().iter().filter_map(|row| row[0].as_str().map(str::to_owned));
    let texts = [
        "index by-ip = {}",
        "labels(app=web, tier=data, team=growth) count",
        "spec.containers[*].image contains \"none\" count",
        "count by spec.nodeName",
    ];
    let mut kinds = std::array::from_fn(|at| Kind { name: KINDS[at], text: texts[at], values: Vec::new() });
    kinds[0].values = values.collect();
    kinds
}

/// Clients that query in a loop.
struct Run {
    began: Instant,
    clients: Vec<JoinHandle<()>>,
    times: Arc<Mutex<Vec<Duration>>>,
    refused: Arc<AtomicU64>,
}

impl Run {
    fn start(server: &Server, kind: &Kind, clients: usize) -> Self {
        let (times, refused) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicU64>::default());
        let client = |number: usize| {
            let (server, kind) = (server.clone(), kind.clone());
            let (times, refused) = (Arc::clone(&times), Arc::clone(&refused));
            tokio::spawn(async move {
                let http = server.client(false);
                for turn in number * 101.. {
                    let asked = Instant::now();
                    match ask(&server, &http, &kind.text_of(turn)).await {
                        Some(_) => times.lock().push(asked.elapsed()),
                        None => drop(refused.fetch_add(1, Relaxed)),
                    }
                }
            })
        };
        Self { began: Instant::now(), clients: (0..clients).map(client).collect(), times, refused }
    }

    /// Waits for the first answer, at most [`FIRST_ANSWER`], then cancels the queries in progress.
    async fn stop(self) -> Value {
        let until = Instant::now() + FIRST_ANSWER;
        while self.times.lock().is_empty() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.clients.iter().for_each(JoinHandle::abort);
        let mut times = std::mem::take(&mut *self.times.lock());
        times.sort_unstable();
        let millis: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        json!({
            "seconds": self.began.elapsed().as_secs_f64(), "millis": millis, "refused": self.refused.load(Relaxed),
        })
    }
}

/// Sends one query; `None` if the hub answers with 429 or 504.
async fn ask(server: &Server, client: &reqwest::Client, text: &str) -> Option<Value> {
    let server = server.at_root("");
    let encoded = text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
    let path = format!("/v1/query?resource=pods&timeout={TIMEOUT}&q={encoded}");
    let response = server.get(client, &path, "application/json").send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap();
    assert!(matches!(status, 200 | 429 | 504), "{status}: {}", String::from_utf8_lossy(&body));
    (status == 200).then(|| serde_json::from_slice(&body).unwrap())
}

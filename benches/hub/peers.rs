//! Comparison of the hub, client-go and kube-rs with the same objects from the same server, one after the other in one
//! run. A reader that ignores what it reads is the baseline.
//!
//! client-go runs in a Go program; `make bench-peers` builds it and sets `BENCH_GO_PEERS`. Without it only the hub and
//! kube-rs run. The table is printed, figures and chart are written to `BENCH_OUT`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use informer_hub_sim::replay::ReplayConfig;
use serde_json::{Value, json};

use crate::common::number;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::tls::Wire;
use crate::{chart, peers_table};

/// Events a second while latencies are measured.
const RATE: u32 = 1_000;

/// Figures of one client. Times in microseconds, sizes in bytes, each for one object or update.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientFigures {
    pub(crate) name: String,
    pub(crate) sync_wall: f64,
    pub(crate) sync_cpu: f64,
    pub(crate) memory: f64,
    pub(crate) peak: f64,
    pub(crate) updates_per_second: f64,
    pub(crate) update_cpu: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

pub(crate) fn run() {
    let pods = number("BENCH_PODS", 20_000);
    let events = number("BENCH_EVENTS", 50_000);
    let seconds = number("BENCH_SECONDS", 10);
    let out = PathBuf::from(std::env::var("BENCH_OUT").unwrap_or_else(|_| "target/bench".to_owned()));
    fs::create_dir_all(&out).unwrap();
    let go = std::env::var("BENCH_GO_PEERS").ok();
    let protobuf = go.as_ref().map(|go| encode(go, &out, pods));
    let wire = Wire::named(&std::env::var("BENCH_WIRE").unwrap_or_default());
    let mut server = Remote::start(&RemoteConfig { pods, protobuf, wire, ..RemoteConfig::default() });
    let ca_file = server.ca_file.clone();
    let ca_file = ca_file.as_deref();
    let mut contestants = vec![("informer-hub", own_client("hub", &server.url, ca_file))];
    if let Some(go) = &go {
        contestants.push(("informer-hub JSON", own_client("hub-json", &server.url, ca_file)));
        for (name, kind) in [
            ("client-go protobuf", "protobuf"),
            ("client-go JSON", "json"),
            ("client-go dynamic", "dynamic"),
            ("client-go metadata", "metadata"),
        ] {
            let mut command = Command::new(go);
            command.args(["informer", kind, &server.url]);
            contestants.push((name, command));
        }
    }
    contestants.push(("kube-rs", own_client("kube-rs", &server.url, ca_file)));
    contestants.push(("bare reader", own_client("bare", &server.url, ca_file)));
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let mut all = Vec::new();
    for (name, command) in contestants.into_iter().filter(|(name, _)| name.contains(&only)) {
        eprintln!("{name} …");
        all.push(measure(name, command, &mut server, (pods, events, u64::from(RATE) * seconds)));
    }
    let index = go.as_ref().map(|go| index(go, number("BENCH_INDEX", 1_000_000)));
    println!("{pods} pods of 9.3 KB, a flood of {events} updates, then {RATE} updates a second for {seconds} s");
    println!("{}", peers_table::table(&all));
    if let Some(index) = &index {
        println!("client-go's Indexer: {index}");
    }
    let report = json!({ "wire": wire.name(), "pods": pods, "events": events, "rate": RATE, "clients": json(&all), "clientGoIndexer": index });
    fs::write(out.join("peers.json"), serde_json::to_string_pretty(&report).unwrap() + "\n").unwrap();
    fs::write(out.join("peers.svg"), chart::draw(&all)).unwrap();
}

fn json(all: &[ClientFigures]) -> Vec<Value> {
    let client = |reached: &ClientFigures| {
        json!({
            "name": reached.name,
            "syncWallMicrosPerObject": round(reached.sync_wall),
            "syncCpuMicrosPerObject": round(reached.sync_cpu),
            "memoryBytesPerObject": reached.memory.round(),
            "peakBytesPerObject": reached.peak.round(),
            "floodUpdatesPerSecond": reached.updates_per_second.round(),
            "floodCpuMicrosPerUpdate": round(reached.update_cpu),
            "latencyP50Micros": reached.p50.round(),
            "latencyP99Micros": reached.p99.round(),
        })
    };
    all.iter().map(client).collect()
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Returns a command that runs this binary as a client.
pub(crate) fn own_client(kind: &str, server: &str, ca_file: Option<&Path>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["contestant", kind, server]).args(ca_file);
    command
}

/// Writes the pods in protobuf, with the encoder of client-go.
fn encode(go: &str, out: &Path, pods: u64) -> PathBuf {
    let (lines, encoded) = (out.join("pods.jsonl"), out.join("pods.pb"));
    let config = ReplayConfig { pods: pods as usize, ..ReplayConfig::default() };
    let mut file = BufWriter::new(File::create(&lines).unwrap());
    config.export(&mut file).unwrap();
    file.flush().unwrap();
    let done = Command::new(go).arg("encode").args([&lines, &encoded]).status().unwrap();
    assert!(done.success(), "the pods were not encoded");
    fs::remove_file(lines).unwrap();
    encoded
}

fn index(go: &str, objects: u64) -> Value {
    let output = Command::new(go).args(["index", &objects.to_string()]).stderr(Stdio::inherit()).output().unwrap();
    serde_json::from_slice(&output.stdout).expect("the Go program prints JSON")
}

// === one client ===

/// A compared client in its own process, controlled over stdin.
pub(crate) struct Contestant {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Contestant {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, answers }
    }

    /// Waits for the answer to a phase.
    pub(crate) fn answer(&mut self, phase: &str) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not an answer: {line:?}"));
        assert_eq!(answer["phase"], phase);
        answer
    }

    pub(crate) fn command(&mut self, command: &str, number: u64) {
        writeln!(self.commands, "{command} {number}").unwrap();
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(name: &str, command: Command, server: &mut Remote, (pods, events, paced): (u64, u64, u64)) -> ClientFigures {
    let mut client = Contestant::start(command);
    client.answer("idle");
    client.command("sync", pods);
    let synced = client.answer("synced");
    client.command("flood", server.last_version() + events);
    client.answer("ready");
    server.flood(events);
    let flood = client.answer("told");
    // Background work of the flood must not affect the paced events.
    std::thread::sleep(std::time::Duration::from_secs(5));
    client.command("pace", server.last_version() + paced);
    client.answer("ready");
    server.pace(RATE, paced);
    let paced = client.answer("told");
    let per = |value: &Value, count: u64| value.as_f64().unwrap_or(f64::NAN) / count as f64;
    ClientFigures {
        name: name.to_owned(),
        sync_wall: per(&synced["wall_us"], pods),
        sync_cpu: per(&synced["cpu_us"], pods),
        memory: per(&synced["rss"], pods),
        peak: per(&synced["peak"], pods),
        updates_per_second: 1e6 / per(&flood["wall_us"], events),
        update_cpu: per(&flood["cpu_us"], events),
        p50: per(&paced["p50_us"], 1),
        p99: per(&paced["p99_us"], 1),
    }
}

//! Replay server in a separate process, so that its memory and CPU are not counted.
//!
//! The process is the binary of the bench, started with [`FLAG`].

use std::io::BufRead;
use std::path::PathBuf;

use informer_hub_sim::replay::{ReplayConfig, ReplayServer, Shape};

use super::process::Helper;
use super::tls::{self, Wire};
use super::{fronts, receiver};

/// Argument that makes the binary run the server.
const FLAG: &str = "--replay-server";

/// Runs the helper that the arguments name and exits, if this is a helper process. To be called first in `main`.
pub fn serve_if_asked() {
    let flags: [(&str, fn()); 3] = [(FLAG, serve), (fronts::FLAG, fronts::serve), (receiver::FLAG, receiver::serve)];
    if let Some((_, serve)) = flags.iter().find(|(flag, _)| std::env::args().any(|arg| arg == *flag)) {
        serve();
        std::process::exit(0);
    }
}

fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let pods = super::number("REPLAY_PODS", 20_000) as usize;
    let shape = shape("REPLAY_SHAPE");
    let protobuf = std::env::var_os("REPLAY_PROTOBUF").map(PathBuf::from);
    let wire = Wire::named(&std::env::var("REPLAY_WIRE").unwrap_or_default());
    let tls = tls::server(wire, &ca_file());
    let config = ReplayConfig { pods, shape, protobuf, tls, ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, runtime.handle()).unwrap();
    println!("{}", server.url());
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["flood", events] => server.flood(events.parse().unwrap()),
            ["version"] => {}
            ["requests"] => {
                println!("{}", server.lists() + server.watches());
                continue;
            }
            ["expire"] => server.expire(),
            ["pace", rate, events] => server.pace(rate.parse().unwrap(), events.parse().unwrap()),
            _ => panic!("unknown command of the replay server: {line}"),
        }
        println!("{}", server.last_version());
    }
}

/// Reads a shape from the environment; the default is pods.
pub fn shape(name: &str) -> Shape {
    let text = std::env::var(name).unwrap_or_else(|_| "Pods".to_owned());
    Shape::named(&text).unwrap_or_else(|| panic!("{name} is not a shape: {text}; there are {:?}", Shape::ALL))
}

fn ca_file() -> PathBuf {
    ca_file_of(std::process::id())
}

fn ca_file_of(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("informer-hub-bench-ca-{process}.pem"))
}

/// Configuration of the server.
#[derive(Clone, Debug, Default)]
pub struct RemoteConfig {
    /// Number of pods.
    pub pods: u64,
    /// Shape of the pods.
    pub shape: Shape,
    /// File with the same pods in protobuf.
    pub protobuf: Option<PathBuf>,
    /// Protocol.
    pub wire: Wire,
    /// Cores of the process; `None` for those of this process.
    pub cores: Option<String>,
}

/// Handle of the server, for the bench.
pub struct Remote {
    process: Helper,
    /// URL of the server.
    pub url: String,
    /// CA of its certificate, if it has one.
    pub ca_file: Option<PathBuf>,
}

impl Remote {
    /// Starts the server and waits until it serves.
    pub fn start(config: &RemoteConfig) -> Self {
        let mut variables = vec![
            ("REPLAY_PODS", config.pods.to_string()),
            ("REPLAY_SHAPE", format!("{:?}", config.shape)),
            ("REPLAY_WIRE", config.wire.name().to_owned()),
        ];
        variables.extend(config.protobuf.iter().map(|file| ("REPLAY_PROTOBUF", file.display().to_string())));
        let mut process = Helper::start(&[FLAG], &variables, config.cores.as_deref());
        let url = process.line();
        let ca_file = (config.wire != Wire::Plain).then(|| ca_file_of(process.id()));
        Self { process, url, ca_file }
    }

    fn ask(&mut self, command: &str) -> u64 {
        self.process.ask(command).parse().unwrap()
    }

    /// Returns the URLs of `count` equal parts of its pods, each a cluster.
    pub fn shards(&self, count: u64) -> Vec<String> {
        (0..count).map(|i| format!("{}/shards/{i}/{count}", self.url)).collect()
    }

    /// Returns the version of the last event.
    pub fn last_version(&mut self) -> u64 {
        self.ask("version")
    }

    /// Returns the number of lists and watches served.
    pub fn requests(&mut self) -> u64 {
        self.ask("requests")
    }

    /// Expires every watch, so that clients list again.
    pub fn expire(&mut self) {
        self.ask("expire");
    }

    /// Sends `events` as fast as they are read. Returns the version of the last one.
    pub fn flood(&mut self, events: u64) -> u64 {
        self.ask(&format!("flood {events}"))
    }

    /// Sends `events` at `rate` per second. Returns the version of the last one.
    pub fn pace(&mut self, rate: u32, events: u64) -> u64 {
        self.ask(&format!("pace {rate} {events}"))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(ca_file) = &self.ca_file {
            let _ = std::fs::remove_file(ca_file);
        }
    }
}

//! The replay server in a process of its own, so that its memory and CPU are not counted.
//!
//! That process is the bench's own binary, started again with [`FLAG`].

use std::io::BufRead;
use std::path::PathBuf;

use informer_hub_sim::replay::{ReplayConfig, ReplayServer, Shape};

use super::process::Helper;
use super::tls::{self, Wire};
use super::{fronts, receiver};

/// Makes the binary the server.
const FLAG: &str = "--replay-server";

/// Serves and never returns, if this is the process of a server or of something else that is talked to. To be called
/// first in `main`.
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
            ["expire"] => server.expire(),
            ["pace", rate, events] => server.pace(rate.parse().unwrap(), events.parse().unwrap()),
            _ => panic!("no command of the replay server: {line}"),
        }
        println!("{}", server.last_version());
    }
}

/// A shape from the environment; pods where it says nothing.
pub fn shape(name: &str) -> Shape {
    let text = std::env::var(name).unwrap_or_else(|_| "Pods".to_owned());
    Shape::named(&text).unwrap_or_else(|| panic!("{name} is no shape: {text}; there are {:?}", Shape::ALL))
}

fn ca_file() -> PathBuf {
    ca_file_of(std::process::id())
}

fn ca_file_of(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("informer-hub-bench-ca-{process}.pem"))
}

/// What it serves.
#[derive(Clone, Debug, Default)]
pub struct RemoteConfig {
    /// How many pods.
    pub pods: u64,
    /// What they look like.
    pub shape: Shape,
    /// The same in protobuf.
    pub protobuf: Option<PathBuf>,
    /// How it speaks.
    pub wire: Wire,
    /// The cores that it may have; `None`: those of this process.
    pub cores: Option<String>,
}

/// The server, seen from the bench.
pub struct Remote {
    process: Helper,
    /// Where it listens.
    pub url: String,
    /// Whom to trust for its certificate, if it has one.
    pub ca_file: Option<PathBuf>,
}

impl Remote {
    /// Starts it; returns when it serves.
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

    /// Where the parts of its pods are, each a cluster.
    pub fn shards(&self, count: u64) -> Vec<String> {
        (0..count).map(|i| format!("{}/shards/{i}/{count}", self.url)).collect()
    }

    /// The version that the last event so far led to.
    pub fn last_version(&mut self) -> u64 {
        self.ask("version")
    }

    /// Ends every watch in a way that makes its client list again.
    pub fn expire(&mut self) {
        self.ask("expire");
    }

    /// Has the server send `events` as fast as they are read; returns the version that the last one leads to.
    pub fn flood(&mut self, events: u64) -> u64 {
        self.ask(&format!("flood {events}"))
    }

    /// Has the server send `events`, `rate` a second; returns the version that the last one leads to.
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

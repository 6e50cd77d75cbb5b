//! Webhook receiver in a separate process, which answers at once and records latencies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use informer_hub_sim::replay::{ReplayServer, SENT};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::figures::micros;
use super::hub::quantile;
use super::process::Helper;

/// Argument that makes the binary run the receiver.
pub const FLAG: &str = "--receiver";

/// Handle of the receiver, for the bench.
pub struct Receiver {
    process: Helper,
    /// URL of the receiver.
    pub url: String,
}

/// Figures since the last call of [`Receiver::take`].
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Number of events.
    pub events: u64,
    /// Number of requests.
    pub requests: u64,
    /// Median time from the server's send to the acknowledgement, in microseconds.
    pub p50: f64,
    /// 99th percentile of that time.
    pub p99: f64,
    /// Maximum of that time.
    pub most: f64,
}

impl Receiver {
    /// Starts the receiver and waits until it listens.
    pub fn start(cores: Option<&str>) -> Self {
        let mut process = Helper::start(&[FLAG], &[], cores);
        let url = process.line();
        Self { process, url }
    }

    /// Returns the number of events since its start.
    pub fn count(&mut self) -> u64 {
        self.process.ask("count").parse().unwrap()
    }

    /// Returns the figures and resets them.
    pub fn take(&mut self) -> Received {
        let taken: Value = serde_json::from_str(&self.process.ask("take")).unwrap();
        let number = |name: &str| taken[name].as_f64().unwrap();
        Received {
            events: number("events") as u64,
            requests: number("requests") as u64,
            p50: number("p50"),
            p99: number("p99"),
            most: number("most"),
        }
    }
}

#[derive(Default)]
struct Taken {
    all: u64,
    events: u64,
    requests: u64,
    latencies: Vec<Duration>,
}

/// Runs the process of the receiver, with a thread for each connection, so that requests are answered without delay.
pub fn serve() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("http://{}/events", listener.local_addr().unwrap());
    let taken = Arc::<Mutex<Taken>>::default();
    let shared = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let taken = Arc::clone(&shared);
            std::thread::spawn(move || converse(&stream, &taken));
        }
    });
    for line in std::io::stdin().lock().lines() {
        let mut taken = taken.lock();
        if line.unwrap() == "count" {
            println!("{}", taken.all);
            continue;
        }
        let Taken { all, events, requests, mut latencies } = std::mem::take(&mut *taken);
        taken.all = all;
        drop(taken);
        latencies.sort_unstable();
        let at = |part| micros(quantile(&latencies, part));
        let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
        println!("{}", json!({ "events": events, "requests": requests, "p50": p50, "p99": p99, "most": most }));
    }
}

/// Answers the requests of one connection until it ends.
fn converse(stream: &TcpStream, taken: &Mutex<Taken>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::with_capacity(64 * 1024, stream);
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
        (&mut &*stream).write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
        note(&body, taken);
    }
}

/// Counts the events of a body and records their latencies. In an event with an old object, the new one comes first.
fn note(body: &[u8], taken: &Mutex<Taken>) {
    let key = format!("\"{SENT}\":\"");
    let begins: Vec<_> = memchr::memmem::find_iter(body, "\"specversion\"").collect();
    let ends = begins.iter().skip(1).copied().chain([body.len()]);
    let latency = |(begin, end): (&usize, usize)| {
        let event = &body[*begin..end];
        let at = memchr::memmem::find(event, key.as_bytes())? + key.len();
        let digits = event[at..].iter().take_while(|byte| byte.is_ascii_digit());
        ReplayServer::since_sent(&digits.map(|byte| char::from(*byte)).collect::<String>())
    };
    let latencies: Vec<_> = begins.iter().zip(ends).filter_map(latency).collect();
    let mut taken = taken.lock();
    taken.all += begins.len() as u64;
    taken.events += begins.len() as u64;
    taken.requests += 1;
    taken.latencies.extend(latencies);
}

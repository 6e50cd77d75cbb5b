//! CPU and time of a request with and without an audit log in a file: one object, and a page of 500.

use std::time::Instant;

use serde_json::Value;

use super::Row;
use super::servers::{HubServer, Server, read_all};
use crate::common::figures::Rounds;
use crate::common::number;
use crate::common::process::CpuWaits;
use crate::common::server::{Remote, RemoteConfig};

const JSON: &str = "application/json";

/// Costs of a request in microseconds, one value for each round.
#[derive(Default)]
struct RequestCosts {
    cpu: Rounds,
    wall: Rounds,
}

pub(super) async fn measure(rows: &mut Vec<Row>) {
    let replay = Remote::start(&RemoteConfig { pods: 2_000, ..RemoteConfig::default() });
    let cluster = format!("[clusters.bench]\nserver = \"{}\"\ncompression = false\n[resources.pods]\n", replay.url);
    let without = HubServer::start(&cluster, false).await;
    let with = HubServer::start(&format!("[hub.audit]\npath = \"audit.log\"\n{cluster}"), false).await;
    let one = path_of_a_pod(&without.server()).await;
    let kinds = [("one object", one, 4_000), ("a list of 500", "/api/v1/pods?limit=500".to_owned(), 200)];
    for (kind, path, requests) in kinds {
        let (mut off, mut on) = (RequestCosts::default(), RequestCosts::default());
        for round in 0..=number("BENCH_ROUNDS", 3) {
            eprintln!("audit of {kind}, round {round} …");
            // The first round warms up both hubs.
            let is_warm = round > 0;
            for (hub, costs) in [(&without, &mut off), (&with, &mut on)] {
                let (cpu, wall) = cost(&hub.server(), &path, requests).await;
                if is_warm {
                    costs.cpu.0.push(cpu);
                    costs.wall.0.push(wall);
                }
            }
        }
        rows.push(Row::new(format!("{kind}: CPU (left: without audit)"), "µs", Some(off.cpu), on.cpu, ""));
        rows.push(Row::new(format!("{kind}: wall (left: without audit)"), "µs", Some(off.wall), on.wall, ""));
    }
}

async fn path_of_a_pod(server: &Server) -> String {
    let list = server.get(&server.client(false), "/api/v1/pods?limit=1", JSON).send().await.unwrap();
    let list: Value = serde_json::from_slice(&list.bytes().await.unwrap()).unwrap();
    let metadata = &list["items"][0]["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap().to_owned();
    format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"))
}

/// Sends requests one after the other. Returns the CPU time of all threads of the hub and the wall time, both in
/// microseconds per request.
async fn cost(server: &Server, path: &str, requests: u32) -> (f64, f64) {
    let client = server.client(false);
    read_all(server.get(&client, path, JSON).send().await.unwrap()).await;
    let (before, began) = (CpuWaits::of(server.process), Instant::now());
    for _ in 0..requests {
        read_all(server.get(&client, path, JSON).send().await.unwrap()).await;
    }
    let each = |seconds: f64| seconds * 1e6 / f64::from(requests);
    (each(CpuWaits::of(server.process).since(&before).ran().as_secs_f64()), each(began.elapsed().as_secs_f64()))
}

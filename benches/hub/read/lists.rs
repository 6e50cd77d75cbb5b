//! Lists of all pods: CPU, wall time and memory of the server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::servers::{Apiserver, HubServer, Server, read_all};
use super::{Both, Row};
use crate::common::figures::Rounds;
use crate::common::{number, process};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Costs of a list, one value for each round.
#[derive(Default)]
struct ListCosts {
    cpu: Rounds,
    wall: Rounds,
    /// Growth of the server's memory at its peak, in MiB.
    peak: Rounds,
    megabytes: Rounds,
}

impl ListCosts {
    async fn add(&mut self, server: &Server, accept: &str, is_gzip: bool) {
        let client = server.client(false);
        // The connection is not measured.
        read_all(server.get(&client, "/api/v1/pods?limit=1", accept).send().await.unwrap()).await;
        let mut request = server.get(&client, "/api/v1/pods", accept);
        if is_gzip {
            request = request.header("accept-encoding", "gzip");
        }
        process::forget_peak_of(server.process);
        let (rss, cpu, began) = (process::rss_of(server.process), server.cpu(), Instant::now());
        let bytes = read_all(request.send().await.unwrap()).await;
        self.wall.0.push(began.elapsed().as_secs_f64());
        self.cpu.0.push(server.cpu() - cpu);
        self.peak.0.push(process::peak_rss_of(server.process).saturating_sub(rss) as f64 / f64::from(1 << 20));
        self.megabytes.0.push(bytes as f64 / 1e6);
    }
}

pub(super) async fn measure(servers: &Both, hub: &HubServer, apiserver: &Apiserver, rows: &mut Vec<Row>) {
    let fleet = servers.1.at_root("/clusters/*");
    let (mut json, mut tables, mut gzip) = (Default::default(), Default::default(), Default::default());
    let mut of_fleet = ListCosts::default();
    // The first list of each server warms it up.
    both(&mut <(ListCosts, ListCosts)>::default(), servers, JSON, false).await;
    for round in 0..number("BENCH_ROUNDS", 3) {
        eprintln!("lists, round {round} …");
        both(&mut json, servers, JSON, false).await;
        both(&mut tables, servers, TABLE, false).await;
        both(&mut gzip, servers, JSON, true).await;
        of_fleet.add(&fleet, JSON, false).await;
    }
    let json: (ListCosts, ListCosts) = json;
    let tables: (ListCosts, ListCosts) = tables;
    let gzip: (ListCosts, ListCosts) = gzip;
    rows.push(Row::new("list, JSON: CPU", "s", Some(json.0.cpu), json.1.cpu, "≤ 0.3 s"));
    rows.push(Row::new("list, JSON: wall", "s", Some(json.0.wall), json.1.wall, "≤ 0.5 s"));
    rows.push(Row::new("list, JSON: memory at the peak", "MiB", Some(json.0.peak), json.1.peak, "≤ 32 MiB"));
    rows.push(Row::new("list, JSON: bytes", "MB", Some(json.0.megabytes), json.1.megabytes, ""));
    rows.push(Row::new("list, gzip: CPU", "s", Some(gzip.0.cpu), gzip.1.cpu, ""));
    rows.push(Row::new("list, gzip: bytes", "MB", Some(gzip.0.megabytes), gzip.1.megabytes, ""));
    rows.push(Row::new("list, Table: CPU", "s", Some(tables.0.cpu), tables.1.cpu, ""));
    rows.push(Row::new("list, Table: wall", "s", Some(tables.0.wall), tables.1.wall, ""));
    rows.push(Row::new("list of the fleet, JSON: CPU", "s", None, of_fleet.cpu, ""));
    if let Ok(kubectl) = std::env::var("BENCH_KUBECTL") {
        let (mut by_apiserver, mut by_hub) = (Rounds::default(), Rounds::default());
        for _ in 0..number("BENCH_ROUNDS", 3) {
            by_apiserver.0.push(get_pods(&kubectl, Path::new(&apiserver.kubeconfig)));
            by_hub.0.push(get_pods(&kubectl, &hub.kubeconfig()));
        }
        rows.push(Row::new("kubectl get pods -A: wall", "s", Some(by_apiserver), by_hub, "≤ ⅓"));
    }
}

async fn both(costs: &mut (ListCosts, ListCosts), servers: &Both, accept: &str, is_gzip: bool) {
    costs.0.add(&servers.0, accept, is_gzip).await;
    costs.1.add(&servers.1, accept, is_gzip).await;
}

/// Runs kubectl and returns its wall time in seconds.
fn get_pods(kubectl: &str, kubeconfig: &Path) -> f64 {
    let mut command = Command::new(kubectl);
    command.args(["get", "pods", "-A", "--kubeconfig"]).arg(kubeconfig).stdout(Stdio::null());
    let began = Instant::now();
    assert!(command.status().unwrap().success());
    began.elapsed().as_secs_f64()
}

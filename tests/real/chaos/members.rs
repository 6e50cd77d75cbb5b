//! Processes of the fleet, the proxies between them and the servers, and the faults.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::Client;
use futures::TryStreamExt;
use informer_hub_fleet::jetstream::Leases;
use informer_hub_fleet::{Partition, Subjects};
use informer_hub_types::clock::{self, Instant};
use serde_json::Value;

use super::observer::Observer;
use super::schedule::{Fault, Kind, Target};
use super::takeovers::Takeovers;
use crate::bed::{RealCluster, becomes_true, found};
use crate::deliver::{delivering, published};
use crate::fixture::WAIT_DEADLINE;
use crate::fleet::{FLEET, config};
use crate::nats_servers::Servers;
use crate::proxy::{self, FaultProxy};
use crate::workdir::{Running, Workdir};

pub(super) const COLLECTORS: usize = 3;
pub(super) const SERVERS: usize = 3;
const REPLICA: usize = COLLECTORS;
const DELIVERER: usize = COLLECTORS + 1;

/// A process of the fleet with its folder, and the proxies through which it reaches NATS servers and apiservers.
struct Member {
    workdir: Workdir,
    /// `None` while it is killed.
    hub: Option<Running>,
    /// Name in the fleet. Each start of the process has a new name.
    name: String,
    nats: Vec<FaultProxy>,
    /// Proxies to the apiservers, by number of the cluster.
    apiservers: Vec<FaultProxy>,
}

impl Member {
    /// Starts a process. `role` makes its configuration from that of a collector.
    async fn start(servers: &Servers, clusters: &[RealCluster], role: impl FnOnce(String) -> String) -> Self {
        let (workdir, mut nats, mut apiservers) = (Workdir::new(), Vec::new(), Vec::new());
        for url in servers.urls() {
            nats.push(FaultProxy::start(&url).await);
        }
        let urls: Vec<_> = nats.iter().map(|proxy| format!("nats://{}", proxy.address())).collect();
        let mut text = config(workdir.listen(), &urls.join("\", \""), clusters);
        for cluster in clusters {
            let proxy = FaultProxy::start(cluster.url()).await;
            let [direct, via] =
                [cluster.kubeconfig(), &cluster.kubeconfig_via(&proxy)].map(|path| path.display().to_string());
            text = text.replace(&format!("{direct:?}"), &format!("{via:?}"));
            apiservers.push(proxy);
        }
        let text = text.replace("[fleet]\n", &format!("[fleet]\nreplicas = {SERVERS}\n"));
        workdir.write("hub.toml", &role(text + "[resources.\"widgets.bed.example.com\"]\n"));
        let mut member = Self { workdir, hub: None, name: String::new(), nats, apiservers };
        member.run().await;
        member
    }

    async fn run(&mut self) {
        self.hub = Some(self.workdir.hub());
        let name = async || {
            let (_, status) = self.workdir.get("/v1/status").await;
            let status: Value = serde_json::from_str(&status).unwrap_or_default();
            status["fleet"]["process"].as_str().map(str::to_owned)
        };
        self.name = found(WAIT_DEADLINE, name).await.expect("the process answers");
    }

    async fn connect_to_nats(&self, fault: proxy::Fault) {
        for proxy in &self.nats {
            proxy.set(fault).await;
        }
    }

    fn running(&self) -> &Running {
        self.hub.as_ref().expect("a fault hits a running process")
    }
}

/// A fault that has begun, and what it hit.
struct Effect {
    fault: Fault,
    began: Instant,
    /// Number of the process that the fault hit; 0 if it killed servers.
    member: usize,
    /// Numbers of the killed servers.
    servers: Vec<usize>,
    /// Partitions that the process owned, with its name.
    former: BTreeMap<Partition, String>,
}

/// The whole fleet.
pub(super) struct Fleet {
    // Drop order: the processes end before the servers.
    members: Vec<Member>,
    pub(super) observer: Observer,
    client: Client,
    leases: Leases,
    servers: Servers,
    clusters: Vec<String>,
}

impl Fleet {
    pub(super) async fn start(clusters: &[RealCluster], url: &str) -> Self {
        let servers = Servers::start(SERVERS).await;
        let client = servers.client().await;
        let mut members = Vec::new();
        for at in 0..=DELIVERER {
            let role = |text: String| match at {
                REPLICA => text.replace("\"collect\"", "\"serve\""),
                DELIVERER => delivering(&text, "deliverer", &[("flaky", url)]),
                _ => text,
            };
            members.push(Member::start(&servers, clusters, role).await);
        }
        let observer = Observer::start(&client, SERVERS).await;
        let subjects = Subjects::new(FLEET).unwrap();
        let leases = Leases::open(client.clone(), &subjects, SERVERS, Duration::from_secs(5)).await.unwrap();
        let clusters = clusters.iter().map(|cluster| cluster.name().to_owned()).collect();
        Self { members, observer, client, leases, servers, clusters }
    }

    /// Returns the folder of the serving replica.
    pub(super) fn replica(&self) -> &Workdir {
        &self.members[REPLICA].workdir
    }

    /// Injects the faults. Each begins once the fleet has recovered from the fault before, or during that fault.
    pub(super) async fn suffer(&mut self, faults: &[Fault]) -> Takeovers {
        let mut takeovers = Takeovers::default();
        self.recovered(clock::now()).await;
        for (at, fault) in faults.iter().enumerate().filter(|(_, fault)| fault.during.is_none()) {
            let other = faults.get(at + 1).filter(|next| next.during.is_some());
            let ended = self.inject(*fault, other.copied()).await;
            let healed = clock::now();
            for effect in ended.iter().filter(|effect| matches!(effect.fault.kind, Kind::Kill(_))) {
                self.are_taken_over(&effect.former).await;
            }
            self.recovered(healed).await;
            for effect in &ended {
                let taken = self.taken_over(&effect.former, effect.began);
                let recovered = healed.elapsed();
                println!("{:>3}. {:?}: takeovers {taken:.1?}, recovered {recovered:.1?} later", at + 1, effect.fault);
                let (alone, overlapping) = (&mut takeovers.alone, &mut takeovers.overlapping);
                if other.is_some() { overlapping.extend(taken) } else { alone.extend(taken) }
            }
        }
        takeovers
    }

    /// Injects a fault, and `other` during it, until both have ended. Returns their effects.
    async fn inject(&mut self, fault: Fault, other: Option<Fault>) -> Vec<Effect> {
        let mut effects = vec![self.begin(fault, None).await];
        if let Some(during) = other.and_then(|other| other.during) {
            tokio::time::sleep_until(effects[0].began + during).await;
            let other = self.begin(other.expect("it has a time"), effects.first()).await;
            effects.push(other);
        }
        effects.sort_by_key(|effect| effect.began + effect.fault.lasts);
        for effect in &effects {
            tokio::time::sleep_until(effect.began + effect.fault.lasts).await;
            self.end(effect).await;
        }
        effects
    }

    /// Begins a fault. It hits another process and other servers than `other`, which is in effect.
    async fn begin(&mut self, fault: Fault, other: Option<&Effect>) -> Effect {
        let mut effect = Effect { fault, began: clock::now(), member: 0, servers: Vec::new(), former: BTreeMap::new() };
        let down: &[usize] = other.map_or(&[], |other| &other.servers);
        let target = match fault.kind {
            Kind::Kill(target) | Kind::Freeze(target) | Kind::CutFromNats(target, _) => target,
            Kind::CutFromApiserver(cluster, _) => Target::Owner(cluster),
            Kind::KillServer(server) => {
                effect.servers.extend((server..server + SERVERS).map(|at| at % SERVERS).find(|at| !down.contains(at)));
                self.kill_servers(&effect.servers);
                return effect;
            }
            Kind::LoseQuorum(left) => {
                effect.servers.extend((0..SERVERS).filter(|at| *at != left && !down.contains(at)));
                self.kill_servers(&effect.servers);
                return effect;
            }
        };
        effect.member = self.find(target).await;
        if other.is_some_and(|other| other.servers.is_empty() && other.member == effect.member) {
            effect.member = (effect.member + 1) % self.members.len();
        }
        let member = &mut self.members[effect.member];
        let mut owned = self.observer.partitions();
        owned.retain(|_, position| position.owner == member.name);
        match fault.kind {
            Kind::Kill(_) => member.hub = None,
            Kind::Freeze(_) => member.running().freeze(true),
            Kind::CutFromNats(_, how) => member.connect_to_nats(how).await,
            Kind::CutFromApiserver(cluster, how) => {
                member.apiservers[cluster].set(how).await;
                // No takeover is expected: the owner keeps the cluster, which may still move for balance.
                owned.clear();
            }
            Kind::KillServer(_) | Kind::LoseQuorum(_) => unreachable!("it hits no process"),
        }
        effect.former = owned.into_iter().map(|(partition, position)| (partition, position.owner)).collect();
        effect
    }

    async fn end(&mut self, effect: &Effect) {
        for server in &effect.servers {
            self.servers.restart(*server).await;
        }
        let member = &mut self.members[effect.member];
        match effect.fault.kind {
            Kind::Kill(_) => member.run().await,
            Kind::Freeze(_) => member.running().freeze(false),
            Kind::CutFromNats(..) => member.connect_to_nats(proxy::Fault::Pass).await,
            Kind::CutFromApiserver(cluster, _) => member.apiservers[cluster].set(proxy::Fault::Pass).await,
            Kind::KillServer(_) | Kind::LoseQuorum(_) => {}
        }
    }

    fn kill_servers(&mut self, servers: &[usize]) {
        for server in servers {
            self.servers.kill(*server);
        }
    }

    async fn find(&self, target: Target) -> usize {
        match target {
            Target::Collector(at) => at,
            Target::Replica => REPLICA,
            Target::Deliverer => DELIVERER,
            Target::Owner(cluster) => {
                let owner = self.observer.owner(&self.clusters[cluster]).await;
                let found = self.members.iter().position(|member| member.name == owner);
                // During another fault, the owner may have been killed and started under another name.
                found.unwrap_or(0)
            }
        }
    }

    /// Waits until other processes own the partitions.
    async fn are_taken_over(&self, former: &BTreeMap<Partition, String>) {
        let left = || {
            let now = self.observer.partitions();
            former.iter().filter(|(partition, owner)| now[partition].owner == **owner).count()
        };
        let taken = becomes_true(WAIT_DEADLINE, async || left() == 0).await;
        assert!(taken, "no takeover: {:?}", self.observer.partitions());
    }

    /// Returns the times until other processes owned all partitions of a cluster that changed its owner.
    fn taken_over(&self, former: &BTreeMap<Partition, String>, began: Instant) -> Vec<Duration> {
        let now = self.observer.partitions();
        let mut times = BTreeMap::new();
        for (partition, _) in former.iter().filter(|(partition, owner)| now[partition].owner != **owner) {
            let time = now[partition].since.duration_since(began);
            let longest: &mut Duration = times.entry(partition.cluster.clone()).or_default();
            *longest = time.max(*longest);
        }
        times.into_values().collect()
    }

    /// Waits until all servers have all data, all processes are ready, and the deliverer has delivered changes of each
    /// partition that were stored after `healed`.
    async fn recovered(&self, healed: Instant) {
        let context = async_nats::jetstream::new(self.client.clone());
        let streams = async || context.stream_names().try_collect::<Vec<_>>().await.ok();
        for stream in found(WAIT_DEADLINE, streams).await.expect("JetStream answers") {
            self.servers.until_replicated(&self.client, &stream, SERVERS).await;
        }
        for member in &self.members {
            member.workdir.ready(member.running()).await;
        }
        let partitions = 2 * self.clusters.len();
        let newest = async || {
            let now = self.observer.partitions();
            (now.len() == partitions && now.values().all(|at| at.newest > healed && at.version > 0)).then_some(now)
        };
        let Some(newest) = found(WAIT_DEADLINE, newest).await else {
            panic!("no new changes in the log: {:#?}", self.observer.partitions());
        };
        for (partition, position) in newest {
            let (cluster, resource) = (partition.cluster.as_str(), &partition.resource);
            let resource = format!("{}.{}", resource.resource, resource.group);
            let progress = async || published(&self.leases, "flaky", cluster, &resource).await;
            let delivered = becomes_true(WAIT_DEADLINE, async || progress().await >= Some(position.version)).await;
            assert!(delivered, "{partition} is delivered up to {:?}: {position:?}", progress().await);
        }
    }
}

//! The running parts of the demo (clusters, hub, receiver), and snapshots of their state for screen and summary.

use std::sync::Arc;
use std::time::Duration;

use super::Args;
use super::fleet::{Fleet, Member, resources};
use super::receiver::Receiver;
use super::secret::SecretFile;
use super::summary::{ClusterSummary, Summary, Totals};
use super::temp_file::TempFile;
use super::view::{Deliveries, FRESH, Row, SYNCING, Scene, Screen};
use super::{serve, setup};
use crate::actors::ClusterStatus;
use crate::api::Guard;
use crate::app::{Hub, Port, StartedFleet, protection};
use crate::cache::Query;
use informer_hub_config::Config;
use informer_hub_sim::GroundTruth;
use informer_hub_sim::oracle::Oracle;
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Freshness, clock};

/// Maximum number of differences that are shown for each cluster, and of wrong events that are shown in all.
const MAX_SHOWN: usize = 20;

/// Clusters, hub, receiver and screen of the demo.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) fleet: Fleet,
    hub: Hub,
    receiver: Receiver,
    /// Port of the hub; `None` without `--serve`.
    port: Option<Port>,
    screen: Screen,
    seed: u64,
    duration: Duration,
    began: clock::Instant,
    /// How long the clusters changed and failed. Zero until the faults have ended.
    ran: Duration,
}

impl Stage {
    pub(super) async fn start(args: &Args, screen: Screen) -> anyhow::Result<Self> {
        let secret = SecretFile::create()?;
        let fleet = Fleet::start(usize::from(args.clusters), usize::try_from(args.pods)?, args.seed)?;
        let receiver = Receiver::start(secret.keys.clone(), &fleet).await?;
        let mut config = setup::config(&fleet, receiver.url.clone(), secret.path())?;
        let port = if args.serve { Some(open(&mut config, args).await?) } else { None };
        let hub = match &port {
            Some(port) => port.start(Hub::builder(config)).await?,
            None => Hub::builder(config).start().await?,
        };
        // The hub has read the secret, so the file can be deleted now.
        drop(secret);
        let (seed, duration) = (args.seed, args.duration.0);
        Ok(Self { fleet, hub, receiver, port, screen, seed, duration, began: clock::now(), ran: Duration::ZERO })
    }

    pub(super) async fn heal(&mut self) {
        self.ran = self.began.elapsed();
        self.fleet.heal().await;
        self.receiver.heal();
    }

    /// Shuts the hub down before clusters and receiver end.
    pub(super) async fn end(self, timeout: Duration) {
        if let Some(port) = &self.port {
            port.ending();
        }
        let report = self.hub.shutdown(timeout).await;
        if let Some(port) = self.port {
            port.close().await;
        }
        if report.actors_left > 0 {
            tracing::warn!(
                actors = report.actors_left,
                "parts of the hub have not ended in time; the demo ends without them"
            );
        }
    }

    /// Returns the kubeconfig file for clients, and a text with commands to try; `None` without `--serve`. Dropping the
    /// file deletes it.
    pub(super) fn invitation(&self) -> anyhow::Result<Option<(TempFile, String)>> {
        let Some(port) = &self.port else { return Ok(None) };
        let clusters: Vec<_> = self.fleet.members.iter().map(|member| member.name.clone()).collect();
        let Some(first) = clusters.first() else { return Ok(None) };
        let file = serve::kubeconfig(port.address(), &clusters)?;
        let text = serve::invitation(port.address(), &file, first);
        Ok(Some((file, text)))
    }

    /// Removes the progress table from the terminal, to print the summary in its place.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        self.screen.clear()
    }

    pub(super) async fn draw(&mut self, stage: &str) -> anyhow::Result<()> {
        if self.screen.is_silent() {
            return Ok(());
        }
        let report = self.hub.report().await?;
        let status = |member: &Member| report.hub.clusters.iter().find(|cluster| cluster.name == member.name);
        let rows: Vec<_> = self.fleet.members.iter().map(|member| self.row(member, status(member))).collect();
        for (member, row) in self.fleet.members.iter_mut().zip(&rows) {
            member.note(&row.state);
        }
        let sent = report.sinks.first().map(|sink| Deliveries {
            delivered: sink.status.delivered,
            waiting: sink.status.pending_events,
            repeated: sink.status.retries,
        });
        let elapsed = self.began.elapsed();
        let (operations, duration) = (self.fleet.operations, self.duration);
        let scene = Scene {
            elapsed,
            duration,
            stage: stage.to_owned(),
            operations,
            rows,
            deliveries: sent.unwrap_or_default(),
        };
        self.screen.show(&scene)
    }

    fn row(&self, member: &Member, status: Option<&ClusterStatus>) -> Row {
        let counts = member.cluster.with_world(|world| resources().map(|resource| world.count(&resource.gvr)));
        let arrived = self.receiver.received.lock();
        let receiver = resources().iter().map(|resource| arrived.replica.count(&origin(&member.name, resource))).sum();
        let informers = status.map_or(&[][..], |status| &status.informers);
        let state = state(status);
        Row {
            situation: member.situation(&state),
            name: member.name.to_string(),
            state,
            truth: counts.iter().sum(),
            cache: informers.iter().map(|informer| informer.objects).sum(),
            receiver,
        }
    }

    /// Compares the clusters with cache and receiver, and returns the result with totals. Meaningful only while the
    /// clusters do not change.
    pub(super) async fn summary(&self, settling: Duration, interrupted: bool) -> anyhow::Result<Summary> {
        let report = self.hub.report().await?;
        let mut clusters = Vec::new();
        for member in &self.fleet.members {
            let status = report.hub.clusters.iter().find(|cluster| cluster.name == member.name);
            clusters.push(self.compare(member, status).await?);
        }
        let received = self.receiver.received.lock();
        let sink = report.sinks.first().map(|sink| &sink.status);
        let totals = Totals {
            operations: self.fleet.operations,
            faults: self.fleet.faults() as u64,
            outages: self.fleet.outages,
            relists: clusters.iter().map(|cluster| cluster.relists).sum(),
            pending: sink.map_or(0, |sink| sink.pending_events + sink.held),
            delivered: sink.map_or(0, |sink| sink.delivered),
            batches: sink.map_or(0, |sink| sink.batches),
            retries: sink.map_or(0, |sink| sink.retries),
            requests: received.requests,
            refused: received.refused,
            repeats: received.replica.repeats(),
            signature_failures: received.signature_failures,
            unreadable: received.unreadable,
            violations: received.replica.violations().len() as u64,
            p50_millis: received.arrivals.percentile(50),
            p99_millis: received.arrivals.percentile(99),
        };
        let violations = received.replica.violations().iter().take(MAX_SHOWN).cloned().collect();
        Ok(Summary::new(self.seed, [self.ran, settling], interrupted, clusters, totals, violations))
    }

    async fn compare(&self, member: &Member, status: Option<&ClusterStatus>) -> anyhow::Result<ClusterSummary> {
        let mut summary = ClusterSummary { name: member.name.to_string(), ..ClusterSummary::default() };
        summary.relists = relists(status);
        summary.state = state(status);
        summary.events = status.iter().flat_map(|status| &status.informers).map(|informer| informer.events).sum();
        for resource in resources() {
            let truth = member.cluster.truth(&resource.gvr);
            let cache = self.cached(&member.name, &resource).await?;
            let receiver = self.receiver.received.lock().replica.seen(&origin(&member.name, &resource));
            summary.truth += truth.len();
            summary.cache += cache.len();
            summary.receiver += receiver.len();
            for (copy, seen) in [("hub", &cache), ("receiver", &receiver)] {
                let differences = Oracle::diff(&truth, seen);
                summary.differences += differences.len();
                let room = MAX_SHOWN.saturating_sub(summary.shown.len());
                let lines = differences.iter().map(|difference| format!("{copy}: {} {difference}", resource.gvr));
                summary.shown.extend(lines.take(room));
            }
        }
        Ok(summary)
    }

    async fn cached(&self, cluster: &ClusterName, resource: &ApiResource) -> anyhow::Result<GroundTruth> {
        let query = Query::list().in_clusters(ClusterSelector::Names(vec![cluster.clone()]));
        let answer = self.hub.cache_of(resource.clone()).send(query).await??;
        let entry = |object: &informer_hub_types::Object| {
            (object.key().clone(), (object.uid().clone(), object.resource_version().clone()))
        };
        Ok(answer.items.iter().map(entry).collect())
    }
}

async fn open(config: &mut Config, args: &Args) -> anyhow::Result<Port> {
    let listener = serve::bind(args.listen).await?;
    config.hub.listen = listener.local_addr()?;
    let fleet = StartedFleet::default();
    let guard = Guard::new(protection(config, &fleet))?;
    // The demo has no configuration file to reload.
    Port::open(listener, guard, fleet, &config.hub.service, Arc::new(|| Box::pin(async { None })))
}

/// Returns the key of a cluster's objects of one resource in the receiver's replica.
fn origin(cluster: &ClusterName, resource: &ApiResource) -> String {
    format!("{cluster}/{}", resource.gvr.long())
}

/// Counts the lists after the first one of each informer.
fn relists(status: Option<&ClusterStatus>) -> u64 {
    status.iter().flat_map(|status| &status.informers).map(|informer| informer.lists.saturating_sub(1)).sum()
}

/// Returns the freshness of the hub's copy of a cluster, as text: the freshness of the cluster's worst informer.
fn state(status: Option<&ClusterStatus>) -> String {
    let informers = status.map_or(&[][..], |status| &status.informers);
    if informers.is_empty() || informers.iter().any(|informer| informer.freshness == Freshness::Missing) {
        return SYNCING.to_owned();
    }
    let stale = informers.iter().filter_map(|informer| match informer.freshness {
        Freshness::StaleSince { since } => Some(since),
        _ => None,
    });
    match stale.min() {
        None => FRESH.to_owned(),
        Some(since) => {
            let age = clock::since_wall_millis(since.as_millisecond());
            format!("copy is {:.1} s old", age.as_secs_f64())
        }
    }
}

//! Runs of the hub process: each starts from the simulated disk and ends by a shutdown, a kill or a power loss.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actix::{Actor, System};
use informer_hub::actors::sink::{LetterAnswer, LetterRequest};
use informer_hub::actors::{Subscribe, Subscriber, Tuning};
use informer_hub::app::{DurableSubscription, Hub, LocalReadApi, StartError};
use informer_hub::cache::{HistoryLimits, Query};
use informer_hub_config::{
    ClusterAccess, ClusterConfig, Config, Initial, Projection, ResourceConfig, RetryConfig, SinkConfig,
    TransportConfig, WebhookConfig,
};
use informer_hub_dial::Dial;
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sink::{LetterFilter, RetryParams, StoreLimits};
use informer_hub_types::rng::SeededRng;
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Notification, Phase, clock};
use parking_lot::Mutex;
use rand::Rng;
use tokio::io::DuplexStream;
use tokio::runtime::Builder;

use crate::api_reader;
use crate::checks;
use crate::memory;
use crate::reader::ReaderActor;
use crate::receiver::Receiver;
use crate::testbed::{STATE, Testbed};

/// Time limit for the final run to converge.
const PATIENCE: Duration = Duration::from_secs(400);

/// Performs all runs one after the other. The last one has no faults and must converge.
pub(crate) fn all(bed: &Arc<Testbed>) -> Result<(), String> {
    for run in 0..bed.plan.runs {
        on_a_new_thread(bed, run, faulty_run)??;
    }
    on_a_new_thread(bed, bed.plan.runs, final_run)?
}

/// Performs a run on its own thread, actor system and runtime, which end with it.
fn on_a_new_thread<T: Send>(
    bed: &Arc<Testbed>,
    run: usize,
    body_of_run: impl AsyncFnOnce(Arc<Testbed>) -> T + Send,
) -> Result<T, String> {
    let body = || {
        memory::measure(&bed.net);
        let _decided = SeededRng::new(bed.plan.seed.wrapping_mul(1000).wrapping_add(run as u64));
        let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let system = System::with_tokio_rt(runtime);
        let done = catch_unwind(AssertUnwindSafe(|| {
            system.block_on(async {
                clock::set_wall(Some(bed.wall()));
                let done = body_of_run(Arc::clone(bed)).await;
                bed.set_wall(clock::wall() + Duration::from_secs(1));
                clock::set_wall(None);
                done
            })
        }));
        drop(system);
        (done, checks::panics())
    };
    let (done, panics) = thread::scope(|scope| scope.spawn(body).join()).map_err(|_| "the end of a run panicked")?;
    match done {
        Ok(done) if panics == 0 => Ok(done),
        _ => Err(format!("run {run}: {panics} panics")),
    }
}

fn config(bed: &Testbed, clusters: &[String]) -> Config {
    let resource = |name: &str| {
        let mut resource = ResourceConfig::new(name, name.parse().unwrap());
        resource.projection = Projection::Drop(Vec::new());
        resource.indexes = BTreeMap::from([("by-node".to_owned(), "spec.nodeName".parse().unwrap())]);
        resource
    };
    let tiers = bed.tiers.lock();
    let cluster = |name: &String| {
        let access = ClusterAccess::server(format!("http://{name}.sim"), None, None);
        let mut cluster = ClusterConfig::new(ClusterName::new(name).unwrap(), access);
        cluster.compression = false;
        bed.plan.wire.apply(&mut cluster);
        cluster.labels = tiers.get(name).map(|tier| ("tier".to_owned(), tier.clone())).into_iter().collect();
        cluster
    };
    let mut config = Config::default();
    config.hub.state_dir = bed.plan.has_state.then(|| PathBuf::from(STATE));
    (config.hub.checkpoint, config.hub.fsync) = (bed.plan.checkpoint, bed.plan.fsync);
    config.clusters = clusters.iter().map(cluster).collect();
    config.resources = vec![resource("pods"), resource("widgets.example.com")];
    config.sinks = bed.receivers.iter().map(|receiver| sink(bed, receiver)).collect();
    config
}

fn sink(bed: &Testbed, receiver: &Receiver) -> SinkConfig {
    let mut hook = WebhookConfig::new(format!("http://{}.sim/told", receiver.name));
    hook.timeout = Duration::from_secs(2);
    let mut sink = SinkConfig::new(receiver.name, TransportConfig::Webhook(hook));
    sink.initial = Initial::Replay;
    sink.journal_limit = bed.plan.journal;
    sink.batch.max_wait = Duration::from_millis(50);
    sink.retry = RetryConfig {
        first: Duration::from_millis(100),
        max: Duration::from_secs(20),
        give_up_after: bed.plan.give_up_after,
        refused_for: bed.plan.refused_for,
    };
    sink
}

/// Creates a dialer for clusters or receivers, with a random delay per connection.
fn dial<F>(bed: &Arc<Testbed>, connect: F) -> Dial
where
    F: Fn(&Arc<Testbed>, &str) -> io::Result<DuplexStream> + Send + Sync + 'static,
{
    let (net, connect) = (Arc::clone(bed), Arc::new(connect));
    Dial::new(move |uri| {
        let (net, connect) = (Arc::clone(&net), Arc::clone(&connect));
        let pause = net.random(|rng| rng.random_range(0..20));
        async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let name = uri.host().and_then(|host| host.strip_suffix(".sim")).unwrap_or_default();
            connect(&net, name)
        }
    })
}

async fn start(bed: &Arc<Testbed>, clusters: &[String]) -> Result<Hub, StartError> {
    let receivers = |bed: &Arc<Testbed>, name: &str| {
        let receiver = bed.receivers.iter().find(|receiver| receiver.name == name);
        receiver.map_or(Err(io::ErrorKind::HostUnreachable.into()), |receiver| receiver.connect(bed))
    };
    let mut builder = Hub::builder(config(bed, clusters))
        .tuning(Tuning::default())
        .disk(Arc::new(bed.disk.clone()))
        .dial(dial(bed, |bed, name| bed.clusters[name].connect()))
        .dial_receivers(dial(bed, receivers))
        .keep_history(HistoryLimits { bytes: bed.plan.reads.window_bytes, age: bed.plan.reads.window_age })
        .on_this_thread();
    for (at, reader) in bed.readers.iter().enumerate() {
        let actor = ReaderActor { reader: Arc::clone(reader), bed: Arc::clone(bed) }.start();
        let retry = RetryParams { max: Duration::from_secs(20), ..RetryParams::default() };
        let limits = StoreLimits { journal: bed.plan.journal, ..StoreLimits::default() };
        let mut subscription = DurableSubscription::new(reader.name, actor.recipient())
            .timeout(Duration::from_secs(2))
            .retry(retry)
            .limits(limits);
        if at == 2 {
            subscription = subscription.without_old();
        }
        builder = builder.subscribe_durably(subscription);
    }
    for reader in &bed.readers {
        reader.replica.lock().hub_restarted();
    }
    builder.start().await
}

/// Reloads with random cluster labels and batch sizes.
async fn relabel(bed: &Testbed, hub: &Hub, names: &[String]) {
    for name in names {
        let tier = bed.random(|rng| ["prod", "dev"][rng.random_range(0..2)]);
        bed.tiers.lock().insert(name.clone(), tier.to_owned());
    }
    let mut next = config(bed, names);
    for sink in &mut next.sinks {
        sink.batch.max_events = bed.random(|rng| rng.random_range(2..200));
    }
    let outcome = hub.reloader().reload(next).await;
    bed.note(|| format!("reload with other labels: {}", outcome.is_ok()));
}

/// Removes a cluster from a running hub, or adds all clusters again.
async fn remove_or_readd_cluster(bed: &Testbed, hub: &Hub, names: &mut Vec<String>, transient: &Mutex<Replica>) {
    let is_out = |name: &&String| !names.contains(name);
    let out: Vec<_> = bed.clusters.keys().filter(is_out).cloned().collect();
    if out.is_empty() || bed.random(|rng| rng.random_bool(0.2)) {
        let name = bed.any_cluster().to_owned();
        names.retain(|known| *known != name);
        let outcome = hub.reloader().reload(config(bed, names)).await;
        // Events to the transient subscriber may still be under way.
        tokio::time::sleep(Duration::from_millis(50)).await;
        transient.lock().forget(&format!("{name}/"));
        let is_kept = !has_unsaved_clusters(hub).await;
        bed.note(|| format!("{name} is removed: {}, saved: {is_kept}", outcome.is_ok()));
        if is_kept && outcome.is_ok() {
            bed.saved.lock().insert(name);
        }
    } else {
        *names = bed.clusters.keys().cloned().collect();
        // From here on, the state on disk may lack delivered events, so no cluster may be left out of the next
        // configuration.
        bed.saved.lock().clear();
        let outcome = hub.reloader().reload(config(bed, names)).await;
        bed.note(|| format!("{out:?} are re-added: {}", outcome.is_ok()));
    }
}

/// Returns whether delivered events of some cluster may not be on disk, for example before its first list after a kill
/// is complete. An informer that watches has completed its list or resumed without one.
async fn is_checkpoint_behind(hub: &Hub) -> bool {
    let Ok(report) = hub.report().await else { return true };
    let mut informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
    informers.any(|informer| informer.state != Phase::Watching)
        || report.hub.state_dir.is_none_or(|state| state.held > 0 || state.last_checkpoint.is_none())
}

/// Returns whether a hub holds partitions of removed clusters that it cannot save.
async fn has_unsaved_clusters(hub: &Hub) -> bool {
    let report = hub.report().await.ok();
    report.and_then(|report| report.hub.state_dir).is_none_or(|state| state.leaving > 0)
}

/// Subscribes without a journal from the start of a run.
async fn subscribe_transient(hub: &Hub) -> Arc<Mutex<Replica>> {
    let replica = Arc::new(Mutex::new(Replica::new()));
    for resource in ["pods", "widgets.example.com"] {
        let receiver = Arc::clone(&replica);
        let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
            receiver.lock().apply(notification);
        });
        let subscribe = Subscribe::to_configured(resource, ClusterSelector::All, subscriber).named("transient");
        let _ = hub.registry().send(subscribe).await;
    }
    replica
}

/// Performs a run with random faults.
async fn faulty_run(bed: Arc<Testbed>) -> Result<(), String> {
    let memory = checks::memory_in_use(&bed);
    // Makes changes while no hub runs.
    for _ in 0..bed.random(|rng| rng.random_range(0..20)) {
        bed.random_step();
    }
    if bed.random(|rng| rng.random_bool(0.8)) {
        bed.repair_disk();
    }
    bed.disk.set_lost_sync_rate(bed.plan.lost_syncs);
    bed.start_run();
    // A cluster may be missing from the configuration only if its delivered events are on disk.
    bed.saved.lock().retain(|_| bed.random(|rng| rng.random_bool(0.3)));
    let is_there = |name: &&String| !bed.saved.lock().contains(*name);
    let mut names: Vec<_> = bed.clusters.keys().filter(is_there).cloned().collect();
    bed.note(|| format!("a hub over {names:?} starts"));
    let hub = match start(&bed, &names).await {
        Ok(hub) => hub,
        Err(error) => {
            bed.note(|| format!("does not start: {error}"));
            bed.repair_disk();
            end_process(&bed);
            return Ok(());
        }
    };
    let transient = subscribe_transient(&hub).await;
    let reads = api_reader::connect(&bed, &hub).await;
    let until = clock::now() + Duration::from_millis(bed.random(|rng| rng.random_range(10..10_000)));
    while clock::now() < until {
        let pause = bed.random(|rng| rng.random_range(0..150));
        tokio::time::sleep(Duration::from_millis(pause)).await;
        bed.random_step();
        checks::bounds(&bed)?;
        if bed.random(|rng| rng.random_bool(0.02)) {
            relabel(&bed, &hub, &names).await;
        }
        // A cluster that a failing disk could not save starts empty when it is re-added, without notifications.
        if bed.random(|rng| rng.random_bool(0.02)) && bed.plan.bad_disk == 0.0 {
            remove_or_readd_cluster(&bed, &hub, &mut names, &transient).await;
        }
        if bed.random(|rng| rng.random_bool(0.05)) {
            checks::memory(&bed, &hub, memory).await?;
        }
        if bed.random(|rng| rng.random_bool(0.02)) {
            replay_letters(&bed, &hub).await;
        }
    }
    checks::memory(&bed, &hub, memory).await?;
    if bed.random(|rng| rng.random_bool(0.2)) {
        bed.repair_disk();
        let is_checkpoint_behind = is_checkpoint_behind(&hub).await;
        reads.iter().for_each(LocalReadApi::ending);
        let report = hub.shutdown(Duration::from_secs(5)).await;
        bed.note(|| format!("shut down: {report:?}"));
        if report.undelivered.is_empty() && !is_checkpoint_behind {
            *bed.saved.lock() = bed.clusters.keys().cloned().collect();
        }
        if report.actors_left > 0 {
            return Err(format!("actors left after the shutdown: {report:?}"));
        }
    } else if bed.random(|rng| rng.random_bool(0.5)) {
        // Ends the process in the middle of an operation.
        bed.disk.stop_after(bed.random(|rng| rng.random_range(0..40)));
        let pause = bed.random(|rng| rng.random_range(0..300));
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    end_process(&bed);
    let mut violations: Vec<_> = bed.api_readers.iter().flat_map(|reader| reader.violations()).collect();
    violations.extend(transient.lock().violations().iter().map(|it| format!("transient subscriber: {it}")));
    if violations.is_empty() { Ok(()) } else { Err(format!("{violations:#?}")) }
}

/// Kills the process or cuts the power.
fn end_process(bed: &Testbed) {
    let power = bed.plan.power && bed.random(|rng| rng.random_bool(0.6));
    bed.note(|| format!("the process ends, power loss: {power}"));
    if power {
        bed.disk.crash();
    } else {
        bed.disk.kill();
    }
}

/// Performs a run without faults, at the end of which all readers must have converged.
async fn final_run(bed: Arc<Testbed>) -> Result<(), String> {
    let memory = checks::memory_in_use(&bed);
    bed.heal();
    let names: Vec<_> = bed.clusters.keys().cloned().collect();
    let hub = match start(&bed, &names).await {
        Ok(hub) => hub,
        // After synced data was lost, the hub may refuse to start. The error names the file.
        Err(error @ StartError::State(_)) if bed.plan.lost_syncs > 0.0 && bed.plan.power => {
            bed.note(|| format!("does not start: {error}"));
            return if error.to_string().contains(STATE) { Ok(()) } else { Err(error.to_string()) };
        }
        Err(error) => return Err(format!("the last hub does not start: {error}")),
    };
    let transient = subscribe_transient(&hub).await;
    let reads = api_reader::connect(&bed, &hub).await;
    let until = clock::now() + PATIENCE;
    let guaranteed = bed.plan.guarantees_convergence();
    loop {
        let mut differences_found = cache_mistakes(&bed, &hub).await;
        differences_found.extend(checks::mistakes(&bed, &transient.lock()).iter().map(|it| format!("transient: {it}")));
        for reader in bed.readers.iter().filter(|_| guaranteed) {
            let mistakes = checks::mistakes(&bed, &reader.replica.lock());
            differences_found.extend(mistakes.iter().map(|it| format!("{}: {it}", reader.name)));
        }
        replay_letters(&bed, &hub).await;
        for receiver in bed.receivers.iter().filter(|_| guaranteed) {
            let mistakes = checks::mistakes(&bed, &receiver.replica());
            differences_found.extend(mistakes.iter().map(|it| format!("{}: {it}", receiver.name)));
        }
        if differences_found.is_empty() {
            differences_found.extend(bed.api_readers.iter().flat_map(|reader| reader.mistakes(&bed)));
        }
        if differences_found.is_empty() {
            break;
        }
        if clock::now() > until {
            let report = hub.report().await.map(|it| serde_json::to_string_pretty(&it).unwrap());
            return Err(format!("after {PATIENCE:?}: {differences_found:#?}\n{}", report.unwrap_or_default()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    checks::bounds(&bed)?;
    checks::memory(&bed, &hub, memory).await?;
    bed.note(|| "all readers have converged".to_owned());
    reads.iter().for_each(LocalReadApi::ending);
    let report = hub.shutdown(Duration::from_secs(60)).await;
    if !report.undelivered.is_empty() || report.actors_left > 0 {
        return Err(format!("the last shutdown: {report:?}"));
    }
    let mut violations = transient.lock().violations().to_vec();
    violations.extend(bed.api_readers.iter().flat_map(|reader| reader.violations()));
    for reader in bed.readers.iter().filter(|_| guaranteed) {
        let theirs = checks::violations(&bed, &reader.replica.lock());
        violations.extend(theirs.iter().map(|it| format!("{}: {it}", reader.name)));
    }
    for receiver in bed.receivers.iter().filter(|_| guaranteed && bed.plan.guarantees_order()) {
        violations.extend(receiver.violations().iter().map(|it| format!("{}: {it}", receiver.name)));
    }
    if violations.is_empty() { Ok(()) } else { Err(format!("{violations:#?}")) }
}

/// Replays all dead letters.
async fn replay_letters(bed: &Testbed, hub: &Hub) {
    let reporter = hub.reporter();
    for receiver in &bed.receivers {
        let all = LetterRequest::List { filter: LetterFilter::default(), from: 0, most: usize::MAX };
        let Some(Ok(LetterAnswer::List(letters))) = reporter.letters(receiver.name, all).await else { continue };
        if letters.is_empty() {
            continue;
        }
        let ids: Vec<_> = letters.into_iter().map(|letter| letter.id).collect();
        receiver.expect_replay(&ids);
        let count = ids.len();
        let filter = LetterFilter { ids, ..LetterFilter::default() };
        let answer = reporter.letters(receiver.name, LetterRequest::Replay { filter }).await;
        bed.note(|| format!("{}: {count} dead letters replayed: {answer:?}", receiver.name));
    }
}

async fn cache_mistakes(bed: &Testbed, hub: &Hub) -> Vec<String> {
    let mut differences_found = Vec::new();
    for (name, cluster) in &bed.clusters {
        for (gvr, kind) in checks::resources().into_iter().zip(["Pod", "Widget"]) {
            let only = ClusterSelector::Names(vec![ClusterName::new(name).unwrap()]);
            let resource = ApiResource { gvr: gvr.clone(), kind: kind.into(), namespaced: true };
            let answer = match hub.cache_of(resource).send(Query::list().in_clusters(only)).await {
                Ok(Ok(answer)) => answer,
                failed => {
                    differences_found.push(format!("cache: {failed:?}"));
                    continue;
                }
            };
            let seen = answer
                .items
                .iter()
                .map(|object| (object.key().clone(), (object.uid().clone(), object.resource_version().clone())));
            let differences = Oracle::diff(&cluster.truth(&gvr), &seen.collect());
            differences_found.extend(differences.iter().map(|it| format!("cache: {name}: {gvr}: {it}")));
        }
    }
    differences_found
}

//! The lives of a hub: begun from what is on disk, ended by will, by force, or with the power.

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
use informer_hub::app::{DurableSubscription, Hub, StartError};
use informer_hub::cache::Query;
use informer_hub_config::{
    BatchConfig, ClusterAccess, ClusterConfig, Config, HubConfig, Initial, Projection, ResourceConfig, RetryConfig,
    SinkConfig, TransportConfig, WebhookConfig,
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

use crate::house::{House, STATE};
use crate::judge;
use crate::memory;
use crate::reader::ReaderActor;
use crate::receiver::Receiver;

/// How long the last life has to come to the truth.
const PATIENCE: Duration = Duration::from_secs(400);

/// All lives, one after the other; then whether anything was lost.
pub(crate) fn all(house: &Arc<House>) -> Result<(), String> {
    for life in 0..house.plan.lives {
        on_a_new_thread(house, life, live)??;
    }
    on_a_new_thread(house, house.plan.lives, last)?
}

/// Runs a life on a thread, an actor system and a runtime of its own, which end when it does, whatever is under way.
fn on_a_new_thread<T: Send>(
    house: &Arc<House>,
    life: usize,
    course: impl AsyncFnOnce(Arc<House>) -> T + Send,
) -> Result<T, String> {
    let body = || {
        memory::measure(&house.net);
        let _decided = SeededRng::new(house.plan.seed.wrapping_mul(1000).wrapping_add(life as u64));
        let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let system = System::with_tokio_rt(runtime);
        let done = catch_unwind(AssertUnwindSafe(|| {
            system.block_on(async {
                clock::set_wall(Some(house.wall()));
                let done = course(Arc::clone(house)).await;
                house.set_wall(clock::wall() + Duration::from_secs(1));
                clock::set_wall(None);
                done
            })
        }));
        drop(system);
        (done, judge::panics())
    };
    let (done, panics) = thread::scope(|scope| scope.spawn(body).join()).map_err(|_| "the end of a life panicked")?;
    match done {
        Ok(done) if panics == 0 => Ok(done),
        _ => Err(format!("life {life}: {panics} panics")),
    }
}

fn config(house: &House, clusters: &[String]) -> Config {
    let resource = |name: &str| ResourceConfig {
        projection: Projection::Drop(Vec::new()),
        indexes: BTreeMap::from([("by-node".to_owned(), "spec.nodeName".parse().unwrap())]),
        ..ResourceConfig::new(name, name.parse().unwrap())
    };
    let cluster = |name: &String| ClusterConfig {
        name: ClusterName::new(name).unwrap(),
        labels: BTreeMap::default(),
        access: ClusterAccess::Server { server: format!("http://{name}.sim"), ca_file: None, token: None },
        compression: false,
    };
    let hub = HubConfig {
        state_dir: Some(PathBuf::from(STATE)),
        checkpoint: house.plan.checkpoint,
        fsync: house.plan.fsync,
        ..HubConfig::default()
    };
    Config {
        hub,
        clusters: clusters.iter().map(cluster).collect(),
        sources: Vec::new(),
        resources: vec![resource("pods"), resource("widgets.example.com")],
        sinks: house.receivers.iter().map(|receiver| sink(house, receiver)).collect(),
    }
}

fn sink(house: &House, receiver: &Receiver) -> SinkConfig {
    let hook = WebhookConfig {
        url: format!("http://{}.sim/told", receiver.name),
        timeout: Duration::from_secs(2),
        ..WebhookConfig::default()
    };
    let defaults = SinkConfig::new(receiver.name, TransportConfig::Webhook(hook));
    let (give_up_after, refused_for) = (house.plan.give_up_after, house.plan.refused_for);
    SinkConfig {
        initial: Initial::Replay,
        journal_limit: house.plan.journal,
        batch: BatchConfig { max_wait: Duration::from_millis(50), ..defaults.batch },
        retry: RetryConfig {
            first: Duration::from_millis(100),
            max: Duration::from_secs(20),
            give_up_after,
            refused_for,
        },
        ..defaults
    }
}

/// What opens connections to clusters, or to receivers: each takes a moment.
fn dial<F>(house: &Arc<House>, connect: F) -> Dial
where
    F: Fn(&Arc<House>, &str) -> io::Result<DuplexStream> + Send + Sync + 'static,
{
    let (net, connect) = (Arc::clone(house), Arc::new(connect));
    Dial::new(move |uri| {
        let (net, connect) = (Arc::clone(&net), Arc::clone(&connect));
        let pause = net.chance(|rng| rng.random_range(0..20));
        async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let name = uri.host().and_then(|host| host.strip_suffix(".sim")).unwrap_or_default();
            connect(&net, name)
        }
    })
}

async fn start(house: &Arc<House>, clusters: &[String]) -> Result<Hub, StartError> {
    let receivers = |house: &Arc<House>, name: &str| {
        let receiver = house.receivers.iter().find(|receiver| receiver.name == name);
        receiver.map_or(Err(io::ErrorKind::HostUnreachable.into()), |receiver| receiver.connect(house))
    };
    let mut builder = Hub::builder(config(house, clusters))
        .tuning(Tuning::default())
        .disk(Arc::new(house.disk.clone()))
        .dial(dial(house, |house, name| house.clusters[name].connect()))
        .dial_receivers(dial(house, receivers))
        .on_this_thread();
    for (at, reader) in house.readers.iter().enumerate() {
        let actor = ReaderActor { reader: Arc::clone(reader), house: Arc::clone(house) }.start();
        let retry = RetryParams { max: Duration::from_secs(20), ..RetryParams::default() };
        let limits = StoreLimits { journal: house.plan.journal, ..StoreLimits::default() };
        let mut subscription = DurableSubscription::new(reader.name, actor.recipient())
            .timeout(Duration::from_secs(2))
            .retry(retry)
            .limits(limits);
        if at == 2 {
            subscription = subscription.without_old();
        }
        builder = builder.subscribe_durably(subscription);
    }
    for reader in &house.readers {
        reader.replica.lock().hub_restarted();
    }
    builder.start().await
}

/// Gives the clusters of a running hub other labels, and has its sinks batch in another way.
async fn relabel(house: &House, hub: &Hub, names: &[String]) {
    let mut next = config(house, names);
    for cluster in &mut next.clusters {
        let tier = house.chance(|rng| ["prod", "dev"][rng.random_range(0..2)]);
        cluster.labels = BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
    }
    for sink in &mut next.sinks {
        sink.batch.max_events = house.chance(|rng| rng.random_range(2..200));
    }
    let outcome = hub.reloader().reload(next).await;
    house.note(|| format!("other labels: {}", outcome.is_ok()));
}

/// Takes a cluster out of a running hub, or puts all back.
async fn take_out_or_put_back(house: &House, hub: &Hub, names: &mut Vec<String>, passing: &Mutex<Replica>) {
    let is_out = |name: &&String| !names.contains(name);
    let out: Vec<_> = house.clusters.keys().filter(is_out).cloned().collect();
    if out.is_empty() || house.chance(|rng| rng.random_bool(0.2)) {
        let name = house.any_cluster().to_owned();
        names.retain(|known| *known != name);
        let outcome = hub.reloader().reload(config(house, names)).await;
        // What was on its way to whom nobody waits for.
        tokio::time::sleep(Duration::from_millis(50)).await;
        passing.lock().forget(&format!("{name}/"));
        let is_kept = !is_leaving(hub).await;
        house.note(|| format!("{name} is taken out: {}, put away: {is_kept}", outcome.is_ok()));
        if is_kept && outcome.is_ok() {
            house.put_away.lock().insert(name);
        }
    } else {
        *names = house.clusters.keys().cloned().collect();
        // From here on the disk may be behind what readers are told.
        house.put_away.lock().clear();
        let outcome = hub.reloader().reload(config(house, names)).await;
        house.note(|| format!("{out:?} are back: {}", outcome.is_ok()));
    }
}

/// Whether the disk may lack what readers were told of some cluster: one of which no list has been complete since a kill, say.
/// Of an informer that watches, one has, or none was needed.
async fn is_behind(hub: &Hub) -> bool {
    let Ok(report) = hub.report().await else { return true };
    let mut informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
    informers.any(|informer| informer.state != Phase::Watching)
        || report.hub.state_dir.is_none_or(|state| state.held > 0 || state.last_checkpoint.is_none())
}

/// Whether a hub has partitions of clusters that were taken out, and cannot put them away.
async fn is_leaving(hub: &Hub) -> bool {
    let report = hub.report().await.ok();
    report.and_then(|report| report.hub.state_dir).is_none_or(|state| state.leaving > 0)
}

/// Somebody who is told without a journal, from the beginning of each life.
async fn overhear(hub: &Hub) -> Arc<Mutex<Replica>> {
    let replica = Arc::new(Mutex::new(Replica::new()));
    for resource in ["pods", "widgets.example.com"] {
        let told = Arc::clone(&replica);
        let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
            told.lock().apply(notification);
        });
        let subscribe = Subscribe::to_configured(resource, ClusterSelector::All, subscriber).named("passing");
        let _ = hub.registry().send(subscribe).await;
    }
    replica
}

/// A life in which anything may happen.
async fn live(house: Arc<House>) -> Result<(), String> {
    let memory = judge::footing(&house);
    // What happens while nobody looks.
    for _ in 0..house.chance(|rng| rng.random_range(0..20)) {
        house.happen();
    }
    if house.chance(|rng| rng.random_bool(0.8)) {
        house.mend_the_disk();
    }
    house.disk.set_lie_rate(house.plan.lies);
    house.begin_a_life();
    // Who takes a cluster out of the configuration ends the hub in order before, or has the running hub take it out.
    house.put_away.lock().retain(|_| house.chance(|rng| rng.random_bool(0.3)));
    let is_there = |name: &&String| !house.put_away.lock().contains(*name);
    let mut names: Vec<_> = house.clusters.keys().filter(is_there).cloned().collect();
    house.note(|| format!("a hub of {names:?}"));
    let hub = match start(&house, &names).await {
        Ok(hub) => hub,
        Err(error) => {
            house.note(|| format!("does not start: {error}"));
            house.mend_the_disk();
            end(&house);
            return Ok(());
        }
    };
    let passing = overhear(&hub).await;
    let until = clock::now() + Duration::from_millis(house.chance(|rng| rng.random_range(10..10_000)));
    while clock::now() < until {
        let pause = house.chance(|rng| rng.random_range(0..150));
        tokio::time::sleep(Duration::from_millis(pause)).await;
        house.happen();
        judge::bounds(&house)?;
        if house.chance(|rng| rng.random_bool(0.02)) {
            relabel(&house, &hub, &names).await;
        }
        // What a disk that fails does not take a cluster begins anew with, which is told to nobody.
        if house.chance(|rng| rng.random_bool(0.02)) && house.plan.bad_disk == 0.0 {
            take_out_or_put_back(&house, &hub, &mut names, &passing).await;
        }
        if house.chance(|rng| rng.random_bool(0.05)) {
            judge::memory(&house, &hub, memory).await?;
        }
        if house.chance(|rng| rng.random_bool(0.02)) {
            replay_letters(&house, &hub).await;
        }
    }
    judge::memory(&house, &hub, memory).await?;
    if house.chance(|rng| rng.random_bool(0.2)) {
        house.mend_the_disk();
        let is_behind = is_behind(&hub).await;
        let report = hub.shutdown(Duration::from_secs(5)).await;
        house.note(|| format!("shut down: {report:?}"));
        if report.undelivered.is_empty() && !is_behind {
            *house.put_away.lock() = house.clusters.keys().cloned().collect();
        }
        if report.actors_left > 0 {
            return Err(format!("the shutdown left somebody: {report:?}"));
        }
    } else if house.chance(|rng| rng.random_bool(0.5)) {
        // In the middle of something.
        house.disk.stop_after(house.chance(|rng| rng.random_range(0..40)));
        let pause = house.chance(|rng| rng.random_range(0..300));
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    end(&house);
    let violations = passing.lock().violations().to_vec();
    if violations.is_empty() { Ok(()) } else { Err(format!("who listened without a journal: {violations:#?}")) }
}

/// The end of the process, or of the machine.
fn end(house: &House) {
    let power = house.plan.power && house.chance(|rng| rng.random_bool(0.6));
    house.note(|| format!("the end; of the machine: {power}"));
    if power {
        house.disk.crash();
    } else {
        house.disk.kill();
    }
}

/// A life in which all is well, at the end of which everybody has the truth.
async fn last(house: Arc<House>) -> Result<(), String> {
    let memory = judge::footing(&house);
    house.heal();
    let names: Vec<_> = house.clusters.keys().cloned().collect();
    let hub = match start(&house, &names).await {
        Ok(hub) => hub,
        // A disk that lied is to be replaced, and says which file it is.
        Err(error @ StartError::State(_)) if house.plan.lies > 0.0 && house.plan.power => {
            house.note(|| format!("does not start: {error}"));
            return if error.to_string().contains(STATE) { Ok(()) } else { Err(error.to_string()) };
        }
        Err(error) => return Err(format!("the last hub does not start: {error}")),
    };
    let passing = overhear(&hub).await;
    let until = clock::now() + PATIENCE;
    let promised = house.plan.keeps_promises();
    loop {
        let mut wrong = cache_mistakes(&house, &hub).await;
        wrong.extend(judge::mistakes(&house, &passing.lock()).iter().map(|it| format!("passing: {it}")));
        for reader in house.readers.iter().filter(|_| promised) {
            let mistakes = judge::mistakes(&house, &reader.replica.lock());
            wrong.extend(mistakes.iter().map(|it| format!("{}: {it}", reader.name)));
        }
        replay_letters(&house, &hub).await;
        for receiver in house.receivers.iter().filter(|_| promised) {
            let mistakes = judge::mistakes(&house, &receiver.replica());
            wrong.extend(mistakes.iter().map(|it| format!("{}: {it}", receiver.name)));
        }
        if wrong.is_empty() {
            break;
        }
        if clock::now() > until {
            let report = hub.report().await.map(|it| serde_json::to_string_pretty(&it).unwrap());
            return Err(format!("after {PATIENCE:?}: {wrong:#?}\n{}", report.unwrap_or_default()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    judge::bounds(&house)?;
    judge::memory(&house, &hub, memory).await?;
    house.note(|| "everybody has the truth".to_owned());
    let report = hub.shutdown(Duration::from_secs(60)).await;
    if !report.undelivered.is_empty() || report.actors_left > 0 {
        return Err(format!("the last shutdown: {report:?}"));
    }
    let mut violations = passing.lock().violations().to_vec();
    for reader in house.readers.iter().filter(|_| promised) {
        let theirs = judge::violations(&house, &reader.replica.lock());
        violations.extend(theirs.iter().map(|it| format!("{}: {it}", reader.name)));
    }
    for receiver in house.receivers.iter().filter(|_| promised && house.plan.keeps_order()) {
        violations.extend(receiver.violations().iter().map(|it| format!("{}: {it}", receiver.name)));
    }
    if violations.is_empty() { Ok(()) } else { Err(format!("{violations:#?}")) }
}

/// Has what webhooks did not take delivered again.
async fn replay_letters(house: &House, hub: &Hub) {
    let reporter = hub.reporter();
    for receiver in &house.receivers {
        let all = LetterRequest::List { filter: LetterFilter::default(), from: 0, most: usize::MAX };
        let Some(Ok(LetterAnswer::List(letters))) = reporter.letters(receiver.name, all).await else { continue };
        if letters.is_empty() {
            continue;
        }
        let ids: Vec<_> = letters.into_iter().map(|letter| letter.id).collect();
        receiver.expect_again(&ids);
        let count = ids.len();
        let filter = LetterFilter { ids, ..LetterFilter::default() };
        let answer = reporter.letters(receiver.name, LetterRequest::Replay { filter }).await;
        house.note(|| format!("{}: {count} dead letters again: {answer:?}", receiver.name));
    }
}

async fn cache_mistakes(house: &House, hub: &Hub) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, cluster) in &house.clusters {
        for (gvr, kind) in judge::resources().into_iter().zip(["Pod", "Widget"]) {
            let only = ClusterSelector::Names(vec![ClusterName::new(name).unwrap()]);
            let resource = ApiResource { gvr: gvr.clone(), kind: kind.into(), namespaced: true };
            let answer = match hub.cache_of(resource).send(Query::list().in_clusters(only)).await {
                Ok(Ok(answer)) => answer,
                failed => {
                    wrong.push(format!("cache: {failed:?}"));
                    continue;
                }
            };
            let seen = answer
                .items
                .iter()
                .map(|object| (object.key().clone(), (object.uid().clone(), object.resource_version().clone())));
            let differences = Oracle::diff(&cluster.truth(&gvr), &seen.collect());
            wrong.extend(differences.iter().map(|it| format!("cache: {name}: {gvr}: {it}")));
        }
    }
    wrong
}

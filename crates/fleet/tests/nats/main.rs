//! The log, ownership, checkpoints and leases on a real `nats-server`. Needs Go, so `cargo test` leaves it out.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod collector;
mod server;

use std::time::Duration;

use informer_hub_fleet::checkpoint::{CheckpointReader, CheckpointWriter};
use informer_hub_fleet::jetstream::{
    Buckets, Checkpoints, FixedLimits, JetStreamLog, Leases, LogParams, NatsError, Owners, RosterBucket, Tail,
};
use informer_hub_fleet::kept::Retained;
use informer_hub_fleet::reader::PartitionState;
use informer_hub_fleet::roster::{Member, RosterItem};
use informer_hub_fleet::writer::FenceReason;
use informer_hub_fleet::{
    Entry, EntryPage, Ownership, Partition, ReadOutcome, Reader, Record, ResetReason, Subjects, Writer, WriterEvent,
};
use informer_hub_lease as lease;
use informer_hub_lease::memory::MemoryStore;
use informer_hub_types::{ObjectKey, ResourceVersion, Uid};

use rand::{Rng as _, SeedableRng as _};

use collector::{Collector, params, partition, subjects};
use server::{DEADLINE, Servers, within};

fn put(version: u64) -> Record {
    Record::Put {
        key: ObjectKey::new("ns", &(version % 7).to_string()),
        uid: Uid::new("u"),
        version: ResourceVersion::new(&version.to_string()),
        body: format!("{{\"version\":{version}}}").into(),
    }
}

const RESTART: Record = Record::Reset { reason: ResetReason::Restart };

/// Opens a tail. While a cluster elects a leader of the stream, it answers no requests.
async fn open_tail(log: &JetStreamLog, after: u64, filter: String) -> Tail {
    within("a tail", async {
        loop {
            match log.tail(after, filter.clone()).await {
                Ok(tail) => return tail,
                Err(error) => eprintln!("{error}: {:?}", std::error::Error::source(&error)),
            }
        }
    })
    .await
}

async fn next(tail: &mut Tail) -> Entry {
    within("an entry", tail.next()).await.unwrap().expect("the tail goes on")
}

/// Reads a partition up to the object with the version `last`. Returns the versions of its objects in order.
async fn versions(log: &JetStreamLog, partition: &Partition, last: u64) -> Vec<u64> {
    let mut tail = open_tail(log, 0, subjects().all()).await;
    let (mut reader, mut found) = (Reader::new(), Vec::new());
    while found.last() != Some(&last) {
        let entry = next(&mut tail).await;
        match reader.read(&entry).unwrap() {
            ReadOutcome::Records(records) if entry.partition == *partition => {
                found.extend(records.iter().filter_map(|record| match record {
                    Record::Put { version, .. } => version.as_number(),
                    _ => None,
                }));
            }
            ReadOutcome::Records(_) | ReadOutcome::Nothing => {}
            // The claim before the full list.
            ReadOutcome::Incomplete if found.is_empty() => {}
            other => panic!("{other:?} of {entry:?}"),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successor_fences_the_former_owner_and_the_log_has_each_record_once() {
    let servers = Servers::start(1).await;
    let (mut first, c) = (Collector::start(&servers, 1).await, partition("c"));
    first.claim(&c, 1).await;
    first.offer(&c, &RESTART).await;
    for version in 1..=500 {
        first.offer(&c, &put(version)).await;
    }
    first.flush().await;
    let mut second = Collector::start(&servers, 1).await;
    second.claim(&c, 2).await;
    // The first collector does not know yet that another one has claimed the partition.
    first.writer.offer(&c, &put(501)).unwrap();
    let fenced = first.until("fencing", |event| matches!(event, WriterEvent::Fenced { .. })).await;
    assert_eq!(fenced, WriterEvent::Fenced { partition: c.clone(), reason: FenceReason::Epoch(2) });
    for version in 501..=600 {
        second.offer(&c, &put(version)).await;
    }
    second.flush().await;
    assert_eq!(versions(&second.log, &c, 600).await, (1..=600).collect::<Vec<_>>());
    // A third collector, whose epoch is older than the owner's, does not get the partition at all.
    let mut late = Collector::start(&servers, 1).await;
    late.writer.open(c.clone(), 1);
    let fenced = late.until("fencing", |event| matches!(event, WriterEvent::Fenced { .. })).await;
    assert_eq!(fenced, WriterEvent::Fenced { partition: c.clone(), reason: FenceReason::Epoch(2) });
    let entries = all_entries(&second.log, &c, 100 << 10).await;
    let Retained { first, last, .. } = second.log.retained().await.unwrap();
    assert!(
        entries.iter().map(|entry| entry.sequence).eq(first..=last),
        "a tail finds removed entries by their sequences"
    );
    assert_eq!(all_entries(&second.log, &c, 1).await, entries, "pages of one entry have the same entries");
    assert_eq!(second.log.entries(&c, last, 1).await.unwrap(), Some(EntryPage::new(last)));
    assert_eq!(second.log.entries(&partition("other"), 0, 1).await.unwrap(), None);
}

/// Reads all entries of a partition in pages. Each page but the last has at least `page_bytes`, and would not have them
/// without its last entry.
async fn all_entries(log: &JetStreamLog, of: &Partition, page_bytes: usize) -> Vec<Entry> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = log.entries(of, after, page_bytes).await.unwrap().unwrap();
        let sizes: Vec<_> = page.entries.iter().map(|entry| entry.payload.len()).collect();
        let (last, others) = sizes.split_last().unwrap();
        let bytes: usize = others.iter().sum();
        assert!(bytes < page_bytes && (bytes + last >= page_bytes || !page.has_more()));
        let has_more = page.has_more();
        all.extend(page.entries);
        after = all.last().map_or(0, |entry| entry.sequence);
        if !has_more {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_and_doubles_no_record() {
    let mut servers = Servers::start(1).await;
    let (mut collector, c) = (Collector::start(&servers, 1).await, partition("c"));
    collector.claim(&c, 1).await;
    collector.offer(&c, &RESTART).await;
    for version in 1..=3000 {
        collector.offer(&c, &put(version)).await;
        if version % 1000 == 500 {
            servers.kill(0);
            servers.restart(0).await;
        }
    }
    collector.flush().await;
    assert_eq!(versions(&collector.log, &c, 3000).await, (1..=3000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_of_three_goes_on_without_any_one_node() {
    let mut servers = Servers::start(3).await;
    let mut collector = Collector::start(&servers, 3).await;
    let partitions = [partition("c"), partition("d")];
    let mut tail = open_tail(&collector.log, 0, subjects().all()).await;
    for partition in &partitions {
        collector.claim(partition, 1).await;
        collector.offer(partition, &RESTART).await;
    }
    // Kills each node in turn, and so also the leader of the stream.
    for node in 0..3 {
        for round in 0..300 {
            if round == 100 {
                servers.kill(node);
            }
            for partition in &partitions {
                collector.offer(partition, &put(node as u64 * 300 + round + 1)).await;
            }
        }
        collector.flush().await;
        servers.restart(node).await;
        servers.until_replicated(&collector.client, "test-log", 3).await;
    }
    for partition in &partitions {
        assert_eq!(versions(&collector.log, partition, 900).await, (1..=900).collect::<Vec<_>>());
    }
    // The tail that was open all the time has no gap either.
    let (mut reader, mut seen) = (Reader::new(), 0);
    while seen < 1800 {
        let entry = next(&mut tail).await;
        match reader.read(&entry).unwrap() {
            ReadOutcome::Records(records) => {
                seen += records.iter().filter(|record| matches!(record, Record::Put { .. })).count();
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::Incomplete if seen == 0 => {}
            other => panic!("{other:?} of {entry:?}"),
        }
    }
    assert_eq!(seen, 1800);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_stream_is_noticed_by_writer_and_reader() {
    let servers = Servers::start(1).await;
    let (mut collector, c) = (Collector::start(&servers, 1).await, partition("c"));
    collector.claim(&c, 1).await;
    collector.offer(&c, &RESTART).await;
    collector.flush().await;
    let mut reader = Reader::new();
    let mut tail = open_tail(&collector.log, 0, subjects().all()).await;
    while reader.state(&c).is_none_or(|state| !state.complete) {
        reader.read(&next(&mut tail).await).unwrap();
    }
    let before = reader.position();
    let context = async_nats::jetstream::new(collector.client.clone());
    context.delete_stream("test-log").await.unwrap();
    let mut successor = Collector::start(&servers, 1).await;
    collector.writer.offer(&c, &put(1)).unwrap();
    let fenced = collector.until("fencing", |event| matches!(event, WriterEvent::Fenced { .. })).await;
    assert_eq!(fenced, WriterEvent::Fenced { partition: c.clone(), reason: FenceReason::LogChanged });
    successor.claim(&c, 2).await;
    let mut tail = open_tail(&successor.log, before, subjects().all()).await;
    let entry = next(&mut tail).await;
    assert!(entry.sequence > before, "sequences never repeat");
    assert!(matches!(reader.read(&entry), Ok(ReadOutcome::Gap(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_leaves_a_gap_that_the_reader_finds() {
    let servers = Servers::start(1).await;
    let client = servers.client().await;
    let small = LogParams { max_bytes: 20_000, ..params(1) };
    let log = JetStreamLog::open(client.clone(), small).await.unwrap();
    let (mut collector, c) = (Collector::with(client, log), partition("c"));
    collector.claim(&c, 1).await;
    collector.offer(&c, &RESTART).await;
    collector.flush().await;
    let mut reader = Reader::new();
    let mut tail = open_tail(&collector.log, 0, subjects().all()).await;
    while reader.state(&c).is_none_or(|state| !state.complete) {
        reader.read(&next(&mut tail).await).unwrap();
    }
    drop(tail);
    for version in 1..=500 {
        collector.offer(&c, &put(version)).await;
        collector.flush().await;
    }
    let mut tail = open_tail(&collector.log, reader.position(), subjects().all()).await;
    assert!(matches!(reader.read(&next(&mut tail).await), Ok(ReadOutcome::Gap(_))));
    assert_eq!(reader.incomplete().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_log_keeps_the_limits_that_a_process_does_not_fix() {
    let servers = Servers::start(1).await;
    let client = servers.client().await;
    let context = async_nats::jetstream::new(client.clone());
    let limits = async || {
        let config = context.get_stream("test-log").await.unwrap().cached_info().config.clone();
        (config.max_age.as_secs(), config.max_bytes)
    };
    let open = async |seconds, max_bytes, fixed| {
        let max_age = Duration::from_secs(seconds);
        let params = LogParams { max_age, max_bytes, fixed, ..params(1) };
        JetStreamLog::open(client.clone(), params).await.unwrap()
    };
    open(600, 1 << 20, FixedLimits::default()).await;
    assert_eq!(limits().await, (600, 1 << 20), "a new log has the limits of its first process");
    let log = open(60, 1 << 30, FixedLimits::default()).await;
    assert_eq!(limits().await, (600, 1 << 20));
    open(60, 2 << 20, FixedLimits { max_bytes: true, ..FixedLimits::default() }).await;
    assert_eq!(limits().await, (600, 2 << 20));
    context.delete_stream("test-log").await.unwrap();
    assert!(log.restore().await.unwrap());
    assert_eq!(limits().await, (600, 1 << 20), "as the process has found it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_of_one_copy_get_the_copies_of_the_log() {
    let servers = Servers::start(3).await;
    let client = servers.client().await;
    let context = async_nats::jetstream::new(client.clone());
    let buckets = |replicas| Buckets::new(client.clone(), &subjects(), replicas, Duration::from_secs(2));
    // A request is lost while the servers elect a leader.
    within("the buckets exist", async { while buckets(1).restore().await.is_err() {} }).await;
    RosterBucket::open(client.clone(), &subjects(), 1, DEADLINE).await.unwrap();
    within("they have three copies", async { while buckets(3).fix_replicas().await.is_err() {} }).await;
    for name in
        ["KV_test-owners", "KV_test-clusters", "KV_test-checkpoints", "OBJ_test-checkpoints", "KV_test-collectors"]
    {
        let stream = context.get_stream(name).await.unwrap();
        assert_eq!(stream.cached_info().config.num_replicas, 3, "{name}");
    }
    assert!(context.get_stream("KV_test-leases").await.is_err(), "it is not created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_stream_is_refused_with_the_remedy() {
    let servers = Servers::start(1).await;
    let client = servers.client().await;
    let config = async_nats::jetstream::stream::Config { name: "test-log".into(), ..Default::default() };
    async_nats::jetstream::new(client.clone()).create_stream(config).await.unwrap();
    let error = JetStreamLog::open(client, params(1)).await.unwrap_err();
    assert!(matches!(error, NatsError::ForeignStream(_)) && error.to_string().contains("choose another"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_claims_wins_and_the_loser_cannot_renew() {
    let servers = Servers::start(1).await;
    let owners = Owners::open(servers.client().await, subjects(), 1, DEADLINE).await.unwrap();
    let cluster = "prod-eu.1.".parse().unwrap();
    assert_eq!(owners.get(&cluster).await.unwrap(), None);
    let first = owners.claim(&cluster, "a", None, 0).await.unwrap().expect("the first claim wins");
    assert_eq!((first.epoch, owners.claim(&cluster, "b", None, 0).await.unwrap()), (1, None));
    let renewed = owners.renew(&first).await.unwrap().expect("it is held");
    assert!(renewed.epoch == 1 && renewed.revision > first.revision);
    assert_eq!(owners.claim(&cluster, "b", Some(&first), 0).await.unwrap(), None, "it was renewed since");
    let seen = owners.get(&cluster).await.unwrap();
    assert_eq!(seen.as_ref(), Some(&renewed));
    let second = owners.claim(&cluster, "b", seen.as_ref(), 7).await.unwrap().expect("the owner did not renew");
    assert_eq!((second.epoch, second.collector.as_str()), (8, "b"), "newer than the newest epoch in the log");
    assert_eq!(owners.renew(&renewed).await.unwrap(), None);
    assert!(!owners.release(&renewed).await.unwrap() && owners.release(&second).await.unwrap());
    let released = owners.get(&cluster).await.unwrap().unwrap();
    assert_eq!((released.epoch, released.collector.as_str()), (8, ""), "the epoch outlives its owner");
    let third = owners.claim(&cluster, "c", Some(&released), 0).await.unwrap().unwrap();
    let weighed = owners.renew(&Ownership { weight: 12, ..third }).await.unwrap().unwrap();
    assert!(owners.release(&Ownership { next: "d".to_owned(), ..weighed }).await.unwrap());
    let released = owners.get(&cluster).await.unwrap().unwrap();
    assert_eq!((released.collector.as_str(), released.next.as_str(), released.weight), ("", "d", 12));
    assert_eq!(owners.all().await.unwrap(), [released]);
    let found = Owners::find(servers.client().await, subjects(), DEADLINE).await.unwrap();
    assert_eq!(found.unwrap().all().await.unwrap().len(), 1);
    let other = Subjects::new("other").unwrap();
    assert!(Owners::find(servers.client().await, other, DEADLINE).await.unwrap().is_none(), "it creates nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_answers_as_the_store_in_memory() {
    let seed = 5;
    println!("seed {seed}");
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    let mut servers = Servers::start(1).await;
    let leases = Leases::open(servers.client().await, &subjects(), 1, DEADLINE).await.unwrap();
    let mut expected = MemoryStore::default();
    // Revision of the bucket before its first entry.
    let mut begin = 0;
    let bucket = |version: &str, begin: u64| (version.parse::<u64>().unwrap() + begin).to_string().into();
    for round in 0..200_u64 {
        // Large enough for the progress of many sinks, and within the server's limit of a message.
        let note = "n".repeat(rng.random_range(0..512 << 10)).into();
        let lease_duration = Duration::from_millis(rng.random_range(0..60_000));
        let record = lease::Record { holder: format!("hub-{round}").into(), lease_duration, transitions: round, note };
        let version: u64 = rng.random_range(1..round / 3 + 2);
        let request = match rng.random_range(0..6) {
            0 => lease::Request::Create(record),
            1 => lease::Request::Get,
            _ => lease::Request::Update { record, version: version.to_string().into() },
        };
        let answer = expected.apply(&request);
        let request = match request {
            lease::Request::Update { record, version } => {
                lease::Request::Update { record, version: bucket(&version, begin) }
            }
            other => other,
        };
        let found = leases.execute("sinks", &request).await.unwrap();
        if let (lease::Answer::Written(revision), 0) = (&found, begin) {
            begin = revision.parse::<u64>().unwrap() - 1;
        }
        let answer = match answer {
            lease::Answer::Written(version) => lease::Answer::Written(bucket(&version, begin)),
            lease::Answer::Found { record, version } => {
                lease::Answer::Found { record, version: bucket(&version, begin) }
            }
            other => other,
        };
        assert_eq!(found, answer, "{round}");
        if round == 100 {
            servers.kill(0);
            servers.restart(0).await;
        }
    }
    assert_eq!(leases.execute("other", &lease::Request::Get).await.unwrap(), lease::Answer::Missing);
}

/// Returns a checkpoint of 200 objects up to a sequence.
fn written(applied: u64) -> Vec<u8> {
    let resume = Some(ResourceVersion::new("5"));
    let state = PartitionState { applied, last: applied, resume, complete: true, ..PartitionState::default() };
    let mut writer = CheckpointWriter::new(Vec::new(), &state).unwrap();
    (0..200).for_each(|version| writer.put(&put(version)).unwrap());
    writer.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_whose_contents_are_lost_is_passed_over_and_stored_again() {
    let servers = Servers::start(1).await;
    let (client, c) = (servers.client().await, partition("c"));
    let timeout = Duration::from_secs(1);
    let checkpoints = Checkpoints::open(client.clone(), subjects(), 1, timeout).await.unwrap();
    let log = Retained { first: 1, last: 100, middle: 0, is_half_full: false, max_age: DEADLINE };
    checkpoints.save(&c, 10, log, "a", &written(10)).await.unwrap();
    let newest = checkpoints.save(&c, 50, log, "a", &written(50)).await.unwrap().unwrap();
    let context = async_nats::jetstream::new(client);
    let info = context.get_object_store("test-checkpoints").await.unwrap().info(&newest).await.unwrap();
    let stream = context.get_stream("OBJ_test-checkpoints").await.unwrap();
    stream.purge().filter(format!("$O.test-checkpoints.C.{}", info.nuid)).await.unwrap();
    let loaded = async || {
        let bytes = within("an answer", checkpoints.load(&c, None, 1 << 20)).await.unwrap().unwrap();
        CheckpointReader::new(&*bytes).unwrap().state().applied
    };
    assert_eq!(loaded().await, 10);
    for stored in [true, false] {
        let again = checkpoints.save(&c, 50, log, "a", &written(50)).await.unwrap();
        assert_eq!(again.is_some(), stored);
        assert_eq!(loaded().await, 50);
    }
    checkpoints.save(&c, 90, log, "a", &written(90)).await.unwrap().unwrap();
    assert_eq!(loaded().await, 90);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newest_checkpoint_wins_and_obsolete_objects_are_deleted() {
    let servers = Servers::start(1).await;
    let (client, c) = (servers.client().await, partition("c"));
    let checkpoints = Checkpoints::open(client.clone(), subjects(), 1, DEADLINE).await.unwrap();
    assert_eq!(checkpoints.load(&c, None, 1 << 20).await.unwrap(), None);
    let log = |first: u64| Retained { first, last: 100, middle: 0, is_half_full: false, max_age: DEADLINE };
    for (sequence, saved) in [(10, true), (30, true), (20, false), (30, false), (50, true), (70, true)] {
        let name = checkpoints.save(&c, sequence, log(1), "a", &written(sequence)).await.unwrap();
        assert_eq!(name.is_some(), saved, "{sequence}");
    }
    let loaded = async |before: Option<u64>| {
        let bytes = checkpoints.load(&c, before, 1 << 20).await.unwrap()?;
        let checkpoint = CheckpointReader::new(&*bytes).unwrap();
        let applied = checkpoint.state().applied;
        assert_eq!(checkpoint.count(), 200);
        Some(applied)
    };
    for (before, found) in [(None, Some(70)), (Some(70), Some(50)), (Some(50), Some(10)), (Some(10), None)] {
        assert_eq!(loaded(before).await, found, "before {before:?}");
    }
    let too_large = checkpoints.load(&c, None, 10).await;
    assert!(matches!(too_large, Err(NatsError::TooLarge { limit: 10, .. })));
    let objects = async_nats::jetstream::new(client).get_object_store("test-checkpoints").await.unwrap();
    let count = async || futures::StreamExt::count(objects.list().await.unwrap()).await;
    assert_eq!(count().await, 3);
    // The log now begins after the oldest checkpoint, which is therefore deleted.
    checkpoints.save(&c, 90, log(40), "a", &written(90)).await.unwrap();
    for (before, found) in [(None, Some(90)), (Some(90), Some(70)), (Some(70), Some(50)), (Some(50), None)] {
        assert_eq!(loaded(before).await, found, "before {before:?}");
    }
    assert_eq!(count().await, 3);
    // Without the objects, the same checkpoint is stored again.
    let created = checkpoints.created().await.unwrap();
    let (context, buckets) = (
        async_nats::jetstream::new(servers.client().await),
        Buckets::new(servers.client().await, &subjects(), 1, DEADLINE),
    );
    context.delete_object_store("test-checkpoints").await.unwrap();
    assert_eq!(buckets.restore().await.unwrap(), ["test-owners", "test-clusters", "object store test-checkpoints"]);
    assert_eq!(buckets.restore().await.unwrap(), [""; 0]);
    assert!(checkpoints.created().await.unwrap() > created);
    assert_eq!(checkpoints.load(&c, None, 1 << 20).await.unwrap(), None);
    checkpoints.save(&c, 90, log(40), "a", &written(90)).await.unwrap().expect("the stored one is lost");
    assert_eq!(loaded(None).await, Some(90));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_object_passes_in_parts() {
    let servers = Servers::start(1).await;
    let (mut collector, c) = (Collector::start(&servers, 1).await, partition("c"));
    collector.claim(&c, 1).await;
    // Incompressible, and larger than the server's limit of a message.
    let mut state = 1_u64;
    let body: Vec<u8> = (0..3 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    let (key, uid, version) = (ObjectKey::new("ns", "large"), Uid::new("u"), ResourceVersion::new("1"));
    let large = Record::Put { key, uid, version, body: body.into() };
    collector.offer(&c, &RESTART).await;
    collector.offer(&c, &large).await;
    collector.flush().await;
    let mut reader = Reader::new();
    let mut tail = open_tail(&collector.log, 0, subjects().of(&c)).await;
    let mut found = Vec::new();
    while found.last() != Some(&large) {
        if let ReadOutcome::Records(records) = reader.read(&next(&mut tail).await).unwrap() {
            found.extend(records);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_servers_fill_the_queue_and_then_refuse() {
    let mut servers = Servers::start(1).await;
    let (mut collector, c) = (Collector::start(&servers, 1).await, partition("c"));
    collector.writer = Writer::new(informer_hub_fleet::WriterParams {
        queue_bytes: 20_000,
        answer_timeout: Duration::from_millis(300),
        ..informer_hub_fleet::WriterParams::default()
    });
    collector.claim(&c, 1).await;
    collector.offer(&c, &RESTART).await;
    servers.kill(0);
    let mut accepted = 0;
    while collector.writer.offer(&c, &put(accepted + 1)).is_ok() {
        accepted += 1;
    }
    assert!(accepted > 100 && collector.writer.queued_bytes() <= 20_000, "{accepted}");
    collector.run_until("a failure", |collector| collector.writer.problem(&c).is_some()).await;
    servers.restart(0).await;
    collector.flush().await;
    assert_eq!(versions(&collector.log, &c, accepted).await, (1..=accepted).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roster_follows_the_changes_of_other_processes() {
    let servers = Servers::start(1).await;
    let open = async || RosterBucket::open(servers.client().await, &subjects(), 1, DEADLINE).await.unwrap();
    let (first, second) = (open().await, open().await);
    assert_eq!(first.entries().await.unwrap(), []);
    let (member, token) =
        (RosterItem::Member(Member { name: "a.b".to_owned(), ..Member::default() }), RosterItem::Move(None));
    let put = first.put(&member).await.unwrap();
    let own = first.replace(&token, None).await.unwrap().expect("there is no token yet");
    assert_eq!(second.replace(&token, None).await.unwrap(), None, "there is one");
    assert_eq!(second.replace(&token, Some(put)).await.unwrap(), None, "it has another revision");
    let own = second.replace(&token, Some(own)).await.unwrap().expect("its revision is known");
    let sees = async |roster: &RosterBucket, expected: &[(RosterItem, u64)]| {
        within("the roster follows", async {
            loop {
                let entries = roster.entries().await.unwrap();
                if entries.iter().map(|entry| (entry.item.clone(), entry.revision)).eq(expected.iter().cloned()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    };
    for roster in [&first, &second, &open().await] {
        sees(roster, &[(member.clone(), put), (token.clone(), own)]).await;
    }
    second.remove(&member).await.unwrap();
    for roster in [&first, &open().await] {
        sees(roster, &[(token.clone(), own)]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_roster_is_created_again_by_the_next_renewal_and_followed_by_all() {
    let servers = Servers::start(1).await;
    let client = servers.client().await;
    let open = async || RosterBucket::open(servers.client().await, &subjects(), 1, DEADLINE).await.unwrap();
    let (first, second) = (open().await, open().await);
    let member = |name: &str| RosterItem::Member(Member { name: name.to_owned(), ..Member::default() });
    let stale = member("c");
    second.put(&stale).await.unwrap();
    for (roster, name) in [(&first, "a"), (&second, "b")] {
        for _ in 0..3 {
            roster.put(&member(name)).await.unwrap();
        }
    }
    let operator = RosterBucket::find(servers.client().await, &subjects(), DEADLINE).await.unwrap().unwrap();
    let context = async_nats::jetstream::new(client);
    context.delete_key_value(format!("{}-collectors", subjects().fleet())).await.unwrap();
    operator.put(&member("operator")).await.expect_err("an operator creates no bucket");
    for (roster, name) in [(&first, "a"), (&second, "b")] {
        roster.put(&member(name)).await.unwrap();
    }
    for roster in [&first, &second] {
        within("both follow the new bucket", async {
            let expected = [member("a"), member("b")];
            while !roster.entries().await.unwrap().iter().map(|entry| &entry.item).eq(&expected) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

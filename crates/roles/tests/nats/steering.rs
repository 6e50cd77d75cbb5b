//! Leases of a fleet, as the operator reads them.

use std::time::Duration;

use informer_hub_lease::{Answer, Record, Request};
use informer_hub_roles::{Backend, LeaseHolder, NatsBackend, RosterStore};

use crate::params;
use crate::server::Servers;

fn held_by(holder: &str) -> Request {
    let lease_duration = Duration::from_secs(10);
    Request::Create(Record { holder: holder.into(), lease_duration, transitions: 1, note: "{}".into() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_of_leases_are_read_without_creating_or_writing() {
    let servers = Servers::start(1).await;
    let (params, context) = (params("a", &servers, 1), async_nats::jetstream::new(servers.client().await));
    assert!(params.open_roster().await.unwrap().is_none(), "no process has started yet");
    let backend = NatsBackend::new(params.clone());
    backend.roster().await.unwrap();
    let roster = params.open_roster().await.unwrap().unwrap();
    let leases = ["sink.held", "sink.released", "sink.missing", "sink.newer", "sink.garbage"].map(str::to_owned);
    assert_eq!(roster.lease_holders(&leases).await.unwrap(), vec![LeaseHolder::None; 5], "there is no bucket");
    assert!(context.get_key_value("test-leases").await.is_err(), "it creates none");

    for (lease, holder) in [("sink.held", "hub-1"), ("sink.released", "")] {
        assert!(matches!(backend.lease(lease, held_by(holder)).await.unwrap(), Answer::Written(_)));
    }
    let bucket = context.get_key_value("test-leases").await.unwrap();
    bucket.put("sink.newer", vec![99, 0].into()).await.unwrap();
    bucket.put("sink.garbage", vec![1, 200].into()).await.unwrap();
    let last = async || context.get_stream("KV_test-leases").await.unwrap().cached_info().state.last_sequence;
    let before = last().await;
    let holders = roster.lease_holders(&leases).await.unwrap();
    assert_eq!(holders[..3], [LeaseHolder::Process("hub-1".to_owned()), LeaseHolder::None, LeaseHolder::None]);
    let cause = |holder: &LeaseHolder| match holder {
        LeaseHolder::Unknown(cause) => cause.clone(),
        other => panic!("{other:?}"),
    };
    let newer = cause(&holders[3]);
    assert!(newer.contains("lease sink.newer") && newer.contains("format version 99 is newer"), "{newer}");
    assert!(cause(&holders[4]).contains("lease sink.garbage"), "{holders:?}");
    assert_eq!(last().await, before, "it writes nothing");
}

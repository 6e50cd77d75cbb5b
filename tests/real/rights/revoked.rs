//! Rights that are withdrawn while streams are open.

use std::time::Duration;

use informer_hub_types::clock;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;

use super::fleet::Fleet;
use crate::bed::{becomes_true, delete_now};
use crate::fixture::WAIT_DEADLINE;

/// Longest time until a stream ends, as documented: 30 s, and the second for which an answer is cached.
const WITHIN: Duration = Duration::from_secs(31);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn revoked_right_ends_open_streams() {
    let fleet = Fleet::start().await;
    let client = fleet.east.client().await;
    let (jane, grafana, ada) = (fleet.at_hub("jane"), fleet.at_hub("grafana"), fleet.at_hub("ada"));
    let watch = "/clusters/east/api/v1/namespaces/shop/pods?watch=1";
    let mut streams =
        [jane.open(watch).await, jane.open("/clusters/*/api/v1/pods?watch=1").await, grafana.open(watch).await];
    for stream in &mut streams {
        stream.up_to("ADDED web-4").await;
    }
    let mut others = ada.open("/clusters/*/api/v1/pods?watch=1").await;
    others.up_to("ADDED web-4").await;
    let mut events = jane.open("/v1/events?resource=pods").await;
    events.next().await.expect("the position of the stream");

    delete_now(&Api::<RoleBinding>::namespaced(client.clone(), "shop"), "readers").await;
    let began = clock::now();
    for stream in &mut streams {
        let event = stream.next().await.expect("the event that ends it");
        assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()), "{event}");
        assert!(stream.next().await.is_none());
        let took = clock::now() - began;
        println!("ended after {took:?}");
        assert!(took < WITHIN, "{took:?}");
    }
    let mut end = None;
    while let Some(event) = events.next().await {
        end = Some(event);
    }
    let end = end.expect("the event that ends it");
    assert_eq!(end["data"]["reason"], "the rights of the reader have changed", "{end}");
    let took = clock::now() - began;
    assert!(took < WITHIN, "the stream of events: {took:?}");
    let (code, answer) = jane.read("/clusters/east/api/v1/namespaces/shop/pods").await;
    assert_eq!((code, answer), fleet.at(&fleet.east, "jane").read("/api/v1/namespaces/shop/pods").await);
    assert_eq!(code, 403);
    assert_eq!(jane.read("/v1/query?resource=pods&q=count").await.1["count"], 0);
    // The rights of another reader have not changed, so its watch continues.
    let west = fleet.west.client().await;
    crate::bed::create_pod(&west, "shop", "after-0").await;
    others.up_to("ADDED after-0").await;

    // The token of a deleted account is refused once the cached answer of its cluster has expired.
    delete_now(&Api::<ServiceAccount>::namespaced(client, "tools"), "grafana").await;
    let is_refused = async || grafana.read("/clusters/east/api/v1/namespaces/shop/pods").await.0 == 401;
    assert!(becomes_true(WAIT_DEADLINE, is_refused).await);
}

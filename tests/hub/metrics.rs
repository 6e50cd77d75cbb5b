//! Tests of the metrics of an embedding program: the hub's own, those of named handlers, those of registered work
//! queues.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub::informers::{HandlerOptions, ResourceEventHandlerFuncs, SharedInformerFactory};
use informer_hub::{Request, WorkQueue};
use informer_hub_sim::SimCluster;
use informer_hub_types::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, eventually, small};

/// Starts a hub without configured resources over one cluster of ten pods.
async fn fleet() -> Fleet {
    let cluster = SimCluster::start(small(1, 10), &Handle::current()).unwrap();
    Fleet::start(BTreeMap::from([("c0".to_owned(), cluster)]), &[], Vec::new()).await
}

/// Returns the value of one series in the Prometheus text format.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exporter_has_the_metrics_of_registered_queues_until_they_are_removed() {
    let fleet = fleet().await;
    let exporter = fleet.hub.metrics_exporter().await.unwrap();
    let queue: WorkQueue<Request> = WorkQueue::new();
    exporter.register_queue("deployments", &queue);

    let request = |name: &str| Request::new("c0".parse().unwrap(), ObjectKey::new("shop", name));
    for name in ["a", "b", "c", "c"] {
        queue.add(request(name));
    }
    queue.add_after(request("d"), Duration::from_secs(3600));
    let item = queue.get().await.unwrap();
    let read = |series: &str| value(&exporter.prometheus(), series);
    assert_eq!(read(r#"informer_hub_workqueue_depth{queue="deployments"}"#), Some(2.0));
    assert_eq!(read(r#"informer_hub_workqueue_delayed{queue="deployments"}"#), Some(1.0));
    assert_eq!(read(r#"informer_hub_workqueue_adds_total{queue="deployments"}"#), Some(3.0));
    assert_eq!(read(r#"informer_hub_workqueue_retries_total{queue="deployments"}"#), Some(1.0));
    assert_eq!(read(r#"informer_hub_workqueue_queue_duration_seconds_count{queue="deployments"}"#), Some(1.0));
    assert_eq!(read(r#"informer_hub_workqueue_work_duration_seconds_count{queue="deployments"}"#), Some(0.0));
    assert!(read(r#"informer_hub_workqueue_unfinished_work_seconds{queue="deployments"}"#).unwrap() > 0.0);
    assert!(read(r#"informer_hub_workqueue_longest_running_processor_seconds{queue="deployments"}"#).unwrap() > 0.0);

    drop(item);
    let bucket = r#"informer_hub_workqueue_work_duration_seconds_bucket{queue="deployments",le="+Inf"}"#;
    assert_eq!(read(bucket), Some(1.0));
    let connected = async || read(r#"informer_hub_clusters{state="connected"}"#) == Some(1.0);
    eventually("the hub's own metrics are included", connected).await;

    assert!(exporter.remove_queue("deployments") && !exporter.remove_queue("deployments"));
    assert!(!exporter.prometheus().contains("queue=\"deployments\""));
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_handler_is_the_subscription_of_its_metrics() {
    let fleet = fleet().await;
    let exporter = fleet.hub.metrics_exporter().await.unwrap();
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let handler = ResourceEventHandlerFuncs::<Pod>::new();
    informer.add_event_handler_with_options(handler, HandlerOptions::named("deployment-controller")).await.unwrap();
    assert_eq!(factory.start().await.unwrap(), 1);
    factory.wait_for_cache_sync(PATIENCE).await.into_error().unwrap();

    let labels = r#"{cluster="c0",subscription="deployment-controller"}"#;
    // Ten additions, and one notification of the end of the initial list.
    let series = format!("informer_hub_listener_delivered_notifications_total{labels}");
    eventually("all pods delivered", async || value(&exporter.prometheus(), &series) == Some(11.0)).await;
    fleet.end().await;
}

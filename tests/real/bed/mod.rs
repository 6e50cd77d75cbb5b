//! Test bed: real clusters, objects in them, random changes and ground truth.

mod build;
mod churn;
mod cluster;
mod ground_truth;
mod objects;
mod process;

use std::time::Duration;

pub(crate) use build::{binary, built, kubectl, protobuf, protobuf_older, reader};
pub(crate) use churn::{Churn, seed};
pub(crate) use cluster::RealCluster;
pub(crate) use ground_truth::{GroundTruth, ground_truth, watch_error};
pub(crate) use objects::{
    Verbs, create_namespace, create_pod, create_pods, create_widget, create_widgets, delete_now, grant_limited,
    install_widgets, merge, pods, revoke_limited, uninstall_widgets, widget_gvr, widgets,
};
pub(crate) use process::signal;

/// Polls `check` until it returns true. For server-side effects that are asynchronous and not announced.
///
/// # Panics
/// If the deadline passes first; the message contains `what`.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, deadline: Duration, check: impl FnMut() -> F) {
    assert!(becomes_true(deadline, check).await, "not within {deadline:?}: {what}");
}

/// Polls `check` every 20 ms and returns whether it became true before the deadline.
pub(crate) async fn becomes_true<F: Future<Output = bool>>(deadline: Duration, mut check: impl FnMut() -> F) -> bool {
    let look = || {
        let checked = check();
        async { checked.await.then_some(()) }
    };
    found(deadline, look).await.is_some()
}

/// Polls `look` every 20 ms and returns what it finds before the deadline.
pub(crate) async fn found<T, F: Future<Output = Option<T>>>(
    deadline: Duration,
    mut look: impl FnMut() -> F,
) -> Option<T> {
    let looking = async {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        loop {
            pace.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    tokio::time::timeout(deadline, looking).await.ok()
}

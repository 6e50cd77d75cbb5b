//! Real clusters to test against.

mod build;
mod churn;
mod cluster;
mod objects;
mod process;
mod truth;

use std::time::Duration;

pub(crate) use churn::{Churn, seed};
pub(crate) use cluster::RealCluster;
pub(crate) use objects::{
    Verbs, create_namespace, create_pod, create_pods, create_widget, create_widgets, delete_now, grant_limited,
    install_widgets, merge, pods, revoke_limited, widget_gvr, widgets,
};
pub(crate) use truth::truth;

/// Asks `check` until it says yes. For what a server does in its own time and does not announce.
///
/// # Panics
/// When the deadline passes first; the message names `what`.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, deadline: Duration, mut check: impl FnMut() -> F) {
    let asking = async {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        loop {
            pace.tick().await;
            if check().await {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(deadline, asking).await.is_ok(), "not within {deadline:?}: {what}");
}

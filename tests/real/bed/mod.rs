//! Real clusters to test against.

mod build;
mod churn;
mod cluster;
mod objects;
mod process;
mod truth;

use std::time::Duration;

pub(crate) use build::{binary, built};
pub(crate) use churn::{Churn, seed};
pub(crate) use cluster::RealCluster;
pub(crate) use objects::{
    Verbs, create_namespace, create_pod, create_pods, create_widget, create_widgets, delete_now, grant_limited,
    install_widgets, merge, pods, revoke_limited, uninstall_widgets, widget_gvr, widgets,
};
pub(crate) use process::signal;
pub(crate) use truth::{Truth, truth, watch_error};

/// Asks `check` until it says yes. For what a server does in its own time and does not announce.
///
/// # Panics
/// When the deadline passes first; the message names `what`.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, deadline: Duration, check: impl FnMut() -> F) {
    assert!(comes_true(deadline, check).await, "not within {deadline:?}: {what}");
}

/// As [`eventually`], but whether `check` said yes in time is the answer, for a caller that knows more to say.
pub(crate) async fn comes_true<F: Future<Output = bool>>(deadline: Duration, mut check: impl FnMut() -> F) -> bool {
    let asking = async {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        loop {
            pace.tick().await;
            if check().await {
                return;
            }
        }
    };
    tokio::time::timeout(deadline, asking).await.is_ok()
}

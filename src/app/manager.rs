//! Notifications to the service manager (systemd's `sd_notify` protocol), sent to the socket in `NOTIFY_SOCKET`.
//!
//! Without that variable nothing is sent.

use std::sync::Once;
use std::time::Duration;

use sd_notify::NotifyState;

use super::report::{HubReport, Reporter};
use crate::actors::ClusterState;
use informer_hub_types::clock;

/// Interval between two notifications to the service manager, unless its watchdog needs a shorter one.
const PERIOD: Duration = Duration::from_secs(10);

/// Time allowed for a shutdown in addition to draining the sinks.
const MARGIN: Duration = Duration::from_secs(10);

/// Notifies the service manager that the hub has started. Clusters may still be unreachable.
pub(super) fn started() {
    notify_service_manager(&[NotifyState::Ready, NotifyState::Status("started")]);
}

/// Notifies the service manager that a reload begins. The caller has to call [`reloaded`] afterwards, also after a
/// failure.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify_service_manager(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot notify the service manager of the reload"),
    }
}

/// Notifies the service manager that a reload has ended.
pub(super) fn reloaded() {
    notify_service_manager(&[NotifyState::Ready]);
}

/// Notifies the service manager that the hub is stopping and drains its sinks, for at most `deadline`.
pub(super) fn stopping(deadline: Duration) {
    let patience = u32::try_from((deadline + MARGIN).as_micros()).unwrap_or(u32::MAX);
    notify_service_manager(&[
        NotifyState::Stopping,
        NotifyState::Status("draining sinks"),
        NotifyState::ExtendTimeoutUsec(patience),
    ]);
}

/// Sends the hub's status to the service manager and feeds its watchdog while the hub answers. Runs until the future is
/// dropped; without `NOTIFY_SOCKET`, returns at once.
pub(super) async fn keep_informed(reporter: Reporter) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let watchdog = sd_notify::watchdog_enabled();
    let period = watchdog.map_or(PERIOD, |limit| (limit / 3).clamp(Duration::from_millis(10), PERIOD));
    let mut ticks = clock::ticks(period);
    loop {
        ticks.tick().await;
        // A hub that does not answer must not feed the watchdog; the next tick tries again.
        if let Ok(Ok(report)) = tokio::time::timeout(period, reporter.report()).await {
            notify_service_manager(&[NotifyState::Status(&summary(&report)), NotifyState::Watchdog]);
        }
    }
}

fn summary(report: &HubReport) -> String {
    let clusters = &report.hub.clusters;
    let reached = clusters.iter().filter(|cluster| cluster.state == ClusterState::Connected).count();
    let informers = || clusters.iter().flat_map(|cluster| &cluster.informers);
    let synced = informers().filter(|informer| informer.synced).count();
    let objects: u64 = informers().map(|informer| informer.objects).sum();
    format!(
        "{reached} of {} clusters connected, {synced} of {} informers synced, {objects} objects",
        clusters.len(),
        informers().count()
    )
}

fn notify_service_manager(words: &[NotifyState<'_>]) {
    static WARNING: Once = Once::new();
    if let Err(error) = sd_notify::notify(words) {
        WARNING.call_once(|| {
            tracing::warn!(%error, "cannot notify the service manager (systemd)");
        });
    }
}

//! What the service manager that started the process is told, in systemd's words (`sd_notify`), by the socket that
//! `NOTIFY_SOCKET` names. Where there is none nobody is told anything.

use std::sync::Once;
use std::time::Duration;

use sd_notify::NotifyState;

use super::report::{HubReport, Reporter};
use crate::actors::ClusterState;
use informer_hub_types::clock;

/// How often the state is told where no watchdog wants it sooner.
const PERIOD: Duration = Duration::from_secs(10);

/// What the end takes besides the draining of sinks.
const MARGIN: Duration = Duration::from_secs(10);

/// The hub has started. Clusters need not have been reached: that may never come, and mends itself.
pub(super) fn started() {
    tell(&[NotifyState::Ready, NotifyState::Status("started")]);
}

/// The configuration is read again. [`reloaded`] has to follow, whatever comes of it.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager is not told that the configuration is read again"),
    }
}

/// See [`reloading`].
pub(super) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// Sinks are drained, for no longer than this.
pub(super) fn stopping(deadline: Duration) {
    let patience = u32::try_from((deadline + MARGIN).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::Status("draining sinks"), NotifyState::ExtendTimeoutUsec(patience)]);
}

/// Tells how the hub is, and keeps its watchdog quiet, for as long as the hub itself answers. Runs until it is dropped.
pub(super) async fn keep_informed(reporter: Reporter) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let watchdog = sd_notify::watchdog_enabled();
    let period = watchdog.map_or(PERIOD, |limit| (limit / 3).clamp(Duration::from_millis(10), PERIOD));
    let mut ticks = clock::ticks(period);
    loop {
        ticks.tick().await;
        // One that does not answer is not well: the next look is soon enough, if there still is one.
        if let Ok(Ok(report)) = tokio::time::timeout(period, reporter.report()).await {
            tell(&[NotifyState::Status(&summary(&report)), NotifyState::Watchdog]);
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

fn tell(words: &[NotifyState<'_>]) {
    static WARNING: Once = Once::new();
    if let Err(error) = sd_notify::notify(words) {
        WARNING.call_once(|| {
            tracing::warn!(%error, "the service manager is not told how the hub is: its socket does not take it");
        });
    }
}

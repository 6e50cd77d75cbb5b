//! Logging of the standard error of credential plugins: bounded, escaped, rate-limited.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use informer_hub_types::clock::{self, Instant};
use informer_hub_types::printable;

/// Minimum time between two log lines for a cluster.
const INTERVAL: Duration = Duration::from_secs(60);

/// Per cluster, the time of the last log line, and the number of plugin runs not logged since.
static LAST_LOGGED: Mutex<BTreeMap<Arc<str>, (Instant, u64)>> = Mutex::new(BTreeMap::new());

/// Logs `text`, the end of what a plugin wrote to standard error, at most once a minute per cluster. `bytes` is the
/// length of the complete output.
pub(super) fn log(cluster: &Arc<str>, command: &str, text: &str, bytes: u64) {
    let stderr = printable(text.trim());
    if stderr.is_empty() {
        return;
    }
    if let Some(unlogged_runs) = admit(&mut LAST_LOGGED.lock(), cluster, clock::now()) {
        tracing::info!(%cluster, command, bytes, unlogged_runs, stderr, "a credential plugin wrote to standard error");
    }
}

/// Decides whether to log the output of a plugin run. Returns the number of runs since the last logged one; `None` if
/// this run must not be logged.
fn admit(last_logged: &mut BTreeMap<Arc<str>, (Instant, u64)>, cluster: &Arc<str>, now: Instant) -> Option<u64> {
    if let Some((at, skipped)) = last_logged.get_mut(cluster)
        && now < *at + INTERVAL
    {
        *skipped += 1;
        return None;
    }
    let skipped = last_logged.insert(Arc::clone(cluster), (now, 0)).map_or(0, |(_, skipped)| skipped);
    // Drop entries after an hour, since clusters may have been removed.
    last_logged.retain(|_, (at, _)| now < *at + 60 * INTERVAL);
    Some(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_output_is_logged_once_a_minute_per_cluster() {
        let (mut last_logged, begun) = (BTreeMap::new(), clock::now());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut at = |cluster, seconds| admit(&mut last_logged, cluster, begun + Duration::from_secs(seconds));
        assert_eq!([at(&a, 0), at(&b, 1), at(&a, 1), at(&a, 59)], [Some(0), Some(0), None, None]);
        assert_eq!([at(&a, 60), at(&a, 61), at(&b, 61)], [Some(2), None, Some(0)]);
        at(&a, 100_000);
        assert_eq!(last_logged.len(), 1, "old entries are dropped");
    }
}

//! Log lines of what plugins write to their standard error: bounded, escaped, and rarely.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use informer_hub_types::clock::{self, Instant};
use informer_hub_types::printable;

/// How often a line is written for a cluster.
const INTERVAL: Duration = Duration::from_secs(60);

/// For each cluster, when the last line was written and how many runs were not logged since.
static SAID: Mutex<BTreeMap<Arc<str>, (Instant, u64)>> = Mutex::new(BTreeMap::new());

/// Logs what a plugin has written, unless there was a line for this cluster within the last minute.
pub(super) fn log(cluster: &Arc<str>, command: &str, text: &str, bytes: u64) {
    let stderr = printable(text.trim());
    if stderr.is_empty() {
        return;
    }
    if let Some(unlogged_runs) = admit(&mut SAID.lock(), cluster, clock::now()) {
        tracing::info!(%cluster, command, bytes, unlogged_runs, stderr, "a credential plugin wrote to standard error");
    }
}

/// How many runs were not logged since the last line, if there may be a line now.
fn admit(said: &mut BTreeMap<Arc<str>, (Instant, u64)>, cluster: &Arc<str>, now: Instant) -> Option<u64> {
    if let Some((at, skipped)) = said.get_mut(cluster)
        && now < *at + INTERVAL
    {
        *skipped += 1;
        return None;
    }
    let skipped = said.insert(Arc::clone(cluster), (now, 0)).map_or(0, |(_, skipped)| skipped);
    // Clusters come and go; what is an hour old is of no use.
    said.retain(|_, (at, _)| now < *at + 60 * INTERVAL);
    Some(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_output_is_logged_once_a_minute_per_cluster() {
        let (mut said, begun) = (BTreeMap::new(), clock::now());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut at = |cluster, seconds| admit(&mut said, cluster, begun + Duration::from_secs(seconds));
        assert_eq!([at(&a, 0), at(&b, 1), at(&a, 1), at(&a, 59)], [Some(0), Some(0), None, None]);
        assert_eq!([at(&a, 60), at(&a, 61), at(&b, 61)], [Some(2), None, Some(0)]);
        at(&a, 100_000);
        assert_eq!(said.len(), 1, "what is old is forgotten");
    }
}

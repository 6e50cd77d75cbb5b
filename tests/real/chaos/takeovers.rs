//! Times from a fault until another collector owns a cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Longest takeover, with room for a busy machine. Another collector claims a cluster that was not renewed for 7 s.
pub(super) const LONGEST: Duration = Duration::from_secs(15);

/// Times of takeovers.
#[derive(Default)]
pub(super) struct Takeovers {
    /// Times of takeovers during a single fault.
    pub(super) alone: Vec<Duration>,
    /// Times of takeovers during two overlapping faults.
    pub(super) overlapping: Vec<Duration>,
}

/// Renders takeover times: median, 99th percentile, maximum, and a row for each half second.
pub(super) fn histogram(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let Some(max) = sorted.last() else { return "no takeovers".to_owned() };
    // The shortest time that at least this percentage of the takeovers did not exceed.
    let percentile = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
    let mut text =
        format!("{} takeovers: p50 {:.1?}, p99 {:.1?}, max {max:.1?}", sorted.len(), percentile(50), percentile(99));
    let mut rows = BTreeMap::<u128, usize>::new();
    for time in &sorted {
        *rows.entry(time.as_millis() / 500).or_default() += 1;
    }
    for (half_seconds, count) in rows {
        let begin = Duration::from_millis(500) * u32::try_from(half_seconds).expect("a short time");
        let _ = write!(text, "\n{:>6.1} s {}", begin.as_secs_f64(), "#".repeat(count));
    }
    text
}

#[test]
fn histogram_shows_percentiles_and_rows() {
    let times = [9_900, 7_100, 7_400, 8_000].map(Duration::from_millis);
    let expected = "4 takeovers: p50 7.4s, p99 9.9s, max 9.9s\n   7.0 s ##\n   8.0 s #\n   9.5 s #";
    assert_eq!(histogram(&times), expected);
    assert_eq!(histogram(&[]), "no takeovers");
}

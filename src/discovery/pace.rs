//! Schedule of discovery requests: several soon after a change, otherwise rare ones.

use std::time::Duration;

use informer_hub_reflector::Backoff;
use informer_hub_types::clock::Instant;

/// Delays of the discovery requests after a change of a CRD or an API service. The cluster serves a new CRD after
/// tenths of a second, a new aggregated API after seconds.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(350),
    Duration::from_millis(900),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// Minimum time between two discovery requests, under any rate of changes.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Intervals between discovery requests while nothing changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiscoveryIntervals {
    /// Interval while CRDs and API services are watched; up to half of it is added at random. Default 5 min.
    pub quiet: Duration,
    /// Interval if CRDs and API services cannot be watched; up to half of it is added at random. Default 30 s.
    pub poll: Duration,
}

impl Default for DiscoveryIntervals {
    fn default() -> Self {
        Self { quiet: Duration::from_secs(300), poll: Duration::from_secs(30) }
    }
}

/// Result of a discovery request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The cluster serves the resources of all of its CRDs. If CRDs cannot be watched, every successful answer counts
    /// as complete.
    Complete,
    /// The cluster has answered, but does not serve the resources of all of its CRDs yet, for example just after its
    /// start.
    Partial,
    /// The request failed.
    Failed,
}

/// Schedule of discovery requests of one cluster.
#[derive(Debug)]
pub struct Pace {
    due: Instant,
    /// Discovery requests that the last change of a CRD or API service still needs: the time of that change, and the
    /// index in `DELAYS` of the next request. `None` if no request is left.
    changed: Option<(Instant, usize)>,
    last_request: Option<Instant>,
    intervals: DiscoveryIntervals,
    backoff: Backoff,
}

impl Pace {
    /// Creates a schedule whose first request is due immediately.
    #[must_use]
    pub fn new(intervals: DiscoveryIntervals, now: Instant) -> Self {
        let backoff = Backoff::new(Duration::from_secs(1).min(intervals.poll), intervals.poll);
        Self { due: now, changed: None, last_request: None, intervals, backoff }
    }

    /// Returns the time of the next discovery request.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Records a change that may affect the cluster's API, and schedules requests soon.
    pub fn note_change(&mut self, now: Instant) {
        self.changed = Some((now, 0));
        self.request_soon(now);
    }

    /// Schedules one request soon, because changes of the cluster's API may have been missed: the watch of CRDs and API
    /// services has just begun, or the cluster was unreachable.
    pub fn request_soon(&mut self, now: Instant) {
        let soon = now + DELAYS[0];
        let allowed = self.last_request.map_or(soon, |last_request| soon.max(last_request + MIN_INTERVAL));
        self.due = self.due.min(allowed);
    }

    /// Records the result of a request and schedules the next one. `is_watched` is whether CRDs and API services are
    /// watched. `random` returns numbers in `[0, 1)`.
    pub fn note_result(&mut self, answer: Answer, is_watched: bool, now: Instant, random: &mut dyn FnMut() -> f64) {
        self.last_request = Some(now);
        if answer != Answer::Failed
            && let Some(due) = self.next_request(now)
        {
            self.due = due;
            return;
        }
        self.due = now
            + match answer {
                Answer::Failed | Answer::Partial => self.backoff.next_delay(now, random),
                Answer::Complete => {
                    let rest = if is_watched { self.intervals.quiet } else { self.intervals.poll };
                    rest + rest.mul_f64(0.5 * random().clamp(0.0, 1.0))
                }
            };
    }

    /// Returns the time of the next discovery request that the last change of a CRD or API service still needs; `None`
    /// if no request is left. Requests whose time has passed are skipped, because the request that has just ended
    /// replaces them.
    fn next_request(&mut self, now: Instant) -> Option<Instant> {
        while let Some((since, next)) = self.changed.take() {
            let after = *DELAYS.get(next)?;
            self.changed = Some((since, next + 1));
            if since + after > now {
                return Some((since + after).max(now + MIN_INTERVAL));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::clock;

    #[test]
    fn discovery_of_unserved_definitions_backs_off() {
        let start = clock::now();
        let mut pace = Pace::new(DiscoveryIntervals::default(), start);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let now = pace.due();
            pace.note_result(Answer::Partial, true, now, &mut || 0.0);
            waits.push(pace.due().duration_since(now).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        let now = pace.due();
        pace.note_result(Answer::Complete, true, now, &mut || 0.0);
        assert_eq!(pace.due().duration_since(now), DiscoveryIntervals::default().quiet);
    }

    /// Returns the times of requests until `end`, in ms, with changes at the given times. Each request succeeds at
    /// once.
    fn requests(changes: &[u64], is_watched: bool, end: u64) -> Vec<u64> {
        let start = clock::now();
        let mut pace = Pace::new(DiscoveryIntervals::default(), start);
        let mut changes = changes.iter().map(|at| start + Duration::from_millis(*at)).peekable();
        let mut requests = Vec::new();
        loop {
            let due = pace.due();
            if let Some(at) = changes.next_if(|at| *at <= due) {
                pace.note_change(at);
                continue;
            }
            let at = u64::try_from((due - start).as_millis()).unwrap();
            if at > end {
                return requests;
            }
            requests.push(at);
            pace.note_result(Answer::Complete, is_watched, due, &mut || 0.0);
        }
    }

    #[test]
    fn discovery_of_a_quiet_cluster_is_rare() {
        assert_eq!(requests(&[], true, 3_600_000).len(), 13, "once, and each 300 s");
        assert_eq!(requests(&[], false, 3_600_000).len(), 121, "once, and each 30 s");
    }

    #[test]
    fn discovery_repeats_soon_after_a_change() {
        assert_eq!(requests(&[10_000], true, 60_000), [0, 10_100, 10_350, 10_900, 12_000, 15_000]);
    }

    #[test]
    fn discovery_keeps_its_minimum_interval_under_a_flood_of_changes() {
        let flood: Vec<u64> = (0..200).map(|i| 10_000 + i * 10).collect();
        let requests = requests(&flood, true, 60_000);
        assert!(requests.windows(2).all(|pair| pair[1] - pair[0] >= 250), "{requests:?}");
        assert!(requests.len() <= 16, "{requests:?}");
        assert!(
            requests.iter().any(|at| (12_000..12_600).contains(at)),
            "the last change is followed by a request soon: {requests:?}"
        );
    }

    #[test]
    fn discovery_of_an_unreachable_cluster_backs_off() {
        let mut now = clock::now();
        let mut pace = Pace::new(DiscoveryIntervals::default(), now);
        let mut waits = Vec::new();
        for _ in 0..7 {
            pace.note_result(Answer::Failed, true, now, &mut || 0.0);
            waits.push((pace.due() - now).as_secs());
            now = pace.due();
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }
}

//! When a cluster is asked for what it offers: soon after something is heard, a few times, and else rarely.

use std::time::Duration;

use informer_hub_reflector::Backoff;
use informer_hub_types::clock::Instant;

/// After a definition or an API service has changed, when it is looked. What is offered follows within tenths of a second,
/// of an aggregated API within seconds.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(350),
    Duration::from_millis(900),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// The least time between two looks, however much changes.
const GAP: Duration = Duration::from_millis(250);

/// How often a cluster is asked of which nothing is heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rhythm {
    /// The lower end of the time between looks while definitions and API services are watched; drawn from `[t, 1.5t)`.
    /// Default 5 min.
    pub quiet: Duration,
    /// The same where they cannot be. Default 30 s.
    pub poll: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self { quiet: Duration::from_secs(300), poll: Duration::from_secs(30) }
    }
}

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The cluster has answered.
    Came,
    /// It has, and does not serve all yet that it has definitions of: one that has just been started.
    Partly,
    /// It has not.
    Failed,
}

/// See the module.
#[derive(Debug)]
pub struct Pace {
    due: Instant,
    /// When something was heard last, and which look after that is next.
    heard: Option<(Instant, usize)>,
    looked: Option<Instant>,
    rhythm: Rhythm,
    backoff: Backoff,
}

impl Pace {
    /// The first look is at once.
    #[must_use]
    pub fn new(rhythm: Rhythm, now: Instant) -> Self {
        let backoff = Backoff::new(Duration::from_secs(1).min(rhythm.poll), rhythm.poll);
        Self { due: now, heard: None, looked: None, rhythm, backoff }
    }

    /// When the next look is due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Something has changed that may change what is offered.
    pub fn hear(&mut self, now: Instant) {
        self.heard = Some((now, 0));
        self.check(now);
    }

    /// Something may have changed before there was anybody to hear of it.
    pub fn check(&mut self, now: Instant) {
        let soon = now + LOOKS[0];
        let allowed = self.looked.map_or(soon, |looked| soon.max(looked + GAP));
        self.due = self.due.min(allowed);
    }

    /// A look has ended. `is_watched`: whether definitions and API services are, so that changes are heard of. `random`
    /// gives numbers in `[0, 1)`.
    pub fn look(&mut self, answer: Answer, is_watched: bool, now: Instant, random: &mut dyn FnMut() -> f64) {
        self.looked = Some(now);
        if answer != Answer::Failed
            && let Some(due) = self.next_look(now)
        {
            self.due = due;
            return;
        }
        self.due = now
            + match answer {
                Answer::Failed | Answer::Partly => self.backoff.next_delay(now, random),
                Answer::Came => {
                    let rest = if is_watched { self.rhythm.quiet } else { self.rhythm.poll };
                    rest + rest.mul_f64(0.5 * random().clamp(0.0, 1.0))
                }
            };
    }

    /// When it is looked again because of what was heard last. Looks that were due by now have been the one that ended.
    fn next_look(&mut self, now: Instant) -> Option<Instant> {
        while let Some((since, next)) = self.heard.take() {
            let after = *LOOKS.get(next)?;
            self.heard = Some((since, next + 1));
            if since + after > now {
                return Some((since + after).max(now + GAP));
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
    fn what_is_defined_and_not_served_yet_is_looked_for_soon_and_ever_more_rarely() {
        let start = clock::now();
        let mut pace = Pace::new(Rhythm::default(), start);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let now = pace.due();
            pace.look(Answer::Partly, true, now, &mut || 0.0);
            waits.push(pace.due().duration_since(now).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        let now = pace.due();
        pace.look(Answer::Came, true, now, &mut || 0.0);
        assert_eq!(pace.due().duration_since(now), Rhythm::default().quiet);
    }

    /// When looks happen until `end`, in milliseconds, with changes heard at these times; each is answered at once.
    fn looks(heard: &[u64], is_watched: bool, end: u64) -> Vec<u64> {
        let start = clock::now();
        let mut pace = Pace::new(Rhythm::default(), start);
        let mut heard = heard.iter().map(|at| start + Duration::from_millis(*at)).peekable();
        let mut looks = Vec::new();
        loop {
            let due = pace.due();
            if let Some(at) = heard.next_if(|at| *at <= due) {
                pace.hear(at);
                continue;
            }
            let at = u64::try_from((due - start).as_millis()).unwrap();
            if at > end {
                return looks;
            }
            looks.push(at);
            pace.look(Answer::Came, is_watched, due, &mut || 0.0);
        }
    }

    #[test]
    fn a_quiet_cluster_is_asked_rarely() {
        assert_eq!(looks(&[], true, 3_600_000).len(), 13, "once, and each 300 s");
        assert_eq!(looks(&[], false, 3_600_000).len(), 121, "once, and each 30 s");
    }

    #[test]
    fn after_a_change_it_is_looked_soon_and_a_few_times_more() {
        assert_eq!(looks(&[10_000], true, 60_000), [0, 10_100, 10_350, 10_900, 12_000, 15_000]);
    }

    #[test]
    fn however_much_changes_there_is_time_between_looks() {
        let flood: Vec<u64> = (0..200).map(|i| 10_000 + i * 10).collect();
        let looks = looks(&flood, true, 60_000);
        assert!(looks.windows(2).all(|pair| pair[1] - pair[0] >= 250), "{looks:?}");
        assert!(looks.len() <= 16, "{looks:?}");
        assert!(looks.iter().any(|at| (12_000..12_600).contains(at)), "the last change is looked at soon: {looks:?}");
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_asked_less_and_less() {
        let mut now = clock::now();
        let mut pace = Pace::new(Rhythm::default(), now);
        let mut waits = Vec::new();
        for _ in 0..7 {
            pace.look(Answer::Failed, true, now, &mut || 0.0);
            waits.push((pace.due() - now).as_secs());
            now = pace.due();
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }
}

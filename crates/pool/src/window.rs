//! Size of the flow-control windows of a connection.
//!
//! A window limits what a server sends before it is read, and thereby the data that waits in memory. It also limits the
//! rate: to one window in each round trip. Windows therefore start small, and grow while readers wait for data.

use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Initial flow-control window of a stream, in bytes.
pub(crate) const START: u32 = 128 * 1024;
/// If a reader takes longer than this to receive one window of data, windows do not grow. Round trips are shorter, so
/// the window is not what limits the rate.
const ROUND_TRIP: Duration = Duration::from_secs(1);

/// Measures how long a reader waits for data, to decide whether a larger window may speed an answer up.
///
/// The meter measures how long a reader takes to read two windows, and for how much of this time it waits for data. If
/// the reader waits more than three quarters of the time, the window may be the cause. If it waits less, a larger
/// window would mainly keep more data in memory.
#[derive(Debug)]
pub(crate) struct WaitMeter {
    began: Instant,
    read: usize,
    waited: Duration,
    waits_since: Option<Instant>,
}

impl WaitMeter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, read: 0, waited: Duration::ZERO, waits_since: None }
    }

    /// Notes that the reader waits for data.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// Notes that data was read with a flow-control window of `window` bytes. Returns whether a larger one may help.
    pub(crate) fn read(&mut self, bytes: usize, window: u32, now: impl Fn() -> Instant) -> bool {
        self.read = self.read.saturating_add(bytes);
        if let Some(since) = self.waits_since.take() {
            self.waited += now().saturating_duration_since(since);
        }
        if self.read < usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(2) {
            return false;
        }
        let now = now();
        let took = now.saturating_duration_since(self.began);
        let may_help = took <= 2 * ROUND_TRIP && self.waited > took / 4 * 3;
        *self = Self::new(now);
        may_help
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_types::clock;

    use super::*;

    /// Simulates a reader that reads two windows in 16 pieces. Before each piece it waits for `wait`, and after each it
    /// works for `processing`. Returns whether a larger window may help.
    fn reads(wait: Duration, processing: Duration) -> bool {
        let mut now = clock::now();
        let mut meter = WaitMeter::new(now);
        let mut may_help = false;
        for _ in 0..16 {
            meter.wait(now);
            now += wait / 2;
            // A second poll does not restart the wait.
            meter.wait(now);
            now += wait / 2;
            may_help |= meter.read(START as usize / 8, START, || now);
            now += processing;
        }
        may_help
    }

    #[test]
    fn window_helps_readers_that_wait() {
        let times = |wait, processing| (Duration::from_millis(wait), Duration::from_millis(processing));
        for ((wait, processing), may_help) in [(times(4, 1), true), (times(2, 1), false), (times(1, 4), false)] {
            assert_eq!(reads(wait, processing), may_help, "{wait:?}, {processing:?}");
        }
    }

    #[test]
    fn window_helps_no_answer_that_is_slower_than_a_round_trip() {
        assert!(reads(Duration::from_millis(120), Duration::ZERO));
        assert!(!reads(Duration::from_millis(130), Duration::ZERO));
    }

    #[test]
    fn each_window_is_measured_anew() {
        let began = clock::now();
        let mut meter = WaitMeter::new(began);
        meter.wait(began);
        assert!(meter.read(2 * START as usize, START, || began + Duration::from_millis(10)));
        assert!(!meter.read(2 * START as usize, START, || began + Duration::from_millis(20)));
    }
}

//! Pace of a scanning thread: when it pauses for other threads, and when its slice (about 5 ms) ends for other scans.
//!
//! Linux lets a running thread finish its time slice before it runs a thread that was woken, whatever their priorities.
//! It ends a time slice only every few milliseconds. A pause lets the woken thread run at once. Time is estimated from
//! the work, because reading a clock for each object would cost as much as examining it.

/// Estimated cost of reading an object's body, relative to examining its head (metadata), which takes about 50 ns.
const BODY: u64 = 200;

/// Work of a scan between pauses, in examined heads (object metadata) of about 50 ns: 300 µs.
const PAUSE_AFTER: u64 = 6_000;

/// Work of a scan in one slice of time, in examined heads (object metadata) of about 50 ns: 5 ms.
const SLICE: u64 = 100_000;

/// Maximum number of slices (of about 5 ms) that a scan runs in a row while no other scan needs the thread. This saves
/// preparing each slice.
const SLICES_ALONE: u64 = 10;

/// Thread that runs the slices of several scans in turn.
#[doc(hidden)]
pub trait ScanThread {
    /// Pauses the thread, so that others can run.
    fn pause(&self);
    /// Returns whether other scans need the thread.
    fn is_wanted(&self) -> bool;
}

/// Work of a scan in its current slice (about 5 ms), and when the next pause is due.
pub(super) struct Pace<'p> {
    /// Thread to pause; `None` for work without pauses.
    thread: Option<&'p dyn ScanThread>,
    since_pause: u64,
    spent: u64,
    /// Work, in examined heads (object metadata), after which the slice may end.
    slice: u64,
}

impl<'p> Pace<'p> {
    /// Creates a pace for work that neither pauses nor ends after a slice.
    pub(super) fn unbroken() -> Self {
        Self { thread: None, since_pause: 0, spent: 0, slice: SLICE }
    }

    /// Creates the pace of one slice (about 5 ms) of a scan on a thread.
    pub(super) fn slice(thread: &'p dyn ScanThread) -> Self {
        Self { thread: Some(thread), ..Self::unbroken() }
    }

    /// Records the numbers of heads and bodies examined, and pauses the thread if that is due.
    pub(super) fn spend(&mut self, heads: u64, bodies: u64) {
        let Some(thread) = self.thread else { return };
        let work = heads + bodies * BODY;
        self.spent += work;
        self.since_pause += work;
        if self.since_pause >= PAUSE_AFTER {
            self.since_pause = 0;
            thread.pause();
        }
    }

    /// Returns whether the scan's slice of time (about 5 ms) is used up. The slice is prolonged while no other scan
    /// needs the thread.
    pub(super) fn is_over(&mut self) -> bool {
        if self.spent < self.slice {
            return false;
        }
        let is_over = self.spent >= SLICES_ALONE * SLICE || self.thread.is_some_and(ScanThread::is_wanted);
        self.slice = self.spent + SLICE;
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Default)]
    struct Thread {
        pauses: Cell<u32>,
        wanted: Cell<bool>,
    }

    impl ScanThread for Thread {
        fn pause(&self) {
            self.pauses.set(self.pauses.get() + 1);
        }

        fn is_wanted(&self) -> bool {
            self.wanted.get()
        }
    }

    /// Returns how many bodies a scan reads in one slice on `thread`.
    fn bodies(thread: &Thread) -> u64 {
        let mut pace = Pace::slice(thread);
        let mut bodies = 0;
        while !pace.is_over() {
            pace.spend(1, 1);
            bodies += 1;
        }
        bodies
    }

    #[test]
    fn thread_pauses_often_within_its_slice() {
        let thread = Thread::default();
        thread.wanted.set(true);
        let bodies = bodies(&thread);
        // 5 ms of bodies of 10 µs, with a pause each 300 µs.
        assert!((400..=500).contains(&bodies), "{bodies}");
        assert!((12..=17).contains(&thread.pauses.get()), "{}", thread.pauses.get());
    }

    #[test]
    fn slice_is_ten_times_as_long_while_no_other_scan_needs_the_thread() {
        let bodies = bodies(&Thread::default());
        assert!((4_900..=5_000).contains(&bodies), "{bodies}");
    }

    #[test]
    fn unbroken_work_has_no_end() {
        let mut pace = Pace::unbroken();
        pace.spend(u64::from(u32::MAX), 0);
        assert!(!pace.is_over());
    }
}

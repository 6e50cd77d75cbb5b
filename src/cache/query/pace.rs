//! Pace of a scanning thread: frequent pauses for other threads, and slices for other scans.
//!
//! Linux lets a running thread finish its time slice before a thread that was woken, whatever their priorities, and looks
//! at the clock every few milliseconds. A pause lets the woken thread run at once. Time is estimated from the work,
//! because reading a clock for each object would cost as much as examining it.

/// Estimated cost of reading an object's body, in heads of about 50 ns.
const BODY: u64 = 200;

/// Work between pauses: about 300 µs.
const PAUSE_AFTER: u64 = 6_000;

/// Work of a slice: about 5 ms.
const SLICE: u64 = 100_000;

/// Pace of one thread.
pub(super) struct Pace<'p> {
    /// Pauses the thread. `None` for short work on a thread that has other work.
    pause: Option<&'p dyn Fn()>,
    since_pause: u64,
    spent: u64,
}

impl<'p> Pace<'p> {
    /// Creates a pace without pauses and slices.
    pub(super) fn unbroken() -> Self {
        Self { pause: None, since_pause: 0, spent: 0 }
    }

    /// Creates the pace of one slice.
    pub(super) fn slice(pause: &'p dyn Fn()) -> Self {
        Self { pause: Some(pause), ..Self::unbroken() }
    }

    /// Records work on heads and bodies. Pauses if it is due.
    pub(super) fn spend(&mut self, heads: u64, bodies: u64) {
        let Some(pause) = self.pause else { return };
        let work = heads + bodies * BODY;
        self.spent += work;
        self.since_pause += work;
        if self.since_pause >= PAUSE_AFTER {
            self.since_pause = 0;
            pause();
        }
    }

    /// Returns whether the slice is used up.
    pub(super) fn is_over(&self) -> bool {
        self.spent >= SLICE
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn thread_pauses_often_within_its_slice() {
        let pauses = Cell::new(0);
        let pause = || pauses.set(pauses.get() + 1);
        let mut pace = Pace::slice(&pause);
        let mut bodies = 0;
        while !pace.is_over() {
            pace.spend(1, 1);
            bodies += 1;
        }
        // 5 ms of bodies of 10 µs, with a pause each 300 µs.
        assert!((400..=500).contains(&bodies), "{bodies}");
        assert!((12..=17).contains(&pauses.get()), "{}", pauses.get());
    }

    #[test]
    fn unbroken_work_has_no_end() {
        let mut pace = Pace::unbroken();
        pace.spend(u64::from(u32::MAX), 0);
        assert!(!pace.is_over());
    }
}

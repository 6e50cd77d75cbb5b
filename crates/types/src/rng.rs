//! Random numbers. All randomness goes through this module.
//!
//! A thread can have a seed that determines all its random numbers. A simulation, which runs a whole hub on one thread,
//! uses this to be reproducible.

use std::cell::RefCell;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Guard for a seed: while it exists, all randomness of its thread derives from the seed.
#[derive(Debug)]
#[must_use = "dropping it ends the seeding"]
pub struct SeededRng(());

impl SeededRng {
    /// Seeds the current thread.
    pub fn new(seed: u64) -> Self {
        SEEDED.set(Some(StdRng::seed_from_u64(seed)));
        Self(())
    }
}

impl Drop for SeededRng {
    fn drop(&mut self) {
        SEEDED.set(None);
    }
}

/// Returns a new random number generator, from the thread's seed if any.
#[must_use]
pub fn rng() -> StdRng {
    seeded(StdRng::from_rng).unwrap_or_else(|| {
        #[expect(clippy::disallowed_methods, reason = "this is the source of randomness")]
        StdRng::from_rng(&mut rand::rng())
    })
}

/// Returns a random number in `[0, 1)`.
#[must_use]
pub fn unit() -> f64 {
    seeded(Rng::random).unwrap_or_else(|| {
        #[expect(clippy::disallowed_methods, reason = "this is the source of randomness")]
        rand::random()
    })
}

fn seeded<T>(draw: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    SEEDED.with_borrow_mut(|rng| rng.as_mut().map(draw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_all_randomness_of_its_thread() {
        let draw = || (unit(), rng().random::<u64>(), unit());
        let seeded = |seed| {
            let _guard = SeededRng::new(seed);
            draw()
        };
        assert_eq!(seeded(1), seeded(1));
        assert_ne!(seeded(1), seeded(2));
        let _guard = SeededRng::new(1);
        assert_ne!(std::thread::spawn(draw).join().unwrap(), seeded(1));
        assert_ne!(draw(), draw());
    }
}

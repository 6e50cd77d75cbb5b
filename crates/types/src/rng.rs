//! The only place that rolls dice.
//!
//! A thread may be told a seed, from which all chance on it comes then: a simulation that runs a whole hub on one thread
//! does, so that what happened can happen again.

use std::cell::RefCell;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

thread_local! {
    static DECIDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// While this lives, chance on its thread comes from a seed.
#[derive(Debug)]
#[must_use = "chance is chance again when this goes"]
pub struct SeededRng(());

impl SeededRng {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        DECIDED.set(Some(StdRng::seed_from_u64(seed)));
        Self(())
    }
}

impl Drop for SeededRng {
    fn drop(&mut self) {
        DECIDED.set(None);
    }
}

/// A source of chance of one's own.
#[must_use]
pub fn rng() -> StdRng {
    decided(StdRng::from_rng).unwrap_or_else(|| {
        #[expect(clippy::disallowed_methods, reason = "this is where chance comes from")]
        StdRng::from_rng(&mut rand::rng())
    })
}

/// A number in `[0, 1)`.
#[must_use]
pub fn unit() -> f64 {
    decided(Rng::random).unwrap_or_else(|| {
        #[expect(clippy::disallowed_methods, reason = "this is where chance comes from")]
        rand::random()
    })
}

fn decided<T>(roll: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    DECIDED.with_borrow_mut(|rng| rng.as_mut().map(roll))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_that_is_rolled_on_its_thread_until_it_goes() {
        let roll = || (unit(), rng().random::<u64>(), unit());
        let decided = |seed| {
            let _decided = SeededRng::new(seed);
            roll()
        };
        assert_eq!(decided(1), decided(1));
        assert_ne!(decided(1), decided(2));
        let _decided = SeededRng::new(1);
        assert_ne!(std::thread::spawn(roll).join().unwrap(), decided(1));
        assert_ne!(roll(), roll());
    }
}

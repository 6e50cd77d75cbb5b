//! State that outlives the actor that uses it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

/// Value that returns to its [`RecoverySlot`] when dropped, also by a panic.
///
/// After a panic the value may be half-modified. The holder must keep it consistent between any two steps that may
/// panic, or the successor must repair it.
#[derive(Debug)]
pub(crate) struct Recoverable<T> {
    /// `Some` until the holder is dropped.
    value: Option<T>,
    slot: RecoverySlot<T>,
}

/// Slot from which the successor of a dead actor takes the value.
#[derive(Debug)]
pub(crate) struct RecoverySlot<T>(Arc<Mutex<Option<T>>>);

impl<T> RecoverySlot<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Some(value))))
    }

    /// Takes the value; `None` while another actor has it.
    pub(crate) fn claim(&self) -> Option<Recoverable<T>> {
        let value = self.0.lock().take()?;
        Some(Recoverable { value: Some(value), slot: Self(Arc::clone(&self.0)) })
    }
}

impl<T> Deref for Recoverable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is taken on drop only")
    }
}

impl<T> DerefMut for Recoverable<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is taken on drop only")
    }
}

impl<T> Drop for Recoverable<T> {
    fn drop(&mut self) {
        *self.slot.0.lock() = self.value.take();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn recoverable_value_survives_a_panic_of_its_holder() {
        let slot = RecoverySlot::new(vec![1]);
        let mut holder = slot.claim().unwrap();
        assert!(slot.claim().is_none(), "one holder at a time");
        let died = catch_unwind(AssertUnwindSafe(move || {
            holder.push(2);
            panic!("on purpose");
        }));
        assert!(died.is_err());
        assert_eq!(*slot.claim().unwrap(), [1, 2]);
    }
}

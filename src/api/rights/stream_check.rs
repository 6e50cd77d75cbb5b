//! Periodic check of the rights of a reader. An open stream ends when they have changed.

use std::fmt;
use std::time::Duration;

use super::CurrentReader;
use informer_hub_access::{Reader, ReaderOrigin};
use informer_hub_types::clock::{self, Instant};

/// Time between two checks of a stream.
const INTERVAL: Duration = Duration::from_secs(10);

/// Periodic check whether a stream's reader still has its rights.
pub(in crate::api) struct RightsCheck {
    reader: Reader,
    current: Option<CurrentReader>,
    /// Time of the next check; `None` if the rights cannot change.
    next: Option<Instant>,
}

impl RightsCheck {
    pub(super) fn new(reader: Reader, current: Option<CurrentReader>) -> Self {
        let is_fixed =
            matches!(reader.origin(), ReaderOrigin::Anonymous | ReaderOrigin::Administrator | ReaderOrigin::ReadToken);
        let may_change = reader.expires().is_some() || reader.grants().reviews || (current.is_some() && !is_fixed);
        Self { reader, current, next: may_change.then(|| clock::now() + INTERVAL) }
    }

    /// Returns the time of the next check; `None` if the rights cannot change.
    pub(in crate::api) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns whether a check is due.
    pub(in crate::api) fn is_due(&self) -> bool {
        self.next.is_some_and(|next| next <= clock::now())
    }

    /// Returns whether the reader still has the rights that it had when the stream began. True if no check is due.
    pub(in crate::api) fn holds(&mut self) -> bool {
        let now = clock::now();
        if self.next.is_none_or(|next| now < next) {
            return true;
        }
        self.next = Some(now + INTERVAL);
        let is_expired = self.reader.expires().is_some_and(|expires| expires <= clock::wall());
        let has_same_rights = self
            .current
            .as_ref()
            .is_none_or(|current| current(&self.reader).is_some_and(|reader| reader.grants() == self.reader.grants()));
        !is_expired && has_same_rights
    }
}

impl fmt::Debug for RightsCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RightsCheck").field("reader", &self.reader).field("next", &self.next).finish_non_exhaustive()
    }
}

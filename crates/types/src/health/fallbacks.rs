//! Encoding in which an informer reads its objects, and its fallbacks from protobuf to JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::InformerHealth;
use crate::{EncodingInUse, JsonReason};

impl InformerHealth {
    /// Sets the encoding in use. Returns whether this is a new fallback from protobuf to JSON, which is also counted.
    pub fn set_encoding(&self, encoding: EncodingInUse) -> bool {
        let before = self.encoding.load();
        if before.as_deref() == Some(&encoding) {
            return false;
        }
        let reason = encoding.fallback().filter(|reason| before.as_ref().and_then(|it| it.fallback()) != Some(*reason));
        let counter = JsonReason::FALLBACKS.iter().position(|fallback| Some(*fallback) == reason);
        if let Some(counter) = counter {
            self.fallbacks[counter].fetch_add(1, Relaxed);
        }
        self.encoding.store(Some(Arc::new(encoding)));
        counter.is_some()
    }

    /// Returns the encoding in use; `None` before the first answer.
    #[must_use]
    pub fn encoding(&self) -> Option<Arc<EncodingInUse>> {
        self.encoding.load_full()
    }

    /// Returns the number of fallbacks to JSON for each of [`JsonReason::FALLBACKS`], including changes of the reason.
    #[must_use]
    pub fn fallbacks(&self) -> [u64; JsonReason::FALLBACKS.len()] {
        self.fallbacks.each_ref().map(|counter| counter.load(Relaxed))
    }
}

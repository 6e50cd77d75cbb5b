//! A filter in CEL: refused with a place, or run on a few notifications, soon over and without values in its errors.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use informer_hub_sink::{Filter, Redaction};
use informer_hub_types::Notification;

use super::objects::notifications;

static NOTIFICATIONS: LazyLock<Vec<Notification>> = LazyLock::new(notifications);

/// The budget of an evaluation is some 100 ms of an optimised build by itself; this one counts what it covers, or is not
/// optimised at all, and has neighbours.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let filter = match Filter::compile(text) {
        Ok(filter) => filter,
        Err(invalid) => {
            assert!(!invalid.problem.trim().is_empty() && invalid.line > 0 && invalid.column > 0, "{invalid:?}");
            assert_ne!(invalid.problem, "the parser panicked");
            return;
        }
    };
    for notification in &*NOTIFICATIONS {
        let began = now();
        let passes = filter.passes(notification, &Redaction::default());
        let took = now().duration_since(began);
        assert!(took < SOON, "{took:?}");
        if let Err(problem) = passes {
            assert_ne!(problem, "the evaluation panicked");
            assert!(!problem.contains("hunter2") || text.contains("hunter2"), "{problem}");
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "this is about how long it really takes")]
fn now() -> Instant {
    Instant::now()
}

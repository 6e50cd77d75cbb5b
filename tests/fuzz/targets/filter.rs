//! Fuzz target: a CEL filter. It is rejected with a position, or evaluated within its budget without leaking values.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use informer_hub_sink::{Filter, Redaction};
use informer_hub_types::Notification;

use super::objects::notifications;

static NOTIFICATIONS: LazyLock<Vec<Notification>> = LazyLock::new(notifications);

/// Time limit of one evaluation. The budget is about 100 ms in an optimised build on an idle machine. This build is
/// instrumented or unoptimised, and shares the machine.
const TIME_LIMIT: Duration = Duration::from_secs(20);

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
        assert!(took < TIME_LIMIT, "{took:?}");
        if let Err(problem) = passes {
            assert_ne!(problem, "the evaluation panicked");
            assert!(!problem.contains("hunter2") || text.contains("hunter2"), "{problem}");
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Instant {
    Instant::now()
}

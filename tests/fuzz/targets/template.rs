//! Fuzz target: a sink's template. It is refused with a line, or renders messages within their bounds.
//!
//! The first byte selects the media type of messages.

use std::sync::LazyLock;

use informer_hub_sink::{Event, EventOptions, Shape, Template};

use super::input::Input;
use super::objects::notifications;

static EVENTS: LazyLock<Vec<Event>> = LazyLock::new(|| {
    let event = |notification| Event::new(&notification, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default());
    notifications().into_iter().map(event).collect::<Result<_, _>>().expect("valid objects become events")
});

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let is_json = input.byte() & 1 == 0;
    let Ok(text) = std::str::from_utf8(input.0) else { return };
    let template = match Template::compile(text, if is_json { "application/json" } else { "text/plain" }) {
        Ok(template) => template,
        Err(invalid) => {
            assert!(!invalid.problem.trim().is_empty() && invalid.line > 0, "{invalid:?}");
            return;
        }
    };
    let shape = Shape::Template(Box::new(template));
    for event in &*EVENTS {
        match shape.one(event) {
            Ok(message) => {
                assert!(message.len() <= 1 << 20);
                assert!(!is_json || serde_json::from_str::<serde::de::IgnoredAny>(&message).is_ok());
            }
            Err(problem) => assert!(!problem.contains("hunter2"), "{problem}"),
        }
    }
}

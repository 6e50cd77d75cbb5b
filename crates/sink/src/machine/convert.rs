//! Conversion of notifications into events.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use super::{Machine, MachineParams, panic_text};
use crate::{Event, EventOptions, EventType, SelectionResult};
use informer_hub_types::{Notification, Rewind, TraceParent, with_causes};

impl<T> Machine<T> {
    /// Converts a notification into the event to send; `None` if the sink does not select it or the conversion fails.
    ///
    /// After a restore of etcd (`rewind`), a state of an object may be sent a second time on purpose. The second event
    /// has another id, so that receivers do not drop it as a duplicate.
    pub(super) fn event_of(
        &self,
        notification: &Notification,
        rewind: Option<&Rewind>,
        seen: jiff::Timestamp,
        parent: Option<TraceParent>,
    ) -> Option<Event> {
        let may_repeat =
            |rewind: &&Rewind| notification.object().is_some_and(|it| !it.resource_version().newer_than(&rewind.known));
        let options = match rewind.filter(may_repeat) {
            Some(rewind) => {
                let rewound = Some(rewind.listed.clone());
                Cow::Owned(EventOptions { rewound, ..self.params.options.clone() })
            }
            None => Cow::Borrowed(&self.params.options),
        };
        let event = self.convert(notification, &options, seen, parent)?;
        self.as_update(event, notification, &options, seen, parent)
    }

    /// Converts a notification into an event; `None` if the sink does not select it or the conversion fails. An error
    /// or panic loses this notification only.
    fn convert(
        &self,
        notification: &Notification,
        options: &EventOptions,
        seen: jiff::Timestamp,
        parent: Option<TraceParent>,
    ) -> Option<Event> {
        let MachineParams { health, name, selection, .. } = &self.params;
        let converted = catch_unwind(AssertUnwindSafe(|| {
            let result = selection.evaluate(notification);
            let is_accepted = !matches!(result, SelectionResult::Drop | SelectionResult::DropUnfiltered(_));
            let event = is_accepted.then(|| Event::in_trace(notification, seen, options, parent)).transpose();
            (result, event)
        }));
        let (result, event) = converted.unwrap_or_else(|panic| {
            tracing::error!(
                sink = %name, ?notification, panic = panic_text(&*panic),
                "panic while building the event of a change; this event is not delivered"
            );
            (SelectionResult::Accept, Ok(None))
        });
        if let SelectionResult::AcceptUnfiltered(error) | SelectionResult::DropUnfiltered(error) = &result {
            let count = health.filter_errors.fetch_add(1, Relaxed) + 1;
            // Logged at the 1st, 2nd, 4th, 8th failure and so on: an unsuitable filter fails for each event.
            if count.is_power_of_two() {
                let is_sent = matches!(result, SelectionResult::AcceptUnfiltered(_));
                let then = if is_sent { "sent" } else { "dropped" };
                tracing::warn!(
                    sink = %name, ?notification, error, failures = count, on_filter_error = then,
                    "cannot evaluate the filter of a sink; such events are sent or dropped as on_filter_error says"
                );
            }
        }
        match (result, event) {
            (SelectionResult::Drop | SelectionResult::DropUnfiltered(_), _) => {
                health.filtered.fetch_add(1, Relaxed);
                None
            }
            (_, Ok(Some(event))) => Some(event),
            (_, failed) => {
                health.unreadable.fetch_add(1, Relaxed);
                let error = failed.err().map(|error| with_causes(&error));
                tracing::error!(
                    sink = %name, ?notification, error,
                    "cannot convert a notification to an event; it is lost"
                );
                None
            }
        }
    }

    /// Returns the event to send. An `Added` event of an object that the journal already has becomes an `Updated` event
    /// without the previous state. Other events are unchanged. Returns `None` if the sink does not select updates.
    fn as_update(
        &self,
        event: Event,
        notification: &Notification,
        options: &EventOptions,
        seen: jiff::Timestamp,
        parent: Option<TraceParent>,
    ) -> Option<Event> {
        let MachineParams { health, selection, .. } = &self.params;
        let is_update = self.durable.as_ref().is_some_and(|durable| durable.is_update(&event));
        let Notification::Added { object, .. } = notification else { return Some(event) };
        if !is_update {
            return Some(event);
        }
        if !selection.events.contains(&EventType::Updated) {
            health.filtered.fetch_add(1, Relaxed);
            return None;
        }
        let update = Notification::Updated { old: object.clone(), new: object.clone(), resync: false };
        let options = EventOptions { include_old: false, ..options.clone() };
        Event::in_trace(&update, seen, &options, parent).ok()
    }
}

//! Format of sent events: CloudEvents, plain JSON, a template's text, or a chat message. No I/O.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Event, Preset};

mod presets;
mod template;

pub use template::{InvalidTemplate, Template};

/// Format in which a sink sends its events.
#[derive(Debug, Default)]
pub enum Shape {
    /// The whole event as CloudEvents 1.0 JSON.
    #[default]
    CloudEvents,
    /// The event's `data`, preceded by `id`, `type` (one word), `time` and, if present, `sequence`.
    Json,
    /// Output of a template, which reads the members of [`Self::Json`]. One event per message.
    Template(Box<Template>),
    /// Chat message. One event per message.
    Preset(Preset),
}

/// Members of a CloudEvent's JSON from which the formats other than CloudEvents are made.
#[derive(Debug, Deserialize)]
struct Envelope<'e> {
    #[serde(borrow)]
    time: Cow<'e, str>,
    #[serde(borrow, default)]
    sequence: Option<Cow<'e, str>>,
    #[serde(borrow)]
    data: &'e RawValue,
}

impl<'e> Envelope<'e> {
    fn of(event: &'e Event) -> Result<Self, String> {
        serde_json::from_str(event.json()).map_err(|error| format!("the event is not a CloudEvent: {error}"))
    }
}

impl Shape {
    /// Returns whether a message in this format always has a single event.
    #[must_use]
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Template(_) | Self::Preset(_))
    }

    /// Returns the media type of a message, or of an array of events if `batched`.
    #[must_use]
    pub fn content_type(&self, batched: bool) -> &str {
        match self {
            Self::CloudEvents if batched => "application/cloudevents-batch+json",
            Self::CloudEvents => "application/cloudevents+json",
            Self::Json | Self::Preset(_) => "application/json",
            Self::Template(template) => template.content_type(),
        }
    }

    /// Encodes one event.
    ///
    /// # Errors
    /// An error text if the event cannot be encoded, e.g. because the template fails.
    pub fn one<'e>(&self, event: &'e Event) -> Result<Cow<'e, str>, String> {
        match self {
            Self::CloudEvents => Ok(Cow::Borrowed(event.json())),
            Self::Json => plain(event).map(Cow::Owned),
            Self::Template(template) => template.render(&plain(event)?).map(Cow::Owned),
            Self::Preset(preset) => presets::message(*preset, event).map(Cow::Owned),
        }
    }

    /// Encodes a batch as a JSON array. A single event is encoded without an array if `batched` is false or the format
    /// allows only one event per message.
    ///
    /// # Errors
    /// See [`Self::one`]. Also fails for several events in a single-event format.
    pub fn batch(&self, events: &[Event], batched: bool) -> Result<String, String> {
        match (events, batched && !self.is_single()) {
            ([event], false) => self.one(event).map(Cow::into_owned),
            (_, false) if self.is_single() => Err("this format takes one event per message".to_owned()),
            _ => {
                let length: usize = events.iter().map(|event| event.json().len() + 1).sum();
                let mut body = String::with_capacity(length + 1);
                for event in events {
                    body.push(if body.is_empty() { '[' } else { ',' });
                    body.push_str(&self.one(event)?);
                }
                body.push(']');
                Ok(body)
            }
        }
    }
}

/// Encodes an event in the format [`Shape::Json`].
fn plain(event: &Event) -> Result<String, String> {
    let envelope = Envelope::of(event)?;
    let members = envelope.data.get().strip_prefix('{').ok_or("the event's data is not an object")?;
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let (id, word, time) = (text(event.id()), text(event.event_type().as_str()), text(&envelope.time));
    let sequence = envelope.sequence.map(|number| format!(r#""sequence":{},"#, text(&number))).unwrap_or_default();
    Ok(format!(r#"{{"id":{id},"type":{word},"time":{time},{sequence}{members}"#))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::event::tests::event;
    use super::*;

    #[test]
    fn plain_json_has_data_id_type_and_time() {
        let event = event("web", 7, 0);
        let value: Value = serde_json::from_str(&Shape::Json.one(&event).unwrap()).unwrap();
        assert_eq!((&value["id"], &value["type"]), (&event.id().into(), &"added".into()));
        assert_eq!((&value["cluster"], &value["name"]), (&"prod-eu".into(), &"web".into()));
        assert_eq!(value["object"]["metadata"]["name"], "web");
        assert!(value["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }

    #[test]
    fn batch_is_an_array_except_in_single_event_formats() {
        let events = [event("a", 1, 0), event("b", 1, 0)];
        let length = |shape: &Shape, events, batched| {
            let value: Value = serde_json::from_str(&shape.batch(events, batched).unwrap()).unwrap();
            value.as_array().map(Vec::len)
        };
        for shape in [Shape::CloudEvents, Shape::Json] {
            assert_eq!(length(&shape, &events, true), Some(2));
            assert_eq!(length(&shape, &events[..1], true), Some(1));
            assert_eq!(length(&shape, &events[..1], false), None);
        }
        let chat = Shape::Preset(Preset::Slack);
        assert_eq!(length(&chat, &events[..1], true), None);
        assert!(chat.batch(&events, true).is_err());
    }
}

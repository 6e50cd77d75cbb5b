//! The form in which events are sent: CloudEvents, plain JSON, a template's text, or a chat's message. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Event, Preset};

mod presets;
mod template;

pub use template::{InvalidTemplate, Template};

/// The form in which a sink sends its events.
#[derive(Debug, Default)]
pub enum Shape {
    /// The whole event, CloudEvents 1.0 in JSON.
    #[default]
    CloudEvents,
    /// The event's `data`, and before it `id`, `type` (one word), `time` and, where there is one, `sequence`.
    Json,
    /// What a template makes of the same members. One event per message.
    Template(Box<Template>),
    /// A message for people in a chat. One event per message.
    Preset(Preset),
}

/// What is needed of an event to give it another form.
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
    /// Whether a message holds one event, and never an array of them.
    #[must_use]
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Template(_) | Self::Preset(_))
    }

    /// The media type of a message; of an array of them where `batched`.
    #[must_use]
    pub fn content_type(&self, batched: bool) -> &str {
        match self {
            Self::CloudEvents if batched => "application/cloudevents-batch+json",
            Self::CloudEvents => "application/cloudevents+json",
            Self::Json | Self::Preset(_) => "application/json",
            Self::Template(template) => template.content_type(),
        }
    }

    /// One event.
    ///
    /// # Errors
    /// The event cannot take this form: with a template, whatever goes wrong in it.
    pub fn one<'e>(&self, event: &'e Event) -> Result<Cow<'e, str>, String> {
        match self {
            Self::CloudEvents => Ok(Cow::Borrowed(event.json())),
            Self::Json => plain(event).map(Cow::Owned),
            Self::Template(template) => template.render(&plain(event)?).map(Cow::Owned),
            Self::Preset(preset) => presets::message(*preset, event).map(Cow::Owned),
        }
    }

    /// A batch: an array, or the event itself where messages are single ones.
    ///
    /// # Errors
    /// See [`Self::one`]; also where there is more than one event and messages are single ones.
    pub fn batch(&self, events: &[Event], batched: bool) -> Result<String, String> {
        match (events, batched && !self.is_single()) {
            ([event], false) => self.one(event).map(Cow::into_owned),
            (_, false) if self.is_single() => Err("one event per message is the form of this sink".to_owned()),
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

/// `data` with what of the envelope says what happened.
fn plain(event: &Event) -> Result<String, String> {
    let envelope = Envelope::of(event)?;
    let members = envelope.data.get().strip_prefix('{').ok_or("the event's data is no object")?;
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
    fn plain_json_is_the_data_and_what_happened() {
        let event = event("web", 7, 0);
        let value: Value = serde_json::from_str(&Shape::Json.one(&event).unwrap()).unwrap();
        assert_eq!((&value["id"], &value["type"]), (&event.id().into(), &"added".into()));
        assert_eq!((&value["cluster"], &value["name"]), (&"prod-eu".into(), &"web".into()));
        assert_eq!(value["object"]["metadata"]["name"], "web");
        assert!(value["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }

    #[test]
    fn a_batch_is_an_array_but_for_forms_of_one_event() {
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

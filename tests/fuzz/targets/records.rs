//! Fuzz target: records of a sink's journals (events, dead letters) and dead letter filters. They round-trip.

use informer_hub_sink::{DeadLetter, Event, LetterFilter, Preset, Shape};

use super::input::Input;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 3 {
        0 => event(input.0),
        1 => letter(input.0),
        _ => {
            let Ok(filter) = serde_json::from_slice::<LetterFilter>(input.0) else { return };
            let again = serde_json::to_vec(&filter).expect("a filter is JSON");
            assert_eq!(serde_json::from_slice::<LetterFilter>(&again).ok(), Some(filter));
        }
    }
}

fn event(bytes: &[u8]) {
    let Ok(mut event) = Event::decode(bytes, Some(7)) else { return };
    let mut again = Vec::new();
    event.encode(&mut again);
    let read = Event::decode(&again, Some(7)).expect("an encoded record decodes");
    assert_eq!((read.id(), read.cluster(), read.subject()), (event.id(), event.cluster(), event.subject()));
    assert_eq!((read.uid(), read.version(), read.json()), (event.uid(), event.version(), event.json()));
    event.set_sequence(u64::MAX);
    for preset in [Preset::Slack, Preset::Teams, Preset::Discord] {
        if let Ok(message) = Shape::Preset(preset).one(&event) {
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(&message).is_ok(), "{message}");
        }
    }
    let has_data = |json: serde_json::Value| json["data"].as_object().is_some_and(|data| !data.is_empty());
    if let (Ok(json), Ok(message)) = (serde_json::from_str(event.json()), Shape::Json.one(&event)) {
        assert!(!has_data(json) || serde_json::from_str::<serde::de::IgnoredAny>(&message).is_ok(), "{message}");
    }
}

fn letter(bytes: &[u8]) {
    let Ok(letter) = DeadLetter::decode(bytes) else { return };
    let mut again = Vec::new();
    letter.encode(&mut again);
    let read = DeadLetter::decode(&again).expect("an encoded record decodes");
    assert_eq!((read.attempts, &read.error, read.at), (letter.attempts, &letter.error, letter.at));
    assert_eq!(serde_json::to_value(letter.summary(1)).ok(), serde_json::to_value(read.summary(1)).ok());
    assert!(LetterFilter::default().fits(&letter));
}

//! Declarations of the `/v1` paths for operators: status, reload and dead letters.

use crate::api::v1::{Answer, Kind, Media, Method, Operation, Parameter, Route};

const SINK: Parameter = Parameter::of_path("sink", "Name of the sink");

const fn json(text: &'static str, media: &'static [Media]) -> Answer {
    Answer { code: 200, text, media }
}

const fn get(
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [Parameter]],
    answers: &'static [Answer],
) -> Operation {
    Operation { method: Method::Get, id, summary, parameters, body: None, answers }
}

const fn post(
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [Parameter]],
    body: Option<&'static str>,
    answers: &'static [Answer],
) -> Operation {
    Operation { method: Method::Post, id, summary, parameters, body, answers }
}

const LETTERS: &[Parameter] = &[
    Parameter::new("id", Kind::Text, "Id of the event"),
    Parameter::new("cluster", Kind::Text, "Name of the cluster"),
    Parameter::new("subject", Kind::Text, "Part of the event's subject"),
    Parameter::new("error", Kind::Text, "Part of the error"),
    Parameter::new("before", Kind::Text, "Latest time, in RFC 3339"),
    Parameter::new("from", Kind::Text, "First number: `next` of the previous answer"),
    Parameter::new("limit", Kind::Count, "Largest number of dead letters; 100 if absent, 1000 at most"),
];

const COUNT: &[Answer] =
    &[json("Number of dead letters", &[Media { name: "application/json", schema: Some("Count") }])];

pub(super) const ROUTES: [Route; 6] = [
    Route {
        path: "/v1/status",
        operations: &[get(
            "status",
            "Returns the state of the hub, its clusters and sinks",
            &[],
            &[json("The state", &[Media { name: "application/json", schema: Some("Status") }])],
        )],
    },
    Route {
        path: "/v1/reload",
        operations: &[post(
            "reload",
            "Reads the configuration file again",
            &[],
            None,
            &[json("The changes", &[Media { name: "application/json", schema: Some("Changes") }])],
        )],
    },
    Route {
        path: "/v1/sinks/{sink}/dead-letters",
        operations: &[get(
            "deadLetters",
            "Lists dead letters of a sink, oldest first",
            &[&[SINK], LETTERS],
            &[json("The dead letters", &[Media { name: "application/json", schema: Some("DeadLetters") }])],
        )],
    },
    Route {
        path: "/v1/sinks/{sink}/dead-letters/{number}",
        operations: &[get(
            "deadLetter",
            "Returns a dead letter with its event",
            &[&[SINK, Parameter::of_path("number", "Number of the dead letter")]],
            &[json("The dead letter", &[Media { name: "application/json", schema: Some("DeadLetter") }])],
        )],
    },
    Route {
        path: "/v1/sinks/{sink}/dead-letters/replay",
        operations: &[post("replay", "Delivers dead letters again", &[&[SINK]], Some("LetterFilter"), COUNT)],
    },
    Route {
        path: "/v1/sinks/{sink}/dead-letters/purge",
        operations: &[post("purge", "Deletes dead letters", &[&[SINK]], Some("LetterFilter"), COUNT)],
    },
];

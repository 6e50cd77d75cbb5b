//! Declarations of paths: methods, parameters and answers.

/// A path below `/v1`.
#[derive(Debug)]
pub(in crate::api) struct Route {
    /// Path with its parameters in braces, such as `/v1/sinks/{sink}/dead-letters`.
    pub(in crate::api) path: &'static str,
    pub(in crate::api) operations: &'static [Operation],
}

/// HTTP method of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) enum Method {
    /// `GET`, which also answers `HEAD`.
    Get,
    Post,
}

/// A method of a path.
#[derive(Debug)]
pub(in crate::api) struct Operation {
    pub(in crate::api) method: Method,
    /// Identifier, unique among all operations.
    pub(in crate::api) id: &'static str,
    /// Summary for the OpenAPI document: one sentence without a full stop.
    pub(in crate::api) summary: &'static str,
    pub(in crate::api) parameters: &'static [&'static [Parameter]],
    /// Name of the schema of the JSON body, if there is one.
    pub(in crate::api) body: Option<&'static str>,
    pub(in crate::api) answers: &'static [Answer],
}

/// An answer of an operation.
#[derive(Debug)]
pub(in crate::api) struct Answer {
    pub(in crate::api) code: u16,
    pub(in crate::api) text: &'static str,
    pub(in crate::api) media: &'static [Media],
}

/// Media type of an answer, with its schema.
#[derive(Debug)]
pub(in crate::api) struct Media {
    pub(in crate::api) name: &'static str,
    /// Name of the schema of the JSON body, or of each line if the body is lines of JSON. `None` declares a plain
    /// string.
    pub(in crate::api) schema: Option<&'static str>,
}

/// Location of a parameter in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) enum Place {
    Path,
    Query,
    Header,
}

/// Type of a parameter's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) enum Kind {
    Text,
    /// A positive integer.
    Count,
    /// `true` or `false`.
    Flag,
    /// A duration, such as `10s`.
    Duration,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Some of these words, separated by commas.
    SomeOf(&'static [&'static str]),
}

/// A parameter of an operation.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct Parameter {
    pub(in crate::api) name: &'static str,
    pub(in crate::api) place: Place,
    pub(in crate::api) kind: Kind,
    pub(in crate::api) text: &'static str,
    pub(in crate::api) is_required: bool,
    /// Whether the parameter may be given several times.
    pub(in crate::api) is_repeated: bool,
}

impl Parameter {
    /// Creates an optional parameter of the URL's query.
    pub(in crate::api) const fn new(name: &'static str, kind: Kind, text: &'static str) -> Self {
        Self { name, place: Place::Query, kind, text, is_required: false, is_repeated: false }
    }

    pub(in crate::api) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(in crate::api) const fn repeated(self) -> Self {
        Self { is_repeated: true, ..self }
    }

    /// Creates a required parameter that is a part of the path.
    pub(in crate::api) const fn of_path(name: &'static str, text: &'static str) -> Self {
        Self { place: Place::Path, ..Self::new(name, Kind::Text, text).required() }
    }

    /// Creates an optional parameter that is a header of the request.
    pub(in crate::api) const fn of_header(name: &'static str, text: &'static str) -> Self {
        Self { place: Place::Header, ..Self::new(name, Kind::Text, text) }
    }
}

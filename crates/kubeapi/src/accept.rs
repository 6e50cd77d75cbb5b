//! Content negotiation: chooses the encoding and the form of an answer by the `Accept` header.

use crate::Status;

/// Maximum number of clauses that are read from an `Accept` header; known clients send at most five.
const MAX_CLAUSES: usize = 64;
/// Offered media types, in the order in which a wildcard such as `*/*` selects them.
const OFFERED: [(Media, &str); 3] = [
    (Media::Json, "application/json"),
    (Media::Yaml, "application/yaml"),
    (Media::Protobuf, "application/vnd.kubernetes.protobuf"),
];
/// Media types of watches, in JSON and protobuf; there is none in YAML.
const OFFERED_STREAMS: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// Encoding of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// Forms of objects that an endpoint can send as protobuf. The endpoint can send all its forms as JSON and YAML. Tables
/// are never sent as protobuf.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protobuf {
    /// No form, as for discovery documents.
    Never,
    /// `PartialObjectMetadata` and its lists, as for custom resources.
    Metadata,
    /// Metadata and whole objects, as for built-in resources.
    Objects,
}

/// Form of the objects in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// The objects themselves.
    Object,
    /// A table of the objects, asked for by `as=Table;g=meta.k8s.io;v=v1`.
    Table,
    /// The metadata of one object, or of each object of a watch, asked for by `as=PartialObjectMetadata`.
    Metadata,
    /// A list of the objects' metadata, asked for by `as=PartialObjectMetadataList`.
    MetadataList,
    /// Aggregated discovery, asked for by `as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2`.
    AggregatedDiscovery,
}

/// Result of a negotiation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Encoding of the answer.
    pub media: Media,
    /// Form in which the objects are sent, such as a table.
    pub form: Form,
    /// Whether the client asks for indented JSON (`pretty=1` in the media type).
    pub pretty: bool,
}

/// Chooses encoding and form of an answer. A missing or empty `Accept` header and `*/*` mean JSON. `offered` are the
/// forms of the endpoint besides [`Form::Object`].
///
/// As in kube-apiserver, clauses are tried in the order of their q-values, with wildcards last, and `q=0` does not
/// exclude a media type. A clause for a form that is not offered is skipped. If aggregated discovery is offered, a
/// clause that asks for it is tried before all others. A stream (watch) cannot be YAML.
///
/// # Errors
/// [`Status`] of code 406, which lists the offered media types.
pub fn negotiate(
    accept: Option<&str>,
    offered: &[Form],
    protobuf: Protobuf,
    is_stream: bool,
) -> Result<Accepted, Status> {
    let header = accept.unwrap_or_default();
    if header.is_empty() {
        return Ok(Accepted { media: Media::Json, form: Form::Object, pretty: false });
    }
    let clauses = clauses(header);
    let first = |is_wanted: &dyn Fn(Form) -> bool| {
        let mut accepted = clauses.iter().flat_map(|clause| OFFERED.iter().filter_map(|it| clause.accepted(*it)));
        accepted.find(|found| is_wanted(found.form) && protobuf.offers(found))
    };
    let aggregated = || first(&|form| form == Form::AggregatedDiscovery && offered.contains(&form));
    let chosen = aggregated().or_else(|| {
        first(&|form| form == Form::Object || form != Form::AggregatedDiscovery && offered.contains(&form))
    });
    match chosen {
        Some(accepted) if is_stream => accepted.check_stream().map(|()| accepted),
        Some(accepted) => Ok(accepted),
        None => {
            let count = if protobuf == Protobuf::Never { 2 } else { OFFERED.len() };
            Err(Status::not_acceptable(&OFFERED.map(|(_, name)| name)[..count]))
        }
    }
}

impl Protobuf {
    fn offers(self, accepted: &Accepted) -> bool {
        accepted.media != Media::Protobuf
            || match self {
                Self::Never => false,
                Self::Metadata => matches!(accepted.form, Form::Metadata | Form::MetadataList),
                Self::Objects => accepted.form != Form::Table,
            }
    }
}

impl Accepted {
    /// Checks that a watch can be sent in this encoding.
    ///
    /// # Errors
    /// [`Status`] of code 406 for YAML.
    pub fn check_stream(&self) -> Result<(), Status> {
        if self.media == Media::Yaml { Err(Status::not_acceptable(&OFFERED_STREAMS)) } else { Ok(()) }
    }

    /// Returns the `Content-Type` of a watch.
    #[must_use]
    pub fn stream_content_type(&self) -> &'static str {
        if self.media == Media::Protobuf { OFFERED_STREAMS[1] } else { self.content_type() }
    }

    /// Returns the `Content-Type` of the answer, as kube-apiserver writes it.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match (self.form, self.media) {
            (Form::AggregatedDiscovery, Media::Json) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Form::AggregatedDiscovery, Media::Yaml) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (_, Media::Json) => "application/json",
            (_, Media::Yaml) => "application/yaml",
            (_, Media::Protobuf) => "application/vnd.kubernetes.protobuf",
        }
    }
}

struct Clause<'h> {
    kind: &'h str,
    subtype: &'h str,
    quality: f32,
    parameters: Vec<(&'h str, &'h str)>,
}

/// Parses the clauses of an `Accept` header and sorts them as kube-apiserver does. Drops clauses without a subtype,
/// except `*`.
///
/// The comparison is not transitive: a clause without a wildcard may precede one with a wildcard and a higher q-value.
/// So the result depends on the sort algorithm. This is an insertion sort, as in Go's `sort` for up to twelve elements.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::parse).take(MAX_CLAUSES).collect();
    for from in 1..clauses.len() {
        let mut at = from;
        while at > 0 && clauses[at].precedes(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

impl<'h> Clause<'h> {
    fn parse(text: &'h str) -> Option<Self> {
        let spaces = |text: &'h str| text.trim_matches(' ');
        let (range, parameters) = spaces(text).split_once(';').unwrap_or((spaces(text), ""));
        let (kind, subtype) = range.split_once('/').unwrap_or((range, ""));
        let (kind, subtype) = match (spaces(kind), subtype) {
            ("*", "") => ("*", "*"),
            (_, "") => return None,
            (kind, subtype) => (kind, spaces(subtype)),
        };
        let mut clause = Self { kind, subtype, quality: 1.0, parameters: Vec::new() };
        for parameter in parameters.split(';') {
            match parameter.split_once('=').map(|(name, value)| (spaces(name), value)) {
                None => {}
                Some((_, value)) if value.is_empty() || value.contains('=') => {}
                Some(("q", value)) => clause.quality = value.parse().unwrap_or_default(),
                Some((name, value)) => clause.parameters.push((name, spaces(value))),
            }
        }
        Some(clause)
    }

    fn precedes(&self, other: &Self) -> bool {
        self.quality > other.quality
            || self.kind != "*" && other.kind == "*"
            || self.subtype != "*" && other.subtype == "*"
    }

    /// Returns the value of a parameter of the clause (`;name=value`), the last if there are several; empty if unset.
    fn parameter(&self, name: &str) -> &'h str {
        self.parameters.iter().rev().find(|(found, _)| *found == name).map_or("", |(_, value)| value)
    }

    /// Returns the answer's encoding and form if the clause accepts this media type.
    fn accepted(&self, (media, name): (Media, &str)) -> Option<Accepted> {
        let (kind, subtype) = name.split_once('/')?;
        let is_type = match (self.kind, self.subtype) {
            ("*", "*") => true,
            (wanted, "*") => wanted == kind,
            (wanted, wanted_subtype) => wanted == kind && wanted_subtype == subtype,
        };
        let is_stream = match self.parameter("stream") {
            "" => true,
            "watch" => media != Media::Yaml,
            _ => false,
        };
        let is_version = matches!(self.parameter("sv"), "" | "v1");
        let form = self.form().filter(|_| is_type && is_stream && is_version)?;
        Some(Accepted { media, form, pretty: self.parameter("pretty") == "1" })
    }

    /// Returns the form that the clause's parameters `as`, `g` and `v` ask for. Without these parameters, it is
    /// [`Form::Object`]. `None` for an unknown form.
    fn form(&self) -> Option<Form> {
        let is_converted = self.parameters.iter().any(|(name, _)| matches!(*name, "as" | "g" | "v"));
        if !is_converted {
            return Some(Form::Object);
        }
        match (self.parameter("g"), self.parameter("v"), self.parameter("as")) {
            ("meta.k8s.io", "v1", "Table") => Some(Form::Table),
            ("meta.k8s.io", "v1", "PartialObjectMetadata") => Some(Form::Metadata),
            ("meta.k8s.io", "v1", "PartialObjectMetadataList") => Some(Form::MetadataList),
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some(Form::AggregatedDiscovery),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;

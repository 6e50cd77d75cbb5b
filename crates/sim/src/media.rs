//! Encodings of answers, and the choice of an encoding that the client accepts.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Media {
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Media {
    /// Returns the content type of a watch or, if `is_watch` is false, of any other answer.
    pub(super) fn content_type(self, is_watch: bool) -> &'static str {
        match (self, is_watch) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// Encoding and form of the objects in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    pub(super) media: Media,
    /// Whether objects are `PartialObjectMetadata`.
    pub(super) partial: bool,
}

/// Returns the supported encoding that an `Accept` header prefers; `None` if the header names no supported one.
///
/// `has_message` returns whether the objects can be encoded in protobuf. Its argument is true for
/// `PartialObjectMetadata`, false for whole objects.
pub(super) fn negotiate(accept: &str, has_message: impl Fn(bool) -> bool) -> Option<Accepted> {
    let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses.into_iter().find_map(|clause| {
        let partial = match clause.form {
            None => false,
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => true,
            Some(_) => return None,
        };
        let media = match clause.media {
            "application/json" | "application/*" | "*/*" => Media::Json,
            "application/vnd.kubernetes.protobuf" if has_message(partial) => Media::Protobuf,
            _ => return None,
        };
        Some(Accepted { media, partial })
    })
}

struct Clause<'a> {
    media: &'a str,
    form: Option<&'a str>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Self { media: parts.next().unwrap_or_default(), form: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "as" => clause.form = Some(value),
                "q" => clause.quality = value.parse().unwrap_or(0.0),
                _ => {}
            }
        }
        clause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_servable_clause_of_the_highest_quality_is_chosen() {
        const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
        const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                               application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let accepted = |accept, is_builtin: bool| {
            let chosen = negotiate(accept, |partial| partial || is_builtin)?;
            Some((chosen.media, chosen.partial))
        };
        let (json, protobuf) = (Some((Media::Json, false)), Some((Media::Protobuf, false)));
        assert_eq!((accepted(BOTH, true), accepted(BOTH, false)), (protobuf, json));
        assert_eq!(accepted(PARTIAL, false), Some((Media::Protobuf, true)));
        assert_eq!(accepted("application/vnd.kubernetes.protobuf", false), None, "a custom resource");
        assert_eq!(accepted("application/json;q=0.5, application/vnd.kubernetes.protobuf;q=0.9", true), protobuf);
        assert_eq!(accepted("application/vnd.kubernetes.protobuf;stream=watch", true), protobuf);
        assert_eq!(accepted("application/json;as=Table;g=meta.k8s.io;v=v1, */*", true), json);
        assert_eq!(accepted("application/yaml", true), None);
    }
}

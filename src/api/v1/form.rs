//! Form of an answer, from the `Accept` header.

use axum::http::header::ACCEPT;
use axum::http::request::Parts;

use super::failure::Failure;

/// Form of an answer, such as JSON or CSV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) enum Form {
    Json,
    /// A JSON object per line.
    Lines,
    Csv,
    /// A table for people.
    Text,
    /// Server-Sent Events.
    Events,
}

impl Form {
    /// Returns the value of `Content-Type`.
    pub(in crate::api) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Text => "text/plain; charset=utf-8",
            Self::Events => "text/event-stream",
        }
    }

    /// Returns the media types that select this form.
    fn media(self) -> &'static [&'static str] {
        match self {
            Self::Json => &["application/json"],
            Self::Lines => &["application/x-ndjson", "application/ndjson"],
            Self::Csv => &["text/csv"],
            Self::Text => &["text/plain"],
            Self::Events => &["text/event-stream"],
        }
    }
}

/// Returns the form of the answer: the first one in the client's `Accept` headers that is also in `offered`. Weights
/// other than 0 are ignored.
///
/// The first offered form is returned if there is no header. It is also returned for `*/*`, and for a range that covers
/// it, such as `application/*`.
///
/// # Errors
/// [`Failure`] of code 406 if the headers name no offered form.
pub(in crate::api) fn accepted(parts: &Parts, offered: &[Form]) -> Result<Form, Failure> {
    let all = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut is_free = true;
    let first = offered.first().copied().unwrap_or(Form::Json);
    let range = first.media()[0].split('/').next().unwrap_or_default();
    for clause in all.flat_map(|value| value.split(',')) {
        let mut words = clause.split(';').map(str::trim);
        let media = words.next().unwrap_or_default().to_ascii_lowercase();
        is_free &= media.is_empty();
        if words.any(|word| word.replace(' ', "") == "q=0") {
            continue;
        }
        if let Some(form) = offered.iter().find(|form| form.media().contains(&media.as_str())) {
            return Ok(*form);
        }
        if media == "*/*" || media.strip_suffix("/*") == Some(range) {
            return Ok(first);
        }
    }
    if is_free {
        return Ok(first);
    }
    let names: Vec<_> = offered.iter().map(|form| form.media()[0]).collect();
    Err(Failure::not_acceptable(&names))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn of(accept: &str, offered: &[Form]) -> Option<Form> {
        let request = Request::get("/").header(ACCEPT, accept).body(()).unwrap();
        accepted(&request.into_parts().0, offered).ok()
    }

    #[test]
    fn first_accepted_form_is_chosen() {
        let offered = [Form::Json, Form::Lines, Form::Text];
        for (accept, expected) in [
            ("application/x-ndjson, application/json", Some(Form::Lines)),
            ("APPLICATION/NDJSON;q=0.1", Some(Form::Lines)),
            ("application/x-ndjson;q=0, text/plain", Some(Form::Text)),
            ("image/png, */*;q=0.1", Some(Form::Json)),
            ("application/*", Some(Form::Json)),
            ("", Some(Form::Json)),
            ("text/event-stream", None),
            ("text/*", None),
        ] {
            assert_eq!(of(accept, &offered), expected, "{accept}");
        }
        assert_eq!(of("text/*", &[Form::Events, Form::Lines]), Some(Form::Events));
    }
}

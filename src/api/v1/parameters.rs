//! Parameters of the query in a request's URL.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;

use super::failure::Failure;
use super::route::{Parameter, Place};
use informer_hub_config::HumanDuration;
use informer_hub_types::nearest_name;

/// Maximum length of an unknown name in an error, in characters.
const MAX_SHOWN: usize = 64;

/// Names and values of a request's parameters, in the order of its URL.
#[derive(Debug)]
pub(in crate::api) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses the query of a request.
    ///
    /// # Errors
    /// [`Failure`] of code 400 for an unknown name, and for a name that is repeated but may not be.
    pub(in crate::api) fn of(uri: &Uri, known: &[&[Parameter]]) -> Result<Self, Failure> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Failure::invalid(format!("the parameters are invalid: {}", root_cause(&error))))?;
        check_names("parameter", pairs.iter().map(|(name, _)| name.as_str()), known)?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            let may_repeat = of_query(known).any(|parameter| parameter.name == name && parameter.is_repeated);
            if !may_repeat && pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Failure::invalid(format!("{name} is given more than once")));
            }
        }
        Ok(Self(pairs))
    }

    /// Returns the value of a parameter; `None` if the request lacks it.
    pub(in crate::api) fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter that may be repeated, including values separated by commas.
    pub(in crate::api) fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let values = self.0.iter().filter(move |(known, _)| known == name);
        values.flat_map(|(_, value)| value.split(',')).map(str::trim).filter(|value| !value.is_empty())
    }

    /// Returns the value of a parameter that is `true` or `false`; `None` if the request lacks it.
    ///
    /// # Errors
    /// [`Failure`] of code 400 for other words than `true` and `false`.
    pub(in crate::api) fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        self.one(name).map(|value| flag_of(name, value)).transpose()
    }

    /// Returns the value of a parameter that is a duration; `None` if the request lacks it.
    ///
    /// # Errors
    /// [`Failure`] of code 400 for other texts, and for durations that are zero or longer than `most`.
    pub(in crate::api) fn duration(&self, name: &str, most: Duration) -> Result<Option<Duration>, Failure> {
        self.one(name).map(|value| duration_of(name, value, most)).transpose()
    }
}

/// Checks the names of URL parameters or of members of a JSON body. `what` is the word for them in the error:
/// `parameter` or `member`.
///
/// # Errors
/// [`Failure`] of code 400 for a name that is not in `known`, with the nearest known name.
pub(in crate::api) fn check_names<'n>(
    what: &str,
    mut names: impl Iterator<Item = &'n str>,
    known: &[&[Parameter]],
) -> Result<(), Failure> {
    let is_known = |name: &str| of_query(known).any(|parameter| parameter.name == name);
    let Some(unknown) = names.find(|name| !is_known(name)) else { return Ok(()) };
    let all: Vec<_> = of_query(known).map(|parameter| parameter.name).collect();
    let nearest = nearest_name(unknown, all.iter().copied(), 3);
    let shown: String = unknown.chars().take(MAX_SHOWN).collect();
    let hint = match (nearest, all.is_empty()) {
        (_, true) => "there are none".to_owned(),
        (Some(nearest), _) => format!("did you mean {nearest:?}? Known: {}", all.join(", ")),
        (None, _) => format!("known: {}", all.join(", ")),
    };
    Err(Failure::invalid(format!("unknown {what} {shown:?}; {hint}")).suggesting(nearest))
}

fn of_query<'k>(known: &'k [&'k [Parameter]]) -> impl Iterator<Item = &'k Parameter> {
    known.iter().flat_map(|group| group.iter()).filter(|parameter| parameter.place == Place::Query)
}

/// Parses `true` or `false`.
pub(in crate::api) fn flag_of(name: &str, value: &str) -> Result<bool, Failure> {
    value.parse().map_err(|_| Failure::invalid(format!("{name} is {:?}, expected true or false", start(value))))
}

/// Parses a duration that is not zero and at most `most`.
pub(in crate::api) fn duration_of(name: &str, value: &str, most: Duration) -> Result<Duration, Failure> {
    let parsed: HumanDuration = value.parse().map_err(|error| Failure::invalid(format!("{name}: {error}")))?;
    if parsed.0.is_zero() || parsed.0 > most {
        return Err(Failure::invalid(format!("{name} is {:?}, expected 1ms to {most:?}", start(value))));
    }
    Ok(parsed.0)
}

fn start(value: &str) -> String {
    value.chars().take(MAX_SHOWN).collect()
}

/// Returns the text of an error's innermost cause.
fn root_cause(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::route::Kind;
    use super::*;

    const KNOWN: &[&[Parameter]] = &[&[
        Parameter::new("resource", Kind::Text, "").repeated(),
        Parameter::new("limit", Kind::Count, ""),
        Parameter::of_header("Last-Event-ID", ""),
    ]];

    fn of(query: &str) -> Result<Parameters, String> {
        Parameters::of(&format!("/v1/x?{query}").parse().unwrap(), KNOWN).map_err(|failure| failure.text().to_owned())
    }

    #[test]
    fn values_are_decoded_and_repeated_ones_split_at_commas() {
        let found = of("resource=pods,%6eodes&limit=a+b&resource=,").unwrap();
        assert_eq!(found.all("resource").collect::<Vec<_>>(), ["pods", "nodes"]);
        assert_eq!((found.one("limit"), found.one("other")), (Some("a b"), None));
    }

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        let unknown = of("limits=1").unwrap_err();
        assert_eq!(unknown, "unknown parameter \"limits\"; did you mean \"limit\"? Known: resource, limit");
        assert_eq!(of("x=1").unwrap_err(), "unknown parameter \"x\"; known: resource, limit");
        assert!(of("Last-Event-ID=1").is_err());
        assert_eq!(of("limit=1&limit=2").unwrap_err(), "limit is given more than once");
        assert!(of(&format!("{}=1", "x".repeat(15_000))).unwrap_err().len() < 200);
    }

    #[test]
    fn flags_and_durations_say_what_is_expected() {
        assert!(flag_of("changed", "true").unwrap() && !flag_of("changed", "false").unwrap());
        assert_eq!(flag_of("changed", "yes").unwrap_err().text(), "changed is \"yes\", expected true or false");
        let most = Duration::from_secs(25);
        assert_eq!(duration_of("timeout", "2s", most).unwrap(), Duration::from_secs(2));
        assert_eq!(duration_of("timeout", "1h", most).unwrap_err().text(), "timeout is \"1h\", expected 1ms to 25s");
        assert!(duration_of("timeout", "0s", most).is_err());
    }
}

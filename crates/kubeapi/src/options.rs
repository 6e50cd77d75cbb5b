//! Query parameters of `get`, `list` and `watch`.

use std::time::Duration;

use informer_hub_types::{InvalidSelector, LabelSelector, position_of};

use crate::percent::decode_query;
use crate::quote::Quoted;
use crate::{FieldError, FieldSelector, FieldTerm, ResourcePath, Status};

/// Values of the parameter `resourceVersionMatch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionMatch {
    /// `NotOlderThan`: state of the requested resourceVersion or a newer state.
    NotOlderThan,
    /// `Exact`: state of precisely the requested resourceVersion.
    Exact,
}

/// Values of `includeObject`: the part of an object that each row of a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IncludeObject {
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// No part of the object.
    None,
}

/// Validated options of a get, list or watch. The comment of each field names the query parameter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `labelSelector`: conditions on labels.
    pub labels: LabelSelector,
    /// `fieldSelector`: conditions on fields.
    pub fields: FieldSelector,
    /// `limit`: maximum number of objects on a page. Zero means no limit, as does a negative number in the request.
    pub limit: u64,
    /// `continue`: token for the next page of a list; empty if unset.
    pub continuation: String,
    /// `resourceVersion` as sent; empty if unset.
    pub resource_version: String,
    /// `resourceVersionMatch`; `None` if unset.
    pub version_match: Option<VersionMatch>,
    /// `timeoutSeconds`; `None` if unset or zero. A negative number in the request becomes a timeout of zero.
    pub timeout: Option<Duration>,
    /// Whether the request is a watch, by the parameter `watch` or a `watch/` path.
    pub watch: bool,
    /// `allowWatchBookmarks`: whether a watch may send bookmarks.
    pub bookmarks: bool,
    /// `sendInitialEvents`: whether a watch starts with the present objects; `None` if unset.
    ///
    /// If the parameter is unset, it becomes `true` for a watch whose `resourceVersion` is unset or `0` and whose
    /// `resourceVersionMatch` is unset. As in kube-apiserver, this requires the parameter `watch`; a `watch/` path does
    /// not suffice.
    pub initial_events: Option<bool>,
    /// `pretty`: whether JSON is indented; `None` if unset.
    pub pretty: Option<bool>,
    /// `includeObject` of a table, as sent; [`Options::table_objects`] parses it.
    pub include_object: Option<String>,
}

impl Options {
    /// Parses the query of a request for a resource or one of its objects.
    ///
    /// - Without an object's name in the path, the query is parsed by [`Options::parse`].
    /// - A get of one object reads only `resourceVersion`, `pretty` and `includeObject`.
    /// - A watch of one object (`/api/v1/watch/...`) gets the condition that `metadata.name` is the name in the path.
    /// - A `watch/` path is always a watch, whatever the query says.
    ///
    /// # Errors
    /// As [`Options::parse`]. Also code 400 for a watch of one object whose field selector does not require the
    /// object's name.
    pub fn of(path: &ResourcePath, query: &str) -> Result<Self, Status> {
        let parameters = Parameters::parse(query);
        if path.name.is_some() && !path.is_watch {
            return Self::get(&parameters);
        }
        let mut options = Self::list(&parameters)?;
        options.watch |= path.is_watch;
        if let Some(name) = &path.name {
            options.select_name(name)?;
        }
        Ok(options)
    }

    /// Parses the query of a list or watch, still percent-encoded. Unknown parameters are ignored, as kube-apiserver
    /// does.
    ///
    /// # Errors
    /// [`Status`] of code 400 or 422 for a value that cannot be parsed or is not allowed together with another.
    pub fn parse(query: &str) -> Result<Self, Status> {
        Self::list(&Parameters::parse(query))
    }

    /// Returns the parameter `pretty` even if other parameters are invalid.
    #[must_use]
    pub fn pretty_of(query: &str) -> Option<bool> {
        Parameters::parse(query).pretty()
    }

    /// Returns the part of an object that each row of a table holds; the metadata by default. Call this method only if
    /// the answer is a table: for other answers, kube-apiserver ignores `includeObject`.
    ///
    /// # Errors
    /// [`Status`] of code 400 for an unknown value of `includeObject`.
    pub fn table_objects(&self) -> Result<IncludeObject, Status> {
        match self.include_object.as_deref().unwrap_or_default() {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "Object" => Ok(IncludeObject::Object),
            "None" => Ok(IncludeObject::None),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                Quoted(other)
            ))),
        }
    }

    fn get(parameters: &Parameters) -> Result<Self, Status> {
        Ok(Self {
            resource_version: parameters.text("resourceVersion")?,
            pretty: parameters.pretty(),
            include_object: parameters.include_object()?,
            ..Self::default()
        })
    }

    /// Parses the options of a list or watch in kube-apiserver's order, which decides which error is returned if
    /// several options are invalid.
    fn list(parameters: &Parameters) -> Result<Self, Status> {
        let timeout = parameters.integer("timeoutSeconds")?.filter(|seconds| *seconds != 0).map(seconds);
        let limit = parameters.integer("limit")?.and_then(|limit| u64::try_from(limit).ok()).unwrap_or_default();
        let labels = parameters.text("labelSelector")?;
        let fields = parameters.text("fieldSelector")?;
        let mut version_match = parameters.text("resourceVersionMatch")?;
        let mut options = Self {
            labels: labels.parse().map_err(|error: InvalidSelector| {
                let InvalidSelector { problem, at, .. } = error;
                Status::bad_request(format!(
                    "unable to parse requirement: {problem} at position {}",
                    position_of(&labels, at)
                ))
            })?,
            fields: FieldSelector::parse(&fields).map_err(Status::bad_request)?,
            watch: parameters.flag("watch").unwrap_or_default(),
            bookmarks: parameters.flag("allowWatchBookmarks").unwrap_or_default(),
            resource_version: parameters.text("resourceVersion")?,
            version_match: None,
            timeout,
            limit,
            continuation: parameters.text("continue")?,
            initial_events: parameters.flag("sendInitialEvents"),
            pretty: parameters.pretty(),
            include_object: parameters.include_object()?,
        };
        let is_any = matches!(options.resource_version.as_str(), "" | "0");
        if options.watch && is_any && options.initial_events.is_none() && version_match.is_empty() {
            options.initial_events = Some(true);
            version_match = String::from("NotOlderThan");
        }
        let errors =
            if options.watch { options.watch_errors(&version_match) } else { options.list_errors(&version_match) };
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        options.version_match = VersionMatch::parse(&version_match);
        Ok(options)
    }

    fn list_errors(&self, version_match: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !version_match.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.continuation.is_empty() {
                errors.push(forbidden_match("resourceVersionMatch is forbidden when continue is provided"));
            }
            if VersionMatch::parse(version_match).is_none() {
                errors.push(unknown_match(version_match, &["Exact", "NotOlderThan", ""]));
            }
            if version_match == "Exact" && self.resource_version == "0" {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(forbidden_match(detail));
            }
        }
        if self.initial_events.is_some() {
            let (field, detail) = ("sendInitialEvents", "sendInitialEvents is forbidden for list");
            errors.push(FieldError::Forbidden { field, detail });
        }
        errors
    }

    fn watch_errors(&self, version_match: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let is_not_older_than = version_match == "NotOlderThan";
        if self.initial_events.is_some() && !is_not_older_than {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(forbidden_match(detail));
        }
        if !version_match.is_empty() {
            if self.initial_events.is_none() {
                let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(forbidden_match(detail));
            }
            if !is_not_older_than {
                errors.push(unknown_match(version_match, &["NotOlderThan"]));
            }
            if !self.continuation.is_empty() {
                errors.push(forbidden_match("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        errors
    }

    /// Restricts a watch to the object that its path names.
    fn select_name(&mut self, name: &str) -> Result<(), Status> {
        const FIELD: &str = "metadata.name";
        if self.fields.is_empty() {
            self.fields.terms.push(FieldTerm { field: FIELD.into(), value: name.into(), is_equal: true });
            return Ok(());
        }
        if self.fields.required(FIELD) == Some(name) {
            return Ok(());
        }
        Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"))
    }
}

impl VersionMatch {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "NotOlderThan" => Some(Self::NotOlderThan),
            "Exact" => Some(Self::Exact),
            _ => None,
        }
    }
}

fn forbidden_match(detail: &'static str) -> FieldError {
    FieldError::Forbidden { field: "resourceVersionMatch", detail }
}

fn unknown_match(value: &str, supported: &'static [&'static str]) -> FieldError {
    FieldError::NotSupported { field: "resourceVersionMatch", value: value.to_owned(), supported }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// The decoded parameters of a query. Pairs with a semicolon or an invalid escape are dropped, as by Go's `net/url`.
struct Parameters(Vec<(Vec<u8>, Vec<u8>)>);

impl Parameters {
    fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode_query(name)?, decode_query(value)?))
                .filter(|(name, value)| !(name.is_empty() && value.is_empty()))
        });
        Self(decoded.collect())
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(found, _)| found == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// Returns the first value of a parameter; empty if unset.
    fn text(&self, name: &str) -> Result<String, Status> {
        let value = self.first(name).unwrap_or_default();
        String::from_utf8(value.to_vec())
            .map_err(|_| Status::bad_request(format!("the value of parameter {name} is not UTF-8")))
    }

    /// Returns a boolean by apimachinery's rule: all values but `0` and `false` are true, even the empty text. `None`
    /// if unset.
    fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| !(value == b"0" || value.eq_ignore_ascii_case(b"false")))
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        if self.first(name).is_none() {
            return Ok(None);
        }
        let text = self.text(name)?;
        parse_integer(&text)
            .map(Some)
            .map_err(|problem| Status::bad_request(format!("strconv.ParseInt: parsing {}: {problem}", Quoted(&text))))
    }

    /// Returns `pretty` by the rule of Go's `strconv.ParseBool`; any other text is false. `None` if unset or empty.
    fn pretty(&self) -> Option<bool> {
        let value = self.first("pretty").filter(|value| !value.is_empty())?;
        Some(matches!(value, b"1" | b"t" | b"T" | b"true" | b"TRUE" | b"True"))
    }

    fn include_object(&self) -> Result<Option<String>, Status> {
        let value = self.text("includeObject")?;
        Ok(Some(value).filter(|value| !value.is_empty()))
    }
}

/// Parses a decimal integer. The error is the message of Go's parser.
fn parse_integer(text: &str) -> Result<i64, &'static str> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("invalid syntax");
    }
    text.parse().map_err(|_| "value out of range")
}

#[cfg(test)]
mod tests;

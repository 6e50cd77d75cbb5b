//! Object selection of a request: namespace, label selector, field selector.
//!
//! Does not use the selectors of the crate `types`, so that a bug in either implementation shows as a difference in
//! tests.

use super::object::SimObject;

/// Selection of the objects that a list or watch covers.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

/// Error for a selector that an apiserver rejects with 400. The client must fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse requirement: {0:?}")]
pub struct InvalidFilter(
    /// The invalid part of the selector.
    pub String,
);

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    field: String,
    value: String,
    equal: bool,
}

impl Filter {
    /// Creates a filter that selects every object of the resource.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Parses the selectors of a request. An empty selector selects everything.
    ///
    /// # Errors
    /// [`InvalidFilter`] for a selector that an apiserver rejects.
    pub fn parse(namespace: Option<&str>, labels: &str, fields: &str) -> Result<Self, InvalidFilter> {
        let labels = split_requirements(labels).map(parse_requirement).collect::<Result<_, _>>()?;
        let fields = fields.split(',').filter(|part| !part.is_empty()).map(parse_field).collect::<Result<_, _>>()?;
        Ok(Self { namespace: namespace.map(str::to_owned), labels, fields })
    }

    /// Returns whether `object` is selected.
    #[must_use]
    pub fn matches(&self, object: &SimObject) -> bool {
        let key = object.key();
        self.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
            && self.labels.iter().all(|requirement| requirement.matches(object))
            && self.fields.iter().all(|requirement| requirement.matches(object))
    }

    /// Returns whether an update can move an object into or out of the selection.
    #[must_use]
    pub fn can_change(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

impl Requirement {
    fn matches(&self, object: &SimObject) -> bool {
        let value = object.label(&self.key);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|allowed| allowed == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|excluded| excluded != value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &SimObject) -> bool {
        let actual = match self.field.as_str() {
            "metadata.name" => object.key().name(),
            "metadata.namespace" => object.key().namespace().unwrap_or_default(),
            "spec.nodeName" => object.node(),
            _ => object.phase(),
        };
        (actual == self.value) == self.equal
    }
}

/// Splits at commas that are not inside parentheses.
fn split_requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn parse_requirement(text: &str) -> Result<Requirement, InvalidFilter> {
    let invalid = || InvalidFilter(text.to_owned());
    let requirement = |key: &str, test| {
        let key = key.trim();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        let good = !key.is_empty() && key.chars().all(legal);
        if good { Ok(Requirement { key: key.to_owned(), test }) } else { Err(invalid()) }
    };
    if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(invalid)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let head = head.trim();
        if let Some(key) = head.strip_suffix(" notin") {
            return requirement(key, Test::NotIn(values));
        }
        let key = head.strip_suffix(" in").ok_or_else(invalid)?;
        return requirement(key, Test::In(values));
    }
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, value)) = text.split_once("!=") {
        return requirement(key, Test::NotIn(one(value)));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return requirement(key, Test::In(one(value)));
    }
    match text.strip_prefix('!') {
        Some(key) => requirement(key, Test::Absent),
        None => requirement(text, Test::Exists),
    }
}

fn parse_field(text: &str) -> Result<FieldRequirement, InvalidFilter> {
    let invalid = || InvalidFilter(text.to_owned());
    let (field, value, equal) = if let Some((field, value)) = text.split_once("!=") {
        (field, value, false)
    } else {
        let (field, value) = text.split_once("==").or_else(|| text.split_once('=')).ok_or_else(invalid)?;
        (field, value, true)
    };
    let field = field.trim();
    if !matches!(field, "metadata.name" | "metadata.namespace" | "spec.nodeName" | "status.phase") {
        return Err(invalid());
    }
    Ok(FieldRequirement { field: field.to_owned(), value: value.trim().to_owned(), equal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::Gvr;
    use serde_json::json;

    fn pod() -> SimObject {
        let body = json!({
            "metadata": { "name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": "5",
                          "labels": { "app": "web", "tier": "front" } },
            "spec": { "nodeName": "n1" }, "status": { "phase": "Running" },
        });
        SimObject::encode(&Gvr::new("", "v1", "pods"), "Pod", 5, body)
    }

    #[test]
    fn filter_selects_like_an_apiserver() {
        let pod = pod();
        let matches = |labels: &str, fields: &str| Filter::parse(None, labels, fields).unwrap().matches(&pod);
        for yes in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "!canary",
            "app in (db, web)",
            "app notin (db),tier=front",
            "x notin (y)",
        ] {
            assert!(matches(yes, ""), "{yes}");
        }
        for no in ["canary", "app=db", "!app", "app in (db)", "app notin (web)", "app=web,tier!=front"] {
            assert!(!matches(no, ""), "{no}");
        }
        assert!(matches("", "spec.nodeName=n1,status.phase!=Failed,metadata.name=web-0,metadata.namespace=shop"));
        assert!(!matches("", "spec.nodeName=n2"));
        assert!(Filter::parse(Some("shop"), "", "").unwrap().matches(&pod));
        assert!(!Filter::parse(Some("pay"), "", "").unwrap().matches(&pod));
    }

    #[test]
    fn filter_rejects_invalid_selectors() {
        for bad in ["a b", "app in (x", "app within (x)", "=x"] {
            assert!(Filter::parse(None, bad, "").is_err(), "{bad}");
        }
        assert!(Filter::parse(None, "", "spec.unknown=x").is_err());
        assert!(Filter::parse(None, "", "metadata.name").is_err());
    }
}

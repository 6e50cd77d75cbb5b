//! Types of fields that several kinds share. `null` and a missing field give the type's default, as in Go.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::age::Time;

/// A string, borrowed unless it has escapes. Empty by default.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Text<'j>(Cow<'j, str>);

impl Text<'_> {
    /// Returns the text; `other` if the text is empty.
    pub(super) fn or<'a>(&'a self, other: &'a str) -> &'a str {
        if self.is_empty() { other } else { self }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl From<&Text<'_>> for Value {
    fn from(text: &Text<'_>) -> Self {
        text.0.as_ref().into()
    }
}

impl<'de: 'j, 'j> Deserialize<'de> for Text<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Str;

        impl<'de> Visitor<'de> for Str {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(text.into()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(text.to_owned().into()))
            }

            fn visit_unit<E: Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }

        deserializer.deserialize_any(Str)
    }
}

/// A number or a string as text: a quantity, or a port by number or name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Scalar(String);

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// A JSON array; `null` counts as an empty array.
#[derive(Clone, Debug)]
pub(super) struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|list| Self(list.unwrap_or_default()))
    }
}

pub(super) fn join<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut joined = String::new();
    for (index, text) in texts.into_iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text.as_ref());
    }
    joined
}

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        self
    }
}

/// The members of a JSON object, in their written order.
#[derive(Clone, Debug)]
pub(super) struct Members<'j, T>(Vec<(Text<'j>, T)>);

/// Labels, annotations, and other maps of strings.
pub(super) type Labels<'j> = Members<'j, Text<'j>>;

impl<T> Default for Members<'_, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'j, T> Deref for Members<'j, T> {
    type Target = [(Text<'j>, T)];

    fn deref(&self) -> &[(Text<'j>, T)] {
        &self.0
    }
}

impl<T> Members<'_, T> {
    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.iter().find(|(found, _)| **found == *key).map(|(_, value)| value)
    }
}

impl Labels<'_> {
    /// Returns all pairs as `key=value`, sorted and separated by commas; `<none>` if there are none.
    pub(super) fn format(&self) -> String {
        let mut pairs: Vec<_> = self.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.sort_unstable();
        if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
    }
}

impl<'de: 'j, 'j, T: Deserialize<'de>> Deserialize<'de> for Members<'j, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = Members<'de, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or null")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de, T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }

            fn visit_unit<E: Error>(self) -> Result<Members<'de, T>, E> {
                Ok(Members::default())
            }
        }

        deserializer.deserialize_any(Map(PhantomData))
    }
}

/// Number of members of an object or elements of an array, which are not decoded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Count(pub(super) usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counted;

        impl<'de> Visitor<'de> for Counted {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, an array or null")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while elements.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }

            fn visit_unit<E: Error>(self) -> Result<Count, E> {
                Ok(Count(0))
            }
        }

        deserializer.deserialize_any(Counted)
    }
}

#[derive(Deserialize, Default, Debug)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta<'j> {
    #[serde(borrow)]
    pub(super) name: Text<'j>,
    pub(super) creation_timestamp: Time,
    pub(super) deletion_timestamp: Option<Time>,
}

/// Any object, of which only the metadata is decoded.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(super) struct Object<'j> {
    #[serde(borrow)]
    pub(super) metadata: Meta<'j>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition<'j> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'j>,
    #[serde(borrow)]
    pub(super) status: Text<'j>,
    #[serde(borrow)]
    pub(super) reason: Text<'j>,
}

impl Condition<'_> {
    pub(super) fn is_true(&self) -> bool {
        *self.status == *"True"
    }
}

/// Returns whether the first condition of this type is true; `false` if it is missing.
pub(super) fn is_true(conditions: &[Condition<'_>], kind: &str) -> bool {
    conditions.iter().find(|condition| *condition.kind == *kind).is_some_and(Condition::is_true)
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(super) struct Container<'j> {
    #[serde(borrow)]
    pub(super) name: Text<'j>,
    #[serde(borrow)]
    pub(super) image: Text<'j>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(super) struct Template<'j> {
    #[serde(borrow)]
    pub(super) metadata: TemplateMeta<'j>,
    #[serde(borrow)]
    pub(super) spec: TemplateSpec<'j>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(super) struct TemplateMeta<'j> {
    #[serde(borrow)]
    pub(super) labels: Labels<'j>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TemplateSpec<'j> {
    #[serde(borrow)]
    pub(super) containers: List<Container<'j>>,
    #[serde(borrow)]
    pub(super) node_selector: Labels<'j>,
}

impl Template<'_> {
    pub(super) fn names(&self) -> String {
        join(self.spec.containers.iter().map(|container| &container.name), ",")
    }

    pub(super) fn images(&self) -> String {
        join(self.spec.containers.iter().map(|container| &container.image), ",")
    }
}

/// Label selector of an object: `matchLabels` and `matchExpressions`.
#[derive(Deserialize, Default, Debug)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Selector<'j> {
    #[serde(borrow)]
    match_labels: Labels<'j>,
    #[serde(borrow)]
    match_expressions: List<Expression<'j>>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct Expression<'j> {
    #[serde(borrow)]
    key: Text<'j>,
    #[serde(borrow)]
    operator: Text<'j>,
    #[serde(borrow)]
    values: List<Text<'j>>,
}

impl Selector<'_> {
    /// Returns the selector in kubectl's syntax, sorted by key. `None` if an expression is not valid.
    pub(super) fn text(&self) -> Option<String> {
        let mut terms: Vec<(&str, String)> =
            self.match_labels.iter().map(|(key, value)| (&**key, format!("{key}={value}"))).collect();
        for expression in self.match_expressions.iter() {
            terms.push((&expression.key, expression.text()?));
        }
        // The sort is stable: terms with the same key keep their order.
        terms.sort_by_key(|&(key, _)| key);
        Some(join(terms.into_iter().map(|(_, term)| term), ","))
    }

    /// Returns the selector, `<none>` if it is empty or missing, or `<error>` if it is not valid.
    pub(super) fn format(selector: Option<&Self>) -> String {
        match selector.map_or_else(|| Some(String::new()), Self::text) {
            None => "<error>".to_owned(),
            Some(text) if text.is_empty() => "<none>".to_owned(),
            Some(text) => text,
        }
    }

    /// Returns the selector in the debug format of Go's protobuf types, in which kube-apiserver prints policy bindings.
    pub(super) fn debug(&self) -> String {
        let mut labels: Vec<_> = self.match_labels.iter().collect();
        labels.sort_unstable();
        let labels = join(labels.iter().map(|(key, value)| format!("{key}: {value},")), "");
        let expressions = self.match_expressions.iter().map(|expression| {
            let Expression { key, operator, values } = expression;
            let values = join(values.iter(), " ");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        });
        let expressions = join(expressions, "");
        format!(
            "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
             MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
        )
    }
}

impl Expression<'_> {
    fn text(&self) -> Option<String> {
        let key = &self.key;
        let mut values: Vec<_> = self.values.iter().collect();
        values.sort_unstable();
        match (&*self.operator, values.is_empty()) {
            ("In", false) => Some(format!("{key} in ({})", join(values, ","))),
            ("NotIn", false) => Some(format!("{key} notin ({})", join(values, ","))),
            ("Exists", true) => Some(key.to_string()),
            ("DoesNotExist", true) => Some(format!("!{key}")),
            _ => None,
        }
    }
}

/// Joins the texts in `shown` with commas. If `count`, the number of all texts, is greater, appends ` + <n> more...`
/// for the others. Returns `<unset>` if there are no texts at all.
pub(super) fn first_of(shown: &[String], count: usize) -> String {
    let joined = shown.join(",");
    if count > shown.len() {
        format!("{joined} + {} more...", count - shown.len())
    } else if joined.is_empty() {
        "<unset>".to_owned()
    } else {
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &str) -> Selector<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn null_is_the_default() {
        let meta: Meta<'_> =
            serde_json::from_str(r#"{"name":null,"creationTimestamp":null,"deletionTimestamp":null}"#).unwrap();
        assert!(meta.name.is_empty() && meta.deletion_timestamp.is_none());
        let template: TemplateSpec<'_> = serde_json::from_str(r#"{"containers":null,"nodeSelector":null}"#).unwrap();
        assert!(template.containers.is_empty() && template.node_selector.is_empty());
        assert_eq!(serde_json::from_str::<Count>("null").unwrap(), Count(0));
    }

    #[test]
    fn texts_without_escapes_are_borrowed() {
        let texts: List<Text<'_>> = serde_json::from_str(r#"["a","\u0062"]"#).unwrap();
        assert!(matches!(texts[0].0, Cow::Borrowed("a")));
        assert!(matches!(&texts[1].0, Cow::Owned(text) if text == "b"));
    }

    #[test]
    fn members_and_elements_are_counted() {
        assert_eq!(serde_json::from_str::<Count>(r#"{"a":[1,2],"b":{}}"#).unwrap(), Count(2));
        assert_eq!(serde_json::from_str::<Count>("[[],null,1]").unwrap(), Count(3));
    }

    #[test]
    fn selector_is_sorted_by_key() {
        let json = r#"{"matchLabels":{"c":"1","a":""},"matchExpressions":[{"key":"b","operator":"In","values":["y","x"]},
            {"key":"b","operator":"Exists"},{"key":"0","operator":"DoesNotExist"},{"key":"d","operator":"NotIn","values":["z"]}]}"#;
        assert_eq!(selector(json).text().unwrap(), "!0,a=,b in (x,y),b,c=1,d notin (z)");
        assert_eq!(Selector::format(Some(&selector("{}"))), "<none>");
        assert_eq!(Selector::format(None), "<none>");
    }

    #[test]
    fn invalid_selector_is_an_error() {
        for expression in [
            r#"{"key":"a","operator":"Is","values":["b"]}"#,
            r#"{"key":"a","operator":"In"}"#,
            r#"{"key":"a","operator":"Exists","values":["b"]}"#,
        ] {
            let json = format!("{{\"matchExpressions\":[{expression}]}}");
            assert_eq!(Selector::format(Some(&selector(&json))), "<error>", "{expression}");
        }
    }

    #[test]
    fn selector_prints_as_a_protobuf_type() {
        let json =
            r#"{"matchLabels":{"b":"2","a":"1"},"matchExpressions":[{"key":"c","operator":"In","values":["y","x"]}]}"#;
        let expected = "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},\
            MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[y x],},},}";
        assert_eq!(selector(json).debug(), expected);
    }
}

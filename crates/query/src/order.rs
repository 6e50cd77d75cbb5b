//! Total order of JSON values, for sorting query answers.

use std::cmp::Ordering;

use serde_json::Value;
use smol_str::SmolStr;

use super::Direction;
use super::decimal::{Decimal, Num};

/// Sort key of an object in one column, made from the column's first value.
///
/// Missing values and `null` come first, then `false`, `true`, numbers by value, texts byte by byte, and arrays and
/// objects by their JSON text. A text that is a Kubernetes quantity (`500m`, `2Gi`, `7`) sorts as a number, so CPU and
/// memory requests sort by size.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SortKey(Rank);

/// Kind and value of a sort key. The order of the variants is the sort order of the kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Rank {
    Missing,
    Bool(bool),
    Number(Decimal),
    Text(SmolStr),
    Compound(Box<str>),
}

impl SortKey {
    /// Returns the sort key of a column's values.
    #[must_use]
    pub fn new(values: &[Value]) -> Self {
        Self(match values.first() {
            None | Some(Value::Null) => Rank::Missing,
            Some(Value::Bool(value)) => Rank::Bool(*value),
            Some(Value::Number(value)) => Rank::Number(Decimal::number(Num::of(value))),
            Some(Value::String(text)) => Decimal::quantity(text).map_or_else(|| Rank::Text(text.into()), Rank::Number),
            Some(compound) => Rank::Compound(compound.to_string().into()),
        })
    }

    /// Returns the approximate size of the key in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let text = match &self.0 {
            Rank::Missing | Rank::Bool(_) | Rank::Number(_) => 0,
            Rank::Text(text) => text.len(),
            Rank::Compound(text) => text.len(),
        };
        size_of::<Self>() + text
    }
}

impl Direction {
    /// Returns `order`, reversed if the direction is descending.
    #[must_use]
    pub fn apply(self, order: Ordering) -> Ordering {
        match self {
            Self::Ascending => order,
            Self::Descending => order.reverse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_all_kinds_are_totally_ordered() {
        let rising = [
            json!(null),
            json!(false),
            json!(true),
            json!("-5"),
            json!(-1.5),
            json!("500m"),
            json!(1),
            json!("1001m"),
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
            json!(u64::MAX),
            json!("1Zi"),
            json!("2024-01-01T00:00:00Z"),
            json!("a"),
            json!("a1"),
            json!("é"),
            json!([1]),
            json!([2]),
            json!({"a": 1}),
            json!({"a": 2}),
        ];
        let keys: Vec<_> = rising.iter().map(|value| SortKey::new(std::slice::from_ref(value))).collect();
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{} {}", rising[i], rising[j]);
                assert_eq!(Direction::Descending.apply(a.cmp(b)), j.cmp(&i));
            }
        }
    }

    #[test]
    fn first_value_is_the_key_and_missing_equals_null() {
        assert_eq!(SortKey::new(&[]), SortKey::new(&[json!(null)]));
        assert_eq!(SortKey::new(&[json!("b"), json!("a")]), SortKey::new(&[json!("b")]));
        assert_eq!(SortKey::new(&[json!("1")]), SortKey::new(&[json!(1.0)]));
    }
}

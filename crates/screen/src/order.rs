//! Order of cells and values, as people sort them.
//!
//! Numbers, durations (`5d3h`) and quantities (`10Gi`) are ordered by size. In texts, digits are compared as numbers
//! (`web-9` before `web-10`). Numbers come before texts, and missing values last.

use std::cmp::Ordering;

use serde_json::Value;

/// Sort key of a cell or a value.
#[derive(Clone, PartialEq, Debug)]
pub enum CellKey {
    /// A number, quantity or duration (in seconds), and the whole text. The text of a cell may continue after a blank
    /// or slash: `5 (3h ago)`, `2/3`. Equal numbers are ordered by their texts.
    Number(f64, String),
    /// Any other text.
    Text(String),
    /// A missing value or an empty cell; sorted last.
    Missing,
}

/// Binary and decimal suffixes of quantities. Milli (`m`) is left out: a cell `5m` is five minutes.
const SUFFIXES: [(&str, f64); 12] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("%", 1.0),
    ("", 1.0),
];

const UNITS: [(char, f64); 5] = [('y', 31_536_000.0), ('d', 86_400.0), ('h', 3_600.0), ('m', 60.0), ('s', 1.0)];

impl CellKey {
    /// Returns the sort key of a table's cell.
    #[must_use]
    pub fn of_cell(cell: &str) -> Self {
        let text = cell.trim();
        if text.is_empty() || matches!(text, "<none>" | "<unset>" | "<unknown>" | "<invalid>") {
            return Self::Missing;
        }
        // Cells such as `5 (3h ago)`, `2/3` and `40%/80%` are ordered by their first number.
        let first = text.split([' ', '/']).next().unwrap_or(text);
        match duration(first).or_else(|| quantity(first)) {
            Some(number) => Self::Number(number, text.to_owned()),
            None => Self::Text(text.to_owned()),
        }
    }

    /// Returns the sort key of a JSON value.
    #[must_use]
    pub fn of_value(value: Option<&Value>) -> Self {
        match value {
            None | Some(Value::Null) => Self::Missing,
            Some(Value::String(text)) => match quantity(text) {
                Some(number) => Self::Number(number, text.clone()),
                None => Self::Text(text.clone()),
            },
            Some(Value::Number(number)) => Self::Number(number.as_f64().unwrap_or_default(), String::new()),
            Some(other) => Self::Text(other.to_string()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Number(..) => 0,
            Self::Text(_) => 1,
            Self::Missing => 2,
        }
    }
}

impl Eq for CellKey {}

impl Ord for CellKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a, first), Self::Number(b, second)) => a.total_cmp(b).then_with(|| natural(first, second)),
            (Self::Text(a), Self::Text(b)) => natural(a, b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for CellKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Parses a duration such as `5d3h`, `12s` or `2y10d` to seconds.
fn duration(text: &str) -> Option<f64> {
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        let unit = rest[digits..].chars().next()?;
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total += rest[..digits].parse::<f64>().ok()? * seconds;
        rest = &rest[digits + unit.len_utf8()..];
    }
    (!text.is_empty()).then_some(total)
}

/// Parses a number or quantity such as `12`, `1.5`, `10Gi` or `80%`.
fn quantity(text: &str) -> Option<f64> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let end = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
    let (_, factor) = SUFFIXES.iter().find(|(suffix, _)| *suffix == &text[end..])?;
    text[..end].parse::<f64>().ok().map(|number| number * factor)
}

/// Compares texts, with each run of digits as a number. Different texts are never equal.
fn natural(first: &str, second: &str) -> Ordering {
    let (mut a, mut b) = (first, second);
    while let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let run = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let (left, right) = (&a[..run(a)], &b[..run(b)]);
            (a, b) = (&a[left.len()..], &b[right.len()..]);
            let (left, right) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
            left.len().cmp(&right.len()).then_with(|| left.cmp(right))
        } else {
            (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
            x.cmp(&y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len()).then_with(|| first.cmp(second))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_sorted_by_size_then_text_with_missing_ones_last() {
        let mut cells =
            vec!["<none>", "web-10", "5d3h", "web-9", "90m", "12", "3 (2d ago)", "12s", "1/2", "10Gi", "10Mi"];
        cells.sort_by_key(|cell| CellKey::of_cell(cell));
        let sorted = ["1/2", "3 (2d ago)", "12", "12s", "90m", "5d3h", "10Mi", "10Gi", "web-9", "web-10", "<none>"];
        assert_eq!(cells, sorted);
    }

    #[test]
    fn values_are_sorted_by_type_and_size() {
        let mut values =
            [None, Some(json!("b")), Some(json!(10)), Some(json!(9)), Some(json!("10Gi")), Some(json!("a"))];
        values.sort_by_key(|value| CellKey::of_value(value.as_ref()));
        assert_eq!(
            values[..5],
            [9, 10]
                .map(|n| Some(json!(n)))
                .into_iter()
                .chain(["10Gi", "a", "b"].map(|t| Some(json!(t))))
                .collect::<Vec<_>>()
        );
        assert!(values[5].is_none());
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]
        #[test]
        fn natural_order_is_total(a in "[a0-9-]{0,6}", b in "[a0-9-]{0,6}", c in "[a0-9-]{0,6}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b) == Ordering::Equal, a == b);
            if natural(&a, &b) != Ordering::Greater && natural(&b, &c) != Ordering::Greater {
                prop_assert!(natural(&a, &c) != Ordering::Greater, "{a} {b} {c}");
            }
        }
    }
}

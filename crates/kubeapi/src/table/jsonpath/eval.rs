//! Evaluation of JSONPath expressions on the bytes of a JSON value.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Comparison, Constant, Filter, Operator, Path, Slice, Step};
use crate::object::scan::{Members, skip_space};

/// Nesting depth beyond which `..` finds no values. It bounds the recursion.
const DEEPEST: usize = 200;

/// A value that the evaluation of a path yields.
#[derive(Clone, Debug)]
pub(in crate::table) enum PathValue<'a> {
    /// A value of the object, as JSON.
    Json(&'a [u8]),
    /// A string constant of the path.
    Text(&'a str),
    /// An integer constant of the path.
    Integer(i64),
    /// A float constant of the path.
    Float(f64),
    /// A boolean constant of the path.
    Bool(bool),
}

/// A path that does not fit the object, such as an index beyond the end of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::table) struct Mismatch;

impl Path {
    /// Returns the first value that the path finds in an object. `None` if there is none or the path does not fit.
    pub(in crate::table) fn first<'a>(&'a self, json: &'a [u8]) -> Option<PathValue<'a>> {
        let found = walk(&self.steps, vec![PathValue::Json(json)]).ok()?;
        found.into_iter().next()
    }
}

type Values<'a> = Result<Vec<PathValue<'a>>, Mismatch>;

fn walk<'a>(steps: &'a [Step], start: Vec<PathValue<'a>>) -> Values<'a> {
    steps.iter().try_fold(start, |values, step| step.apply(values))
}

/// Returns the first byte of a JSON value that is not white space. It shows the value's type, such as `[` for an array.
fn container(json: &[u8]) -> Option<u8> {
    json.get(skip_space(json, 0)).copied()
}

fn member<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut members = Members::of_object(json)?;
    let mut found = None;
    while let Ok(Some(member)) = members.member() {
        if member.is(name) {
            found = Some(member.value);
            break;
        }
    }
    found
}

/// Returns the elements of an array, or the values of an object.
fn children(json: &[u8]) -> Vec<&[u8]> {
    let mut children = Vec::new();
    if let Some(mut members) = Members::of_object(json) {
        while let Ok(Some(member)) = members.member() {
            children.push(member.value);
        }
    } else if let Some(mut elements) = Members::of_array(json) {
        while let Ok(Some(element)) = elements.element() {
            children.push(element);
        }
    }
    children
}

fn descendants<'a>(json: &'a [u8], depth: usize, found: &mut Vec<PathValue<'a>>) {
    let children = children(json);
    if !children.is_empty() && depth < DEEPEST {
        found.push(PathValue::Json(json));
        for child in children {
            descendants(child, depth + 1, found);
        }
    }
}

impl Step {
    fn apply<'a>(&'a self, values: Vec<PathValue<'a>>) -> Values<'a> {
        let json = values.iter().filter_map(|value| if let PathValue::Json(json) = value { Some(*json) } else { None });
        Ok(match self {
            Self::Field(name) => json.filter_map(|json| member(json, name)).map(PathValue::Json).collect(),
            Self::Wildcard => json.flat_map(children).map(PathValue::Json).collect(),
            Self::Descendants => {
                let mut found = Vec::new();
                json.for_each(|json| descendants(json, 0, &mut found));
                found
            }
            Self::Slice(slice) => return slice.apply(values),
            Self::Filter(filter) => return filter.apply(values),
            Self::Union(paths) => {
                let mut found = Vec::new();
                for path in paths {
                    found.extend(walk(path, values.clone())?);
                }
                found
            }
            Self::Constant(Constant::Text(text)) => vec![PathValue::Text(text)],
            Self::Constant(constant) => values.iter().map(|_| constant.found()).collect(),
            Self::Identifier => return Err(Mismatch),
        })
    }
}

impl Constant {
    fn found(&self) -> PathValue<'_> {
        match self {
            Self::Text(text) => PathValue::Text(text),
            Self::Integer(number) => PathValue::Integer(*number),
            Self::Float(number) => PathValue::Float(*number),
            Self::Bool(value) => PathValue::Bool(*value),
        }
    }
}

/// Returns the elements of an array; `None` for null. Any other value is a mismatch.
fn elements<'a>(value: &PathValue<'a>) -> Result<Option<Vec<&'a [u8]>>, Mismatch> {
    let PathValue::Json(json) = value else { return Err(Mismatch) };
    match container(json) {
        Some(b'[') => Ok(Some(children(json))),
        Some(b'n') => Ok(None),
        _ => Err(Mismatch),
    }
}

impl Slice {
    fn apply(self, values: Vec<PathValue<'_>>) -> Values<'_> {
        let mut found = Vec::new();
        for value in values {
            let Some(elements) = elements(&value)? else { continue };
            let Some((start, end)) = self.bounds(elements.len())? else { return Ok(found) };
            let step = match self.step {
                None => 1,
                Some(step) => usize::try_from(step).ok().filter(|&step| step > 0).ok_or(Mismatch)?,
            };
            found.extend(elements[start..end].iter().step_by(step).map(|element| PathValue::Json(element)));
        }
        Ok(found)
    }

    /// Returns start and end of the slice in an array of `length` elements; `None` if start and end are equal. If the
    /// path has selected several arrays, the caller then also skips the arrays after this one, as client-go does.
    fn bounds(self, length: usize) -> Result<Option<(usize, usize)>, Mismatch> {
        let count = i64::try_from(length).map_err(|_| Mismatch)?;
        let start = if self.start < 0 { self.start.saturating_add(count) } else { self.start };
        let end = match self.end {
            None => count,
            Some(end) if end < 0 || (end == 0 && self.is_index) => end.saturating_add(count),
            Some(end) => end,
        };
        if start == end {
            return Ok(None);
        }
        if start < 0 || start >= count || end < 0 || end > count || start > end {
            return Err(Mismatch);
        }
        let offset = |number| usize::try_from(number).map_err(|_| Mismatch);
        Ok(Some((offset(start)?, offset(end)?)))
    }
}

impl Filter {
    fn apply<'a>(&'a self, values: Vec<PathValue<'a>>) -> Values<'a> {
        let mut found = Vec::new();
        for value in values {
            let elements = elements(&value)?.ok_or(Mismatch)?;
            for element in elements {
                if self.accepts(element)? {
                    found.push(PathValue::Json(element));
                }
            }
        }
        Ok(found)
    }

    fn accepts(&self, element: &[u8]) -> Result<bool, Mismatch> {
        let left = walk(&self.left, vec![PathValue::Json(element)]);
        let Some(Comparison { operator, right }) = &self.comparison else {
            return Ok(left.map_or(true, |left| !left.is_empty()));
        };
        let Some(left) = single(left?)? else { return Ok(false) };
        let Some(right) = single(walk(right, vec![PathValue::Json(element)])?)? else { return Ok(false) };
        operator.compare(&left, &right)
    }
}

/// Returns the only value; `None` if there is none. Several values are a mismatch.
fn single(values: Vec<PathValue<'_>>) -> Result<Option<PathValue<'_>>, Mismatch> {
    if values.len() > 1 { Err(Mismatch) } else { Ok(values.into_iter().next()) }
}

/// A value of a type that can be compared: a string, a number or a boolean.
#[derive(Debug)]
pub(super) enum Basic<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// An integer of 64 bits.
    Integer(i64),
    /// A number that is not a 64-bit integer.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

impl<'a> PathValue<'a> {
    /// Returns the value if it is a string, a number or a boolean.
    pub(super) fn basic(&self) -> Option<Basic<'a>> {
        let json = match self {
            Self::Json(json) => *json,
            Self::Text(text) => return Some(Basic::Text(Cow::Borrowed(text))),
            Self::Integer(number) => return Some(Basic::Integer(*number)),
            Self::Float(number) => return Some(Basic::Float(*number)),
            Self::Bool(value) => return Some(Basic::Bool(*value)),
        };
        match container(json)? {
            b'"' => {
                let inner = json.strip_prefix(b"\"").and_then(|json| json.strip_suffix(b"\"")).unwrap_or_default();
                match std::str::from_utf8(inner) {
                    Ok(text) if !text.contains('\\') => Some(Basic::Text(text.into())),
                    _ => serde_json::from_slice::<String>(json).ok().map(|text| Basic::Text(text.into())),
                }
            }
            b't' => Some(Basic::Bool(true)),
            b'f' => Some(Basic::Bool(false)),
            b'n' | b'{' | b'[' => None,
            _ => {
                let text = std::str::from_utf8(json).ok()?;
                text.parse().map(Basic::Integer).or_else(|_| text.parse().map(Basic::Float)).ok()
            }
        }
    }
}

impl Operator {
    /// Compares two values, which must have the same type.
    fn compare(self, left: &PathValue<'_>, right: &PathValue<'_>) -> Result<bool, Mismatch> {
        let (left, right) = (left.basic().ok_or(Mismatch)?, right.basic().ok_or(Mismatch)?);
        let order = match (&left, &right) {
            (Basic::Text(left), Basic::Text(right)) => Some(left.cmp(right)),
            (Basic::Integer(left), Basic::Integer(right)) => Some(left.cmp(right)),
            (Basic::Float(left), Basic::Float(right)) => left.partial_cmp(right),
            (Basic::Bool(left), Basic::Bool(right)) if matches!(self, Self::Equal | Self::NotEqual) => {
                Some(left.cmp(right))
            }
            _ => return Err(Mismatch),
        };
        match self {
            Self::Less => Ok(order == Some(Ordering::Less)),
            Self::Greater => Ok(order == Some(Ordering::Greater)),
            Self::Equal => Ok(order == Some(Ordering::Equal)),
            Self::NotEqual => Ok(order != Some(Ordering::Equal)),
            Self::LessOrEqual => Ok(matches!(order, Some(Ordering::Less | Ordering::Equal))),
            Self::GreaterOrEqual => Ok(matches!(order, Some(Ordering::Greater | Ordering::Equal))),
            Self::Unknown => Err(Mismatch),
        }
    }
}

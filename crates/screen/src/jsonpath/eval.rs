//! Evaluation of JSONPath templates.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Comparison, Filter, Node, Operand, Path, Step};

/// Maximum number of values that one step of a path selects.
const MOST: usize = 2_000_000;

/// Error of a path that selects too many values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the template selects more than {MOST} values; use a shorter path than ..")]
pub struct TooManyValues;

pub(super) fn render(nodes: &[Node], root: &Value, current: &Value, out: &mut String) -> Result<(), TooManyValues> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Path(path) => {
                for (at, value) in select(path, root, current)?.into_iter().enumerate() {
                    if at > 0 {
                        out.push(' ');
                    }
                    push(value, out);
                }
            }
            Node::Range(path, body) => {
                for value in select(path, root, current)? {
                    render(body, root, value, out)?;
                }
            }
        }
    }
    Ok(())
}

fn push(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Null => {}
        other => out.push_str(&other.to_string()),
    }
}

pub(super) fn select<'v>(path: &Path, root: &'v Value, current: &'v Value) -> Result<Vec<&'v Value>, TooManyValues> {
    let mut found = vec![if path.from_root { root } else { current }];
    for step in &path.steps {
        let mut next = Vec::new();
        for value in found {
            follow(step, root, value, &mut next)?;
            if next.len() > MOST {
                return Err(TooManyValues);
            }
        }
        found = next;
    }
    Ok(found)
}

fn follow<'v>(step: &Step, root: &'v Value, value: &'v Value, next: &mut Vec<&'v Value>) -> Result<(), TooManyValues> {
    match step {
        Step::Fields(names) => next.extend(names.iter().filter_map(|name| value.get(name.as_str()))),
        Step::Each => children(value, next),
        Step::Elements(indexes) => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            next.extend(indexes.iter().filter_map(|index| list.get(position(*index, list.len())?)));
        }
        Step::Slice { start, end, step } => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let bound = |at: i64| {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                usize::try_from(if at < 0 { at.saturating_add(length) } else { at }.clamp(0, length))
                    .unwrap_or_default()
            };
            let (start, end) = (bound(start.unwrap_or(0)), bound(end.unwrap_or(i64::MAX)));
            next.extend(list.get(start..end).unwrap_or_default().iter().step_by(*step));
        }
        Step::Descend => {
            let begin = next.len();
            next.push(value);
            let mut at = begin;
            while at < next.len() && next.len() <= MOST {
                let value = next[at];
                children(value, next);
                at += 1;
            }
        }
        Step::Filter(filter) => {
            let mut candidates = Vec::new();
            children(value, &mut candidates);
            for candidate in candidates {
                if matches(filter, root, candidate)? {
                    next.push(candidate);
                }
            }
        }
    }
    Ok(())
}

fn children<'v>(value: &'v Value, next: &mut Vec<&'v Value>) {
    match value {
        Value::Array(elements) => next.extend(elements),
        Value::Object(members) => next.extend(members.values()),
        _ => {}
    }
}

/// Converts an index to a position in a list. A negative index counts from the end; `None` if it is before the start.
fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index.checked_add(length)? } else { index }).ok()
}

fn matches(filter: &Filter, root: &Value, candidate: &Value) -> Result<bool, TooManyValues> {
    let of = |operand: &Operand| -> Result<Option<Value>, TooManyValues> {
        match operand {
            Operand::Literal(value) => Ok(Some(value.clone())),
            Operand::Path(path) => Ok(select(path, root, candidate)?.first().map(|value| (*value).clone())),
        }
    };
    let left = of(&filter.left)?;
    let Some((comparison, right)) = &filter.test else { return Ok(left.is_some()) };
    let (Some(left), Some(right)) = (left, of(right)?) else { return Ok(false) };
    let order = match (&left, &right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(Ordering::Equal),
        _ => None,
    };
    Ok(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
    })
}

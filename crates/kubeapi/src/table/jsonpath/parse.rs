//! Parser of JSONPath. Accepts and refuses the same paths as client-go's.

use super::{Comparison, Constant, Filter, Operator, Path, Slice, Step};

/// Maximum nesting depth of paths, counting the whole path as the first level. Filters, unions and quoted keys contain
/// nested paths.
const DEEPEST: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::table) struct InvalidPath;

impl Path {
    /// Parses a path, without the braces that kubectl needs around it.
    pub(in crate::table) fn parse(text: &str) -> Result<Self, InvalidPath> {
        Ok(Self { steps: steps(text, DEEPEST)? })
    }
}

fn steps(text: &str, depth: usize) -> Result<Vec<Step>, InvalidPath> {
    if depth == 0 {
        return Err(InvalidPath);
    }
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            // A closing brace ends the path; the text after it is ignored.
            '}' => break,
            ' ' | '@' | '$' => &rest[1..],
            '[' if rest.starts_with("[?(") => filter(&rest[3..], depth, &mut steps)?,
            '[' => array(&rest[1..], depth, &mut steps)?,
            '.' if rest.starts_with("..") => {
                if steps.last() == Some(&Step::Descendants) {
                    return Err(InvalidPath);
                }
                steps.push(Step::Descendants);
                let rest = &rest[2..];
                if rest.starts_with(is_alphanumeric) { field(rest, &mut steps) } else { rest }
            }
            '.' => field(&rest[1..], &mut steps),
            '"' | '\'' => quoted(rest, first, &mut steps)?,
            '+' | '-' => number(rest, &mut steps)?,
            _ if first.is_numeric() => number(rest, &mut steps)?,
            _ if is_alphanumeric(first) => identifier(rest, &mut steps),
            _ => return Err(InvalidPath),
        };
    }
    Ok(steps)
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// Parses the name of a field. The name ends before the first terminator, such as `.` or `[`, that has no backslash
/// before it. Returns the text after the name.
fn field<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let ends = !is_escaped && is_terminator(c);
        is_escaped = !is_escaped && c == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name.replace('\\', "")) });
    rest
}

fn identifier<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let (name, rest) = text.split_at(text.find(is_terminator).unwrap_or(text.len()));
    steps.push(match name {
        "true" => Step::Constant(Constant::Bool(true)),
        "false" => Step::Constant(Constant::Bool(false)),
        _ => Step::Identifier,
    });
    rest
}

fn number<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, InvalidPath> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = digits.trim_start_matches(|c: char| c == '.' || c.is_numeric());
    let number = &text[..text.len() - rest.len()];
    let integer = number.parse().map(Constant::Integer);
    let constant = integer.or_else(|_| number.parse().map(Constant::Float)).map_err(|_| InvalidPath)?;
    steps.push(Step::Constant(constant));
    Ok(rest)
}

/// Parses a quoted string. The only escapes are `\\`, `\'`, `\"`, `\n` and `\t`. Returns the text after the string.
fn quoted<'t>(text: &'t str, quote: char, steps: &mut Vec<Step>) -> Result<&'t str, InvalidPath> {
    let mut constant = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => return Err(InvalidPath),
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | '\'' | '"'))) => constant.push(escaped),
                Some((_, 'n')) => constant.push('\n'),
                Some((_, 't')) => constant.push('\t'),
                _ => return Err(InvalidPath),
            },
            _ if c == quote => {
                steps.push(Step::Constant(Constant::Text(constant)));
                return Ok(&text[at + 1..]);
            }
            _ => constant.push(c),
        }
    }
    Err(InvalidPath)
}

/// Parses an index, a range, a quoted key or a union. `text` starts after the `[`. Returns the text after the `]`.
fn array<'t>(text: &'t str, depth: usize, found: &mut Vec<Step>) -> Result<&'t str, InvalidPath> {
    let (inner, rest) = text.split_once(']').filter(|(inner, _)| !inner.contains('\n')).ok_or(InvalidPath)?;
    if inner.contains(',') {
        let parts = inner.split(',').map(|part| steps(&format!("[{}]", part.trim_matches(' ')), depth - 1));
        found.push(Step::Union(parts.collect::<Result<_, _>>()?));
    } else if let Some(key) =
        inner.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')).filter(|key| !key.contains('\''))
    {
        found.extend(steps(&format!(".{key}"), depth - 1)?);
    } else {
        found.push(Step::Slice(slice(inner)?));
    }
    Ok(rest)
}

/// Parses `index`, `start:end` or `start:end:step`; `*` selects all elements.
fn slice(text: &str) -> Result<Slice, InvalidPath> {
    let mut parts = if text == "*" { ":" } else { text }.split(':');
    let mut next = || {
        let Some(part) = parts.next() else { return Ok(None) };
        let digits = part.strip_prefix('-').unwrap_or(part);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        match part {
            "" => Ok(Some(None)),
            _ if is_number => part.parse::<i64>().map(|number| Some(Some(number))).map_err(|_| InvalidPath),
            _ => Err(InvalidPath),
        }
    };
    let (start, end, step) = (next()?.flatten(), next()?, next()?.flatten());
    if parts.next().is_some() {
        return Err(InvalidPath);
    }
    let start = start.unwrap_or(0);
    Ok(match end {
        None => Slice { start, end: Some(start.saturating_add(1)), is_index: true, step },
        Some(end) => Slice { start, end, is_index: false, step },
    })
}

/// Parses a filter. `text` starts after the `[?(`. Returns the text after the `)]`.
fn filter<'t>(text: &'t str, depth: usize, found: &mut Vec<Step>) -> Result<&'t str, InvalidPath> {
    let end = filter_end(text).ok_or(InvalidPath)?;
    let (condition, rest) = text.split_at(end);
    let rest = rest.strip_prefix(")]").ok_or(InvalidPath)?;
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let filter = match condition.find(is_operator).filter(|&at| at > 0) {
        None => Filter { left: steps(condition, depth - 1)?, comparison: None },
        Some(at) => {
            let (left, comparison) = condition.split_at(at);
            let right = comparison.trim_start_matches(is_operator);
            if right.is_empty() {
                return Err(InvalidPath);
            }
            let operator = match &comparison[..comparison.len() - right.len()] {
                "<" => Operator::Less,
                ">" => Operator::Greater,
                "==" => Operator::Equal,
                "!=" => Operator::NotEqual,
                "<=" => Operator::LessOrEqual,
                ">=" => Operator::GreaterOrEqual,
                _ => Operator::Unknown,
            };
            let comparison = Comparison { operator, right: steps(right, depth - 1)? };
            Filter { left: steps(left, depth - 1)?, comparison: Some(comparison) }
        }
    };
    found.push(Step::Filter(filter));
    Ok(rest)
}

/// Returns the offset of the `)` that ends a filter; `None` if there is none on the line. As in client-go, this is the
/// first `)` outside the first quoted string. Later quotes have no effect.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut is_closed = false;
    let mut before = '(';
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('\n', _) => return None,
            ('"' | '\'', None) => quote = Some(c),
            ('"' | '\'', Some(open)) if before != '\\' && c == open => is_closed = true,
            (')', _) if quote.is_some() == is_closed => return Some(at),
            _ => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Vec<Step> {
        Path::parse(text).unwrap_or_else(|_| panic!("{text}")).steps
    }

    fn field(name: &str) -> Step {
        Step::Field(name.to_owned())
    }

    #[test]
    fn fields_may_be_dotted_quoted_or_escaped() {
        assert_eq!(parsed(".a.b-c"), [field("a"), field("b-c")]);
        assert_eq!(parsed(r".a\.b\/c"), [field("a.b/c")]);
        assert_eq!(parsed(".a['b']"), [field("a"), field("b")]);
        assert_eq!(parsed(r".a['b\.c']"), [field("a"), field("b.c")]);
        assert_eq!(parsed(".a['b.c']"), [field("a"), field("b"), field("c")]);
        assert_eq!(parsed("$.a.*"), [field("a"), Step::Wildcard]);
        assert_eq!(parsed("."), [field("")]);
        assert_eq!(parsed("..a"), [Step::Descendants, field("a")]);
    }

    #[test]
    fn indices_and_ranges_are_parsed() {
        let slice = |text| match &parsed(text)[1] {
            Step::Slice(slice) => (slice.start, slice.end, slice.is_index, slice.step),
            other => panic!("{other:?}"),
        };
        assert_eq!(slice(".a[0]"), (0, Some(1), true, None));
        assert_eq!(slice(".a[-1]"), (-1, Some(0), true, None));
        assert_eq!(slice(".a[*]"), (0, None, false, None));
        assert_eq!(slice(".a[1:3:2]"), (1, Some(3), false, Some(2)));
        assert_eq!(slice(".a[:-1]"), (0, Some(-1), false, None));
        assert!(matches!(&parsed(".a[0,1]")[1], Step::Union(paths) if paths.len() == 2));
    }

    #[test]
    fn filters_compare_or_test_presence() {
        let filter = |text| match &parsed(text)[..] {
            [Step::Field(_), Step::Filter(filter), rest @ ..] => (filter.clone(), rest.len()),
            other => panic!("{other:?}"),
        };
        let text = |text: &str| vec![Step::Constant(Constant::Text(text.into()))];
        let ready = Filter {
            left: vec![field("type")],
            comparison: Some(Comparison { operator: Operator::Equal, right: text("Ready") }),
        };
        assert_eq!(filter(r#".c[?(@.type=="Ready")].status"#), (ready.clone(), 1));
        assert_eq!(filter(".c[?(@.type == 'Ready')].status"), (ready, 1));
        assert_eq!(filter(".c[?(@.x)]").0.comparison, None);
        let odd = filter(r#".c[?(@.x!="a)]\"b")]"#).0.comparison.unwrap();
        assert_eq!((odd.operator, odd.right), (Operator::NotEqual, text(r#"a)]"b"#)));
        let number = filter(".c[?(@.x>=-1.5)]").0.comparison.unwrap();
        assert_eq!(number.right, [Step::Constant(Constant::Float(-1.5))]);
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in [
            ".a[",
            ".a[x]",
            ".a[1:2:3:4]",
            ".a[?(@.x]",
            ".a[?(@.x)",
            ".a[?(@.x==)]",
            ".a....b",
            ".a '",
            "#",
            ".a[?(==1)]",
        ] {
            assert_eq!(Path::parse(text), Err(InvalidPath), "{text}");
        }
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(2048))]

        #[test]
        fn any_text_ends_without_a_panic(text in r#"([.a@$*' "\\()\[\]{}0-9:,!=<>é-]|\[\?\(|\)\]){0,24}"#) {
            let _ = Path::parse(&text);
        }
    }
}

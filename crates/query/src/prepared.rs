//! Tests of values, prepared once and then evaluated on many values: texts are sorted, quantities parsed.

use std::cmp::Ordering;

use smol_str::SmolStr;

use super::decimal::Decimal;
use super::error::InvalidExpr;
use super::walk::SeenValue;
use super::{Literal, Test, TextTest};

/// A [`Test`], prepared to test many values; it holds if any value passes. A negative test is stored as its positive
/// form (`IsNot` as `Is`), and the caller negates the result.
#[derive(Debug)]
pub(super) enum PreparedTest {
    OneOf { texts: Vec<SmolStr>, others: Vec<PreparedLiteral> },
    Compare { literal: PreparedLiteral, accepts: fn(Ordering) -> bool },
    Contains(SmolStr),
    Prefix(SmolStr),
    Exists,
}

#[derive(Debug)]
pub(super) enum PreparedLiteral {
    Bool(bool),
    Number(f64),
    Text(SmolStr),
    Quantity(Decimal),
}

impl PreparedTest {
    /// Returns the prepared test and whether it is negated.
    pub(super) fn new(test: &Test) -> Result<(Self, bool), InvalidExpr> {
        Ok(match test {
            Test::Is(literal) => (Self::one_of(std::slice::from_ref(literal))?, false),
            Test::IsNot(literal) => (Self::one_of(std::slice::from_ref(literal))?, true),
            Test::In(literals) => (Self::one_of(literals)?, false),
            Test::NotIn(literals) => (Self::one_of(literals)?, true),
            Test::Less(literal) => (Self::compare(literal, Ordering::is_lt)?, false),
            Test::AtMost(literal) => (Self::compare(literal, Ordering::is_le)?, false),
            Test::More(literal) => (Self::compare(literal, Ordering::is_gt)?, false),
            Test::AtLeast(literal) => (Self::compare(literal, Ordering::is_ge)?, false),
            Test::Contains(part) => (Self::Contains(part.clone()), false),
            Test::Prefix(start) => (Self::Prefix(start.clone()), false),
            Test::Exists => (Self::Exists, false),
        })
    }

    fn one_of(literals: &[Literal]) -> Result<Self, InvalidExpr> {
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        for literal in literals {
            match PreparedLiteral::new(literal)? {
                PreparedLiteral::Text(text) => texts.push(text),
                other => others.push(other),
            }
        }
        texts.sort_unstable();
        Ok(Self::OneOf { texts, others })
    }

    fn compare(literal: &Literal, accepts: fn(Ordering) -> bool) -> Result<Self, InvalidExpr> {
        Ok(Self::Compare { literal: PreparedLiteral::new(literal)?, accepts })
    }

    pub(super) fn holds(&self, value: SeenValue<'_>) -> bool {
        match (self, value) {
            (Self::Contains(element), SeenValue::Element(text)) => text == element,
            (_, SeenValue::Element(_) | SeenValue::Null) => false,
            (Self::Exists, _) => true,
            (Self::OneOf { texts, others }, value) => {
                let is_text = |text| texts.binary_search_by(|known| known.as_str().cmp(text)).is_ok();
                matches!(value, SeenValue::Text(text) if is_text(text))
                    || others.iter().any(|literal| literal.cmp_to(value) == Some(Ordering::Equal))
            }
            (Self::Compare { literal, accepts }, value) => literal.cmp_to(value).is_some_and(accepts),
            (Self::Contains(part), SeenValue::Text(text)) => {
                memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()
            }
            (Self::Prefix(start), SeenValue::Text(text)) => text.starts_with(start.as_str()),
            (Self::Contains(_) | Self::Prefix(_), _) => false,
        }
    }
}

impl PreparedLiteral {
    fn new(literal: &Literal) -> Result<Self, InvalidExpr> {
        Ok(match literal {
            Literal::Bool(bool) => Self::Bool(*bool),
            Literal::Number(number) => Self::Number(*number),
            Literal::Text(text) => Self::Text(text.clone()),
            Literal::Quantity(text) => {
                let invalid = || InvalidExpr::Quantity { text: text.clone() };
                Self::Quantity(Decimal::quantity(text).ok_or_else(invalid)?)
            }
        })
    }

    /// Compares a value with this literal; `None` if their kinds differ.
    fn cmp_to(&self, value: SeenValue<'_>) -> Option<Ordering> {
        match (self, value) {
            (Self::Bool(own), SeenValue::Bool(value)) => Some(value.cmp(own)),
            (Self::Number(own), SeenValue::Number(value)) => value.cmp_float(*own),
            (Self::Text(own), SeenValue::Text(value)) => Some(value.cmp(own.as_str())),
            (Self::Quantity(own), SeenValue::Text(value)) => Decimal::quantity(value).map(|value| value.cmp(own)),
            (Self::Quantity(own), SeenValue::Number(value)) => Some(Decimal::number(value).cmp(own)),
            _ => None,
        }
    }
}

/// A prepared [`TextTest`]. Its texts are sorted, for binary search.
#[derive(Debug)]
pub(super) enum PreparedTextTest {
    In(Vec<SmolStr>),
    Prefix(SmolStr),
}

impl PreparedTextTest {
    pub(super) fn new(test: &TextTest) -> Self {
        match test {
            TextTest::In(texts) => {
                let mut texts = texts.clone();
                texts.sort_unstable();
                Self::In(texts)
            }
            TextTest::Prefix(start) => Self::Prefix(start.clone()),
        }
    }

    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::In(texts) => texts.binary_search_by(|known| known.as_str().cmp(text)).is_ok(),
            Self::Prefix(start) => text.starts_with(start.as_str()),
        }
    }
}

//! Conditions on an object, and how they are put together.

use smol_str::SmolStr;

use informer_hub_types::{ClusterSelector, FieldPath, LabelSelector, Uid};

/// What an object must be like.
///
/// All but [`Self::Field`] is answered from an object's head, without decompressing it.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Expr {
    /// Every object.
    #[default]
    All,
    /// All of these; every object where there is none.
    And(Vec<Expr>),
    /// Any of these; no object where there is none.
    Or(Vec<Expr>),
    /// Not this.
    Not(Box<Expr>),
    /// The object is in one of these clusters.
    Cluster(ClusterSelector),
    /// `metadata.namespace`; the empty text for an object without one.
    Namespace(TextTest),
    /// `metadata.name`.
    Name(TextTest),
    /// The labels match.
    Labels(LabelSelector),
    /// A field of the object passes a test.
    Field {
        /// Which field.
        path: FieldPath,
        /// What it has to be.
        test: Test,
    },
    /// The object carries any of these values in an index, declared or computed.
    Index {
        /// The index's name.
        index: SmolStr,
        /// The values.
        values: Vec<SmolStr>,
    },
    /// `metadata.uid`.
    Uid(Uid),
    /// One of `metadata.ownerReferences` has this UID.
    OwnedBy(Uid),
}

/// What a text has to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TextTest {
    /// One of these.
    In(Vec<SmolStr>),
    /// Begins with this.
    Prefix(SmolStr),
}

/// What the values at a path have to be. A path with `[*]` leads to any number of values: a test holds where it holds
/// for any of them, a negative one ([`Self::IsNot`], [`Self::NotIn`]) where it holds for all, none included.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// Equal.
    Is(Literal),
    /// Not equal, or not there.
    IsNot(Literal),
    /// Equal to one of these.
    In(Vec<Literal>),
    /// Equal to none of these, or not there.
    NotIn(Vec<Literal>),
    /// `<`
    Less(Literal),
    /// `<=`
    AtMost(Literal),
    /// `>`
    More(Literal),
    /// `>=`
    AtLeast(Literal),
    /// A text that has this in it, or an array of which one element is this text.
    Contains(SmolStr),
    /// A text that begins with this.
    Prefix(SmolStr),
    /// There, whatever it is; `null` is not there.
    Exists,
}

/// A value to compare with. Values of different kinds are not equal, and neither is less.
#[derive(Clone, PartialEq, Debug)]
pub enum Literal {
    /// `true` and `false`; `false` is less.
    Bool(bool),
    /// Any JSON number, compared by value.
    Number(f64),
    /// A text, compared byte by byte: RFC 3339 times of one zone compare as times.
    Text(SmolStr),
    /// A Kubernetes quantity (`500m`, `2Gi`), compared by value with texts and numbers that are one.
    Quantity(SmolStr),
}

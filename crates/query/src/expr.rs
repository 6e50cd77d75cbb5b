//! Expressions: conditions on objects, and their combinations.

use smol_str::SmolStr;

use informer_hub_types::{ClusterSelector, FieldPath, LabelSelector, Uid};

/// A condition on objects.
///
/// Most conditions are evaluated on an object's head: cluster, names, labels, UID and index values, which are readable
/// without decompressing the object. [`Self::Field`] may need the object's JSON. So does [`Self::OwnedBy`] if the head
/// does not contain the owners.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Expr {
    /// Every object.
    #[default]
    All,
    /// All these conditions hold; an empty list matches every object.
    And(Vec<Expr>),
    /// Any of these conditions holds; an empty list matches no object.
    Or(Vec<Expr>),
    /// This condition does not hold.
    Not(Box<Expr>),
    /// The object is in a selected cluster.
    Cluster(ClusterSelector),
    /// Test of `metadata.namespace`, which is the empty text for a cluster-scoped object.
    Namespace(TextTest),
    /// Test of `metadata.name`.
    Name(TextTest),
    /// The labels match the selector.
    Labels(LabelSelector),
    /// Test of a field.
    Field {
        /// Path of the field.
        path: FieldPath,
        /// Test of the field's values.
        test: Test,
    },
    /// The object has any of these values in an index: one that the configuration declares, or one that a Rust function
    /// computes.
    Index {
        /// The index's name.
        index: SmolStr,
        /// Values to look for. The object must have at least one of them.
        values: Vec<SmolStr>,
    },
    /// `metadata.uid` equals this UID.
    Uid(Uid),
    /// One of `metadata.ownerReferences` has this UID.
    OwnedBy(Uid),
}

/// A test of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TextTest {
    /// Equal to one of these texts.
    In(Vec<SmolStr>),
    /// Starts with this text.
    Prefix(SmolStr),
}

/// A test of the values at a path.
///
/// A path with `[*]` may yield several values, and a missing field yields none. A positive test holds if at least one
/// value passes. A negative test ([`Self::IsNot`], [`Self::NotIn`]) holds if every value passes, and also if there is
/// no value.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// Equal to this value.
    Is(Literal),
    /// Not equal to this value, or missing.
    IsNot(Literal),
    /// Equal to one of these values.
    In(Vec<Literal>),
    /// Equal to none of these values, or missing.
    NotIn(Vec<Literal>),
    /// Less than this value (`<`).
    Less(Literal),
    /// At most this value (`<=`).
    AtMost(Literal),
    /// Greater than this value (`>`).
    More(Literal),
    /// At least this value (`>=`).
    AtLeast(Literal),
    /// A text with this substring, or an array with this text as an element.
    Contains(SmolStr),
    /// A text with this prefix.
    Prefix(SmolStr),
    /// Present and not `null`.
    Exists,
}

/// A value to compare a field with. Values of different kinds are neither equal nor ordered. Only a [`Self::Quantity`]
/// compares with several kinds: numbers and texts.
#[derive(Clone, PartialEq, Debug)]
pub enum Literal {
    /// A boolean; `false` is less than `true`.
    Bool(bool),
    /// Any JSON number, compared by value.
    Number(f64),
    /// A text, compared byte by byte. So RFC 3339 times of one time zone and precision are ordered by time.
    Text(SmolStr),
    /// A Kubernetes quantity (`500m`, `2Gi`), compared by value with numbers and with texts that are quantities.
    Quantity(SmolStr),
}

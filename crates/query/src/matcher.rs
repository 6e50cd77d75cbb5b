//! An expression prepared for many objects: evaluated on their heads first, and on their bytes if needed.

use smallvec::SmallVec;
use smol_str::SmolStr;

use super::Expr;
use super::error::{self, InvalidExpr};
use super::head::{Head, HeadPath};
use super::prepared::{PreparedTest, PreparedTextTest};
use super::trie::Trie;
use super::walk::{SeenValue, Unreadable, ValueVisitor, walk};
use informer_hub_types::{ClusterSelector, FieldPath, LabelSelector, Uid};

/// An [`Expr`] prepared for evaluation.
#[derive(Debug)]
pub struct Matcher {
    root: Node,
    terms: Vec<Term>,
    /// Path tree of the conditions that may need an object's JSON. Each path is numbered by its condition's index in
    /// `terms`.
    trie: Trie,
    needs_body: bool,
}

#[derive(Debug)]
enum Node {
    Term(usize),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
}

#[derive(Debug)]
enum Term {
    Cluster(ClusterSelector),
    Namespace(PreparedTextTest),
    Name(PreparedTextTest),
    Labels(LabelSelector),
    Index { index: SmolStr, values: Vec<SmolStr> },
    Uid(Uid),
    OwnedBy { owner: Uid, test: PreparedTest },
    Field { head: Option<HeadPath>, test: PreparedTest, negative: bool },
}

/// Result of each condition; `None` until it is decided.
type TermResults = SmallVec<[Option<bool>; 16]>;

impl Matcher {
    /// Largest number of conditions and connectives in an expression. It bounds the time to evaluate one object.
    pub const MAX_TERMS: usize = error::MAX_TERMS;
    /// Deepest nesting of an expression. It bounds the use of stack.
    pub const MAX_DEPTH: usize = error::MAX_DEPTH;

    /// Prepares an expression.
    ///
    /// # Errors
    /// [`InvalidExpr`] if the expression is too large, or a quantity in it is invalid.
    pub fn new(expr: &Expr) -> Result<Self, InvalidExpr> {
        let mut builder = Builder { terms: Vec::new(), paths: Vec::new(), count: 0 };
        let root = builder.node(expr, 0)?;
        let trie = Trie::new(builder.paths.iter().map(|(number, path)| (*number, path)));
        let by_head = |term: &Term| matches!(term, Term::Field { head: None, .. });
        let needs_body = builder.terms.iter().any(by_head);
        Ok(Self { root, terms: builder.terms, trie, needs_body })
    }

    /// Returns whether an [`Expr::Field`] condition tests a field that is only in the object's JSON, not in its head.
    /// Ignores [`Expr::OwnedBy`], which needs the JSON only if the head lacks the owners.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// Evaluates the expression on an object's head; `None` if only the object's JSON can decide. Stops at the first
    /// decisive condition. Allocates nothing, unless a field condition reads `metadata.uid`, which must be converted to
    /// text.
    pub fn on_head(&self, head: &impl Head) -> Option<bool> {
        self.root.holds(&|term| self.terms[term].on_head(head))
    }

    /// Evaluates the expression on an object. Makes one pass over its bytes and stops when the result is certain, so
    /// later bytes are not checked. If a field occurs twice, either value may count.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes are not JSON.
    pub fn on_body(&self, head: &impl Head, json: &[u8]) -> Result<bool, Unreadable> {
        let known = self.terms.iter().map(|term| term.on_head(head)).collect();
        let mut pass = Pass { matcher: self, known };
        if let Some(holds) = pass.result() {
            return Ok(holds);
        }
        walk(json, &self.trie, &mut pass)?;
        pass.resolve_all_missing();
        Ok(pass.result().unwrap_or(false))
    }
}

struct Builder {
    terms: Vec<Term>,
    paths: Vec<(usize, FieldPath)>,
    count: usize,
}

impl Builder {
    fn node(&mut self, expr: &Expr, depth: usize) -> Result<Node, InvalidExpr> {
        self.count += 1;
        if self.count > Matcher::MAX_TERMS {
            return Err(InvalidExpr::TooManyTerms);
        }
        if depth > Matcher::MAX_DEPTH {
            return Err(InvalidExpr::TooDeep);
        }
        let mut all = |exprs: &[Expr]| exprs.iter().map(|expr| self.node(expr, depth + 1)).collect::<Result<_, _>>();
        let term = match expr {
            Expr::All => return Ok(Node::And(Vec::new())),
            Expr::And(exprs) => return Ok(Node::And(all(exprs)?)),
            Expr::Or(exprs) => return Ok(Node::Or(all(exprs)?)),
            Expr::Not(expr) => return Ok(Node::Not(Box::new(self.node(expr, depth + 1)?))),
            Expr::Cluster(selector) => Term::Cluster(selector.clone()),
            Expr::Namespace(test) => Term::Namespace(PreparedTextTest::new(test)),
            Expr::Name(test) => Term::Name(PreparedTextTest::new(test)),
            Expr::Labels(selector) => Term::Labels(selector.clone()),
            Expr::Index { index, values } => Term::Index { index: index.clone(), values: values.clone() },
            Expr::Uid(uid) => Term::Uid(uid.clone()),
            Expr::OwnedBy(owner) => self.owned_by(owner)?,
            Expr::Field { path, test } => {
                let (test, negative) = PreparedTest::new(test)?;
                self.paths.push((self.terms.len(), path.clone()));
                Term::Field { head: HeadPath::of(path), test, negative }
            }
        };
        self.terms.push(term);
        Ok(Node::Term(self.terms.len() - 1))
    }

    fn owned_by(&mut self, owner: &Uid) -> Result<Term, InvalidExpr> {
        let path = "metadata.ownerReferences[*].uid".parse().expect("this is a path");
        self.paths.push((self.terms.len(), path));
        let uid = smol_str::format_smolstr!("{owner}");
        let (test, _) = PreparedTest::new(&super::Test::Is(super::Literal::Text(uid)))?;
        Ok(Term::OwnedBy { owner: owner.clone(), test })
    }
}

impl Node {
    /// Evaluates this part of the expression. `term` returns the result of a condition; `None` if it is undecided.
    /// Returns `None` if the decided conditions do not determine the result.
    fn holds(&self, term: &impl Fn(usize) -> Option<bool>) -> Option<bool> {
        let any = |nodes: &[Self], decisive: bool| {
            let mut all_decided = true;
            for node in nodes {
                match node.holds(term) {
                    Some(holds) if holds == decisive => return Some(decisive),
                    Some(_) => {}
                    None => all_decided = false,
                }
            }
            all_decided.then_some(!decisive)
        };
        match self {
            Self::Term(number) => term(*number),
            Self::And(nodes) => any(nodes, false),
            Self::Or(nodes) => any(nodes, true),
            Self::Not(node) => node.holds(term).map(|holds| !holds),
        }
    }
}

impl Term {
    fn on_head(&self, head: &impl Head) -> Option<bool> {
        match self {
            Self::Cluster(selector) => Some(selector.matches(head.cluster(), head.cluster_labels())),
            Self::Namespace(test) => Some(test.holds(head.namespace())),
            Self::Name(test) => Some(test.holds(head.name())),
            Self::Labels(selector) => Some(head.matches_labels(selector)),
            Self::Index { index, values } => Some(head.in_index(index, values)),
            Self::Uid(uid) => Some(head.uid() == uid),
            Self::OwnedBy { owner, .. } => head.owned_by(owner),
            Self::Field { head: path, test, negative } => {
                let value = (*path)?.value(head)?;
                Some(test.holds(SeenValue::Text(&value)) != *negative)
            }
        }
    }
}

struct Pass<'m> {
    matcher: &'m Matcher,
    known: TermResults,
}

impl Pass<'_> {
    fn result(&self) -> Option<bool> {
        self.matcher.root.holds(&|term| self.known[term])
    }

    /// Sets the result of an undecided condition whose path has no value in the object: true for a negative test, false
    /// for any other.
    fn resolve_missing(&mut self, term: usize) {
        let negative = matches!(&self.matcher.terms[term], Term::Field { negative: true, .. });
        self.known[term].get_or_insert(negative);
    }

    fn resolve_all_missing(&mut self) {
        for term in 0..self.known.len() {
            self.resolve_missing(term);
        }
    }
}

impl ValueVisitor for Pass<'_> {
    fn visit(&mut self, paths: &[usize], value: SeenValue<'_>) {
        for &term in paths {
            if self.known[term].is_some() {
                continue;
            }
            let (test, negative) = match &self.matcher.terms[term] {
                Term::Field { test, negative, .. } => (test, *negative),
                Term::OwnedBy { test, .. } => (test, false),
                _ => continue,
            };
            if test.holds(value) {
                self.known[term] = Some(!negative);
            }
        }
    }

    fn paths_done(&mut self, paths: &[usize]) -> bool {
        for &term in paths {
            self.resolve_missing(term);
        }
        self.result().is_some()
    }
}

//! An expression made ready to be put to many objects: first to their heads, then to the bytes of those left over.

use smallvec::SmallVec;
use smol_str::SmolStr;

use super::Expr;
use super::head::{Head, HeadPath};
use super::test::{Ready, ReadyText};
use super::trie::Trie;
use super::walk::{Seen, Unreadable, Watcher, walk};
use informer_hub_types::{ClusterSelector, FieldPath, LabelSelector, Uid};

/// An expression that cannot be put to objects; whoever built it is at fault. Of a parsed one it cannot happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpr {
    /// More terms and connectives than [`Matcher::MAX_TERMS`].
    #[error("the condition has more than {} terms", Matcher::MAX_TERMS)]
    TooManyTerms,
    /// `and`, `or` and `not` inside each other, more than [`Matcher::MAX_DEPTH`].
    #[error("the condition is nested more than {} deep", Matcher::MAX_DEPTH)]
    TooDeep,
    /// A literal says that it is a quantity.
    #[error("{text:?} is not a quantity: write it as Kubernetes does, e.g. \"500m\" or \"2Gi\"")]
    Quantity {
        /// What was given.
        text: SmolStr,
    },
}

/// An [`Expr`] made ready.
#[derive(Debug)]
pub struct Matcher {
    root: Node,
    terms: Vec<Term>,
    /// The paths of the terms that need bytes, each known by the number of its term.
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
    Namespace(ReadyText),
    Name(ReadyText),
    Labels(LabelSelector),
    Index { index: SmolStr, values: Vec<SmolStr> },
    Uid(Uid),
    OwnedBy { owner: Uid, test: Ready },
    Field { head: Option<HeadPath>, test: Ready, negative: bool },
}

/// What is known of each term.
type Known = SmallVec<[Option<bool>; 16]>;

impl Matcher {
    /// Most terms and connectives of one expression, so that one object costs a bounded time.
    pub const MAX_TERMS: usize = 4_000;
    /// Deepest nesting of one expression, far from the end of any stack.
    pub const MAX_DEPTH: usize = 256;

    /// Makes an expression ready.
    ///
    /// # Errors
    /// [`InvalidExpr`] when it is too large, or has a literal that is not what it says.
    pub fn new(expr: &Expr) -> Result<Self, InvalidExpr> {
        let mut building = Building { terms: Vec::new(), paths: Vec::new(), count: 0 };
        let root = building.node(expr, 0)?;
        let trie = Trie::new(building.paths.iter().map(|(number, path)| (*number, path)));
        let by_head = |term: &Term| matches!(term, Term::Field { head: None, .. });
        let needs_body = building.terms.iter().any(by_head);
        Ok(Self { root, terms: building.terms, trie, needs_body })
    }

    /// Whether there are objects that only their bytes can decide, as far as can be told without an object.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// What an object's head says: `None` where only its bytes can tell. Stops at the first term that decides.
    /// Allocates nothing, unless a field condition asks for `metadata.uid`, which is kept as bytes.
    pub fn on_head(&self, head: &impl Head) -> Option<bool> {
        self.root.holds(&|term| self.terms[term].on_head(head))
    }

    /// Whether the expression holds of an object. One pass over its bytes, which ends where enough is known: what
    /// follows there is not looked at, broken or not. Of a field that occurs twice either one may count.
    ///
    /// # Errors
    /// [`Unreadable`] when the bytes are not JSON.
    pub fn on_body(&self, head: &impl Head, json: &[u8]) -> Result<bool, Unreadable> {
        let known = self.terms.iter().map(|term| term.on_head(head)).collect();
        let mut pass = Pass { matcher: self, known };
        if let Some(holds) = pass.result() {
            return Ok(holds);
        }
        walk(json, &self.trie, &mut pass)?;
        pass.close_all();
        Ok(pass.result().unwrap_or(false))
    }
}

/// An expression on its way to a matcher.
struct Building {
    terms: Vec<Term>,
    paths: Vec<(usize, FieldPath)>,
    count: usize,
}

impl Building {
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
            Expr::Namespace(test) => Term::Namespace(ReadyText::new(test)),
            Expr::Name(test) => Term::Name(ReadyText::new(test)),
            Expr::Labels(selector) => Term::Labels(selector.clone()),
            Expr::Index { index, values } => Term::Index { index: index.clone(), values: values.clone() },
            Expr::Uid(uid) => Term::Uid(uid.clone()),
            Expr::OwnedBy(owner) => self.owned_by(owner)?,
            Expr::Field { path, test } => {
                let (test, negative) = Ready::new(test)?;
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
        let (test, _) = Ready::new(&super::Test::Is(super::Literal::Text(uid)))?;
        Ok(Term::OwnedBy { owner: owner.clone(), test })
    }
}

impl Node {
    /// The logic of three values: what is not known does not matter where the rest decides.
    fn holds(&self, term: &impl Fn(usize) -> Option<bool>) -> Option<bool> {
        let any = |nodes: &[Self], wanted: bool| {
            let mut all_known = true;
            for node in nodes {
                match node.holds(term) {
                    Some(holds) if holds == wanted => return Some(wanted),
                    Some(_) => {}
                    None => all_known = false,
                }
            }
            all_known.then_some(!wanted)
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
                Some(test.holds(Seen::Text(&value)) != *negative)
            }
        }
    }
}

/// One pass over one object.
struct Pass<'m> {
    matcher: &'m Matcher,
    known: Known,
}

impl Pass<'_> {
    fn result(&self) -> Option<bool> {
        self.matcher.root.holds(&|term| self.known[term])
    }

    /// Where no value was found, no test holds, and every negative one does.
    fn close_one(&mut self, term: usize) {
        let negative = matches!(&self.matcher.terms[term], Term::Field { negative: true, .. });
        self.known[term].get_or_insert(negative);
    }

    fn close_all(&mut self) {
        for term in 0..self.known.len() {
            self.close_one(term);
        }
    }
}

impl Watcher for Pass<'_> {
    fn see(&mut self, paths: &[usize], value: Seen<'_>) {
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

    fn close(&mut self, paths: &[usize]) -> bool {
        for &term in paths {
            self.close_one(term);
        }
        self.result().is_some()
    }
}

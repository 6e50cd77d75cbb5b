//! Cost budget of a filter evaluation. The expression counts the costs itself, because the interpreter cannot be
//! interrupted.
//!
//! An expression is rewritten before it runs. Each value that an operation reads or copies in full first passes through
//! `@charge`, which returns it unchanged and subtracts its weight from the budget. The range of a loop passes through
//! `@range`, which also charges the loop's body once for each element. A filter's author cannot call these functions,
//! since their names are not valid CEL identifiers. Once the budget is spent, every further charge fails. The
//! evaluation then fails too, even if an `||` in the expression ignores the error.
//!
//! The cost does not depend on the machine: every evaluation of one event costs the same.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelOptional, CelString};
use cel::common::types::{DYN_TYPE, INT_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use regex::{Regex, RegexBuilder};

/// Budget of one evaluation, in units. A unit takes at most about 50 ns in a release build.
const BUDGET: u64 = 2_000_000;
/// Bytes of text that weigh one unit.
const BYTES_PER_UNIT: u64 = 64;
/// Size classes of compiled patterns: the maximum size in bytes, and the cost of one searched byte, in 1/64 of a budget
/// unit. A larger pattern costs more, since the slowest regex engine does work for each state of the pattern.
const PATTERN_SIZES: [(usize, u64); 3] = [(16 << 10, 16), (128 << 10, 64), (1 << 20, 512)];

const CHARGE: &str = "@charge";
const CONTAINER: &str = "@container";
const RANGE: &str = "@range";
const KEY: &str = "@key";
const ADD: &str = "@add";
const MATCHES: &str = "@matches";

/// CEL environment: the standard library and the functions that charge the budget.
pub(super) static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let mut add = |name: &str, arguments, function| {
        env.add_overload(name, name, arguments, function).expect("CEL names do not start with @");
    };
    add(CHARGE, vec![DYN_TYPE], charge);
    add(CONTAINER, vec![DYN_TYPE], charge_container);
    add(RANGE, vec![DYN_TYPE, INT_TYPE], charge_range);
    add(KEY, vec![DYN_TYPE], check_key);
    add(ADD, vec![DYN_TYPE, DYN_TYPE], add_up);
    add(MATCHES, vec![DYN_TYPE, INT_TYPE], matches);
    Arc::new(env)
});

#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// Cost of one byte that the pattern searches, in 1/64 of a budget unit.
    cost: u64,
}

struct Running {
    left: u64,
    spent: bool,
    patterns: Arc<[Pattern]>,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Runs an evaluation with a fresh budget.
///
/// # Errors
/// An error text if the budget is exceeded.
pub(super) fn within<T>(patterns: &Arc<[Pattern]>, evaluate: impl FnOnce() -> T) -> Result<T, String> {
    /// Guard that clears the thread's budget when an evaluation ends, even by a panic.
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            RUNNING.set(None);
        }
    }
    let _clear = Clear;
    RUNNING.set(Some(Running { left: BUDGET, spent: false, patterns: Arc::clone(patterns) }));
    let value = evaluate();
    let spent = RUNNING.with_borrow(|running| running.as_ref().is_some_and(|running| running.spent));
    if spent {
        Err("the evaluation exceeds its budget (the object is too large for this filter)".to_owned())
    } else {
        Ok(value)
    }
}

/// Subtracts a cost from the budget. Returns an error if the cost exceeds the remaining budget. `weight` gets the
/// remaining budget and returns the cost; it may stop counting once the cost exceeds the budget.
fn take(weight: impl FnOnce(u64) -> u64) -> Result<(), ExecutionError> {
    RUNNING.with_borrow_mut(|running| {
        let Some(running) = running else { return Ok(()) };
        let weight = if running.spent { u64::MAX } else { weight(running.left) };
        if let Some(left) = running.left.checked_sub(weight) {
            running.left = left;
            return Ok(());
        }
        running.spent = true;
        Err(ExecutionError::InternalError("budget exceeded".to_owned()))
    })
}

fn charge<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = arguments.swap_remove(0);
    take(|limit| weigh(&*value, limit))?;
    Ok(value)
}

/// Charges for the right operand of `in` and returns it. A map costs one unit. A list costs as much as reading all its
/// elements.
fn charge_container<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = arguments.swap_remove(0);
    let map = value.downcast_ref::<CelMap<'_>>().is_some();
    take(|limit| if map { 1 } else { weigh(&*value, limit) })?;
    Ok(value)
}

/// Charges for a loop and returns its range. Each element (of a map: each key) costs a copy and one run of the body.
fn charge_range<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let body = arguments.pop().and_then(|body| body.downcast_ref::<CelInt>().map(|body| *body.inner()));
    let body = body.and_then(|body| u64::try_from(body).ok()).unwrap_or(u64::MAX);
    let value = arguments.swap_remove(0);
    take(|limit| {
        let (elements, weight) = match (value.downcast_ref::<CelMap<'_>>(), value.downcast_ref::<CelList<'_>>()) {
            (Some(map), _) => (map.len(), map.keys().map(weigh_key).sum()),
            (None, Some(list)) => (list.len(), weigh(&*value, limit)),
            (None, None) => (0, 1),
        };
        weight.saturating_add(body.saturating_mul(elements as u64))
    })?;
    Ok(value)
}

/// Returns an index (`i` in `list[i]`) unchanged. Rejects a number with a fraction: the interpreter would reject it
/// with an error that has a copy of the whole list.
fn check_key<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = arguments.swap_remove(0);
    match value.downcast_ref::<CelDouble>() {
        Some(number) if number.inner().fract() != 0.0 => {
            Err(ExecutionError::no_such_overload(operators::INDEX, vec!["double".to_owned()]))
        }
        _ => Ok(value),
    }
}

/// Implements `+` and charges for both operands, which are copied. Separate `@charge` calls around the operands would
/// need a deeper stack.
#[expect(clippy::needless_pass_by_value, reason = "signature given by the interpreter")]
fn add_up<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    arguments.iter().try_for_each(|argument| take(|limit| weigh(&**argument, limit)))?;
    let types = || arguments.iter().map(|argument| argument.get_type().name().to_owned()).collect();
    let mismatch = || ExecutionError::no_such_overload(operators::ADD, types());
    let [left, right] = &*arguments else { return Err(mismatch()) };
    let sum = left.as_adder().ok_or_else(mismatch)?.add(&**right);
    match sum {
        Ok(sum) => Ok(CowVal::Owned(sum.into_owned())),
        Err(error @ ExecutionError::Overflow(..)) => Err(error),
        Err(_) => Err(mismatch()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "signature given by the interpreter")]
fn matches<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let failed = |why: &str| ExecutionError::function_error("matches", why);
    let text = arguments.first().and_then(|text| text.downcast_ref::<CelString<'_>>());
    let text = text.ok_or_else(|| failed("not a text"))?.inner();
    let at = arguments.get(1).and_then(|at| usize::try_from(*at.downcast_ref::<CelInt>()?.inner()).ok());
    let patterns = RUNNING.with_borrow(|running| running.as_ref().map(|running| Arc::clone(&running.patterns)));
    let pattern = patterns.as_deref().zip(at).and_then(|(patterns, at)| patterns.get(at));
    let pattern = pattern.ok_or_else(|| failed("no such pattern"))?;
    take(|_| 1 + (text.len() as u64).saturating_mul(pattern.cost) / 64)?;
    Ok(CowVal::owned(CelBool::from(pattern.regex.is_match(text))))
}

/// Returns the cost of reading or copying a value, in units. Counting stops slightly above `limit`.
fn weigh(value: &dyn Val, limit: u64) -> u64 {
    let mut weight = 0_u64;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        weight += 1;
        if weight > limit {
            break;
        }
        if let Some(text) = value.downcast_ref::<CelString<'_>>() {
            weight += text.inner().len() as u64 / BYTES_PER_UNIT;
        } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
            weight += map.keys().map(weigh_key).sum::<u64>();
            rest.extend(map.values().map(AsRef::as_ref));
        } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
            rest.extend(list.iter().map(AsRef::as_ref));
        } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
            weight += bytes.inner().len() as u64 / BYTES_PER_UNIT;
        } else if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
            rest.extend(optional.inner());
        }
    }
    weight
}

fn weigh_key(key: &CelMapKey<'_>) -> u64 {
    match key {
        CelMapKey::String(text) => 1 + text.inner().len() as u64 / BYTES_PER_UNIT,
        _ => 1,
    }
}

/// Rewriter of an expression: inserts the calls that charge the budget.
#[derive(Debug, Default)]
pub(super) struct ChargeInserter {
    pub(super) patterns: Vec<Pattern>,
    /// Accumulator variables of the enclosing loops. They are not wrapped in a charge, because the interpreter
    /// optimizes only the bare variable.
    accumulators: Vec<String>,
}

impl ChargeInserter {
    /// Inserts the charges of a node and of all nodes below it.
    ///
    /// # Errors
    /// The ID of the node whose cost cannot be bounded, and the reason.
    pub(super) fn weave(&mut self, node: &mut IdedExpr) -> Result<(), (u64, String)> {
        match &mut node.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Ok(()),
            Expr::Select(select) => self.weave(&mut select.operand),
            Expr::List(list) => list.elements.iter_mut().try_for_each(|element| self.weave_copied(element)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| self.entry(&mut entry.expr)),
            Expr::Struct(it) => it.entries.iter_mut().try_for_each(|entry| self.entry(&mut entry.expr)),
            Expr::Comprehension(it) => self.comprehension(it),
            Expr::Call(call) => self.call(node.id, call),
        }
    }

    fn weave_copied(&mut self, node: &mut IdedExpr) -> Result<(), (u64, String)> {
        self.weave(node)?;
        self.wrap(node, CHARGE);
        Ok(())
    }

    fn entry(&mut self, entry: &mut EntryExpr) -> Result<(), (u64, String)> {
        match entry {
            EntryExpr::StructField(field) => self.weave_copied(&mut field.value),
            EntryExpr::MapEntry(entry) => {
                self.weave_copied(&mut entry.key)?;
                self.weave_copied(&mut entry.value)
            }
        }
    }

    fn comprehension(&mut self, it: &mut ComprehensionExpr) -> Result<(), (u64, String)> {
        // Cost of one run of the body: twice its operations, which accounts for the inserted charges.
        let body = 2 * [&it.loop_cond, &it.loop_step].into_iter().map(nodes).sum::<i64>() + 4;
        self.weave(&mut it.iter_range)?;
        let body = IdedExpr { id: it.iter_range.id, expr: Expr::Literal(LiteralValue::Int(body.into())) };
        call_on(&mut it.iter_range, RANGE, Some(body));
        self.weave(&mut it.accu_init)?;
        self.accumulators.push(it.accu_var.clone());
        let woven =
            [&mut it.loop_cond, &mut it.loop_step, &mut it.result].into_iter().try_for_each(|part| self.weave(part));
        self.accumulators.pop();
        woven
    }

    fn call(&mut self, id: u64, call: &mut CallExpr) -> Result<(), (u64, String)> {
        if call.func_name == "matches" {
            return self.matches(id, call);
        }
        for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            self.weave(part)?;
        }
        let constant = |node: &IdedExpr| is_constant(node);
        match (call.func_name.as_str(), call.args.as_mut_slice()) {
            // Not charged: these read booleans and return other values unchanged.
            (operators::CONDITIONAL | operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, _) => {}
            // A comparison with a constant reads no further than the constant.
            (operators::EQUALS | operators::NOT_EQUALS, args) if args.iter().any(constant) => {}
            ("startsWith" | "endsWith", args) if args.iter().all(constant) => {}
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [_, index]) => self.wrap(index, KEY),
            // Not charged: the interpreter adds to an accumulator in place.
            (operators::ADD, [left, _]) if self.is_accumulator(left) => {}
            (operators::ADD, [_, _]) => ADD.clone_into(&mut call.func_name),
            (operators::IN, [_, list]) if is_constant_list(list) => {}
            (operators::IN, [value, container]) => {
                self.wrap(value, CHARGE);
                self.wrap(container, CONTAINER);
            }
            (_, args) => {
                call.target.as_deref_mut().into_iter().chain(args).for_each(|part| self.wrap(part, CHARGE));
            }
        }
        Ok(())
    }

    /// Compiles the pattern of a call of `matches` together with the filter, and makes the call use the compiled
    /// pattern. Otherwise the pattern would be compiled again for each event. The pattern must be a literal, since a
    /// pattern taken from an object could take unbounded time.
    fn matches(&mut self, id: u64, call: &mut CallExpr) -> Result<(), (u64, String)> {
        let mut parts: Vec<_> =
            call.target.take().map(|target| *target).into_iter().chain(call.args.drain(..)).collect();
        let (Some(pattern), Some(mut text), None) = (parts.pop(), parts.pop(), parts.pop()) else {
            return Err((id, "matches takes a text and a pattern".to_owned()));
        };
        let Expr::Literal(LiteralValue::String(written)) = &pattern.expr else {
            return Err((pattern.id, "the pattern of matches must be a text in quotes".to_owned()));
        };
        let compiled = compile_pattern(written.inner()).map_err(|problem| (pattern.id, problem))?;
        let at = i64::try_from(self.patterns.len()).unwrap_or(i64::MAX);
        self.patterns.push(compiled);
        self.weave(&mut text)?;
        let at = IdedExpr { id: pattern.id, expr: Expr::Literal(LiteralValue::Int(at.into())) };
        *call = CallExpr { func_name: MATCHES.to_owned(), target: None, args: vec![text, at] };
        Ok(())
    }

    /// Wraps a node in a call of `function`, unless the node's value is known to be small.
    fn wrap(&self, node: &mut IdedExpr, function: &str) {
        let may_be_large = match &node.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => false,
            Expr::Ident(_) => !self.is_accumulator(node),
            Expr::Select(select) => !select.test,
            Expr::Comprehension(_) => true,
            Expr::Call(call) => !is_small(&call.func_name),
        };
        if may_be_large || function == KEY && !is_small_index(node) {
            call_on(node, function, None);
        }
    }

    fn is_accumulator(&self, node: &IdedExpr) -> bool {
        matches!(&node.expr, Expr::Ident(name) if self.accumulators.contains(name))
    }
}

/// Replaces a node by a call of `function`, with the node as first argument and `more` as second.
fn call_on(node: &mut IdedExpr, function: &str, more: Option<IdedExpr>) {
    let inner = std::mem::take(node);
    let id = inner.id;
    let args = std::iter::once(inner).chain(more).collect();
    *node = IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) };
}

/// Returns whether an index is a literal string or integer, and so needs no check at run time.
fn is_small_index(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Literal(LiteralValue::String(_) | LiteralValue::Int(_) | LiteralValue::UInt(_)))
}

/// Returns whether the result of a function needs no charge, because it is small or was already charged.
fn is_small(function: &str) -> bool {
    matches!(
        function,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE
            | "startsWith"
            | "endsWith"
            | "contains"
            | "size"
            | CHARGE
            | ADD
            | MATCHES
    )
}

fn is_constant(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Literal(_))
}

fn is_constant_list(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::List(list) if list.elements.iter().all(is_constant))
}

fn parts(node: &IdedExpr) -> Vec<&IdedExpr> {
    fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
        match entry {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        }
    }
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|it| entry(&it.expr)).collect(),
        Expr::Struct(it) => it.entries.iter().flat_map(|it| entry(&it.expr)).collect(),
        Expr::Comprehension(it) => vec![&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result],
    }
}

/// Returns the number of operations in an expression; each loop body counts once.
fn nodes(node: &IdedExpr) -> i64 {
    1 + parts(node).into_iter().map(nodes).sum::<i64>()
}

/// Returns the nesting depth of an expression. In a rewritten expression, the inserted calls are levels too.
pub(super) fn depth(node: &IdedExpr) -> usize {
    parts(node).into_iter().map(|part| 1 + depth(part)).max().unwrap_or(0)
}

fn compile_pattern(text: &str) -> Result<Pattern, String> {
    let mut problem = String::new();
    for (size, cost) in PATTERN_SIZES {
        match RegexBuilder::new(text).size_limit(size).build() {
            Ok(regex) => return Ok(Pattern { regex, cost }),
            Err(error) => {
                // The last line has the error, those before quote the pattern.
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                let large = matches!(error, regex::Error::CompiledTooBig(_));
                problem = if large { "the pattern of matches is too large".to_owned() } else { last };
                if !large {
                    break;
                }
            }
        }
    }
    Err(format!("not a pattern: {problem}"))
}

//! Filter of a sink: a CEL expression evaluated for each notification.
//!
//! The expression is untrusted, so its length, nesting and nested loops are bounded at compile time. The interpreter
//! recurses on the caller's stack, and an overflow would abort the process. The cost of an evaluation is bounded by a
//! budget whose charges are inserted into the expression ([`budget`]).

use std::panic::{AssertUnwindSafe, catch_unwind};

use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::common::types::CelBool;
use cel::{Context, ExecutionError, Program, Value};

use super::EventType;
use super::redact::Redaction;
use crate::invalid_filter::InvalidFilter;
use informer_hub_types::{Notification, Object};

mod budget;
mod syntax;
mod value;

/// Maximum bytes of an expression.
const MAX_LENGTH: usize = 4096;
/// Maximum nesting of brackets; the parser's stack is large enough for it.
const MAX_BRACKETS: usize = 24;
/// Maximum nesting of operations, for which an actor's stack of 2 MiB suffices.
const MAX_DEPTH: usize = 32;
/// Maximum nesting of `exists`, `all`, `map` and `filter`.
const MAX_LOOPS: usize = 2;
/// Variables of an expression.
const VARIABLES: [&str; 4] = ["object", "oldObject", "cluster", "event"];
/// Type names of CEL.
const TYPES: [&str; 10] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];
/// Stack of the parser thread. The parser needs up to 200 KiB for each bracket.
const PARSER_STACK: usize = 32 * 1024 * 1024;

/// Compiled expression over `object`, `oldObject`, `cluster` {`name`, `labels`} and `event` {`type`, `initial`,
/// `tombstone`}.
///
/// `oldObject` is null except for updates, `object` is null for `synced`. Both are redacted.
pub struct Filter {
    text: String,
    /// Expression in which each operation charges its cost to the budget.
    expression: IdedExpr,
    patterns: Arc<[budget::Pattern]>,
    wants: NeededObjects,
}

/// Whether the expression reads `object`, and whether it reads `oldObject`. An object that it does not read is not
/// decoded.
#[derive(Clone, Copy, Debug)]
struct NeededObjects {
    object: bool,
    old_object: bool,
}

impl Filter {
    /// Compiles an expression. Takes a few milliseconds and a temporary thread.
    ///
    /// # Errors
    /// [`InvalidFilter`] if it does not parse, uses an unknown name, or exceeds a bound.
    pub fn compile(text: &str) -> Result<Self, InvalidFilter> {
        if text.len() > MAX_LENGTH {
            let problem = format!("the expression has {} bytes; at most {MAX_LENGTH} are allowed", text.len());
            return Err(InvalidFilter { problem, line: 1, column: 1 });
        }
        check_brackets(text)?;
        let program = parse(text)?;
        Check { program: &program, scope: Vec::new(), loops: 0 }.node(program.expression(), 0)?;
        let references = program.references();
        let wants = NeededObjects {
            object: references.has_variable("object"),
            old_object: references.has_variable("oldObject"),
        };
        let mut expression = program.expression().clone();
        let mut weaver = budget::ChargeInserter::default();
        weaver.weave(&mut expression).map_err(|(id, problem)| wrong(&program, id, problem))?;
        if budget::depth(&expression) > MAX_DEPTH {
            let problem = format!("more than {MAX_DEPTH} nested operations");
            return Err(wrong(&program, expression.id, problem));
        }
        Ok(Self { text: text.to_owned(), expression, patterns: weaver.patterns.into(), wants })
    }

    /// Returns whether the expression is true for a notification.
    ///
    /// Cost: decodes the objects that the expression reads, plus at most the evaluation's budget.
    ///
    /// # Errors
    /// The reason for which the evaluation failed, without values of the object.
    pub fn passes<K>(&self, notification: &Notification<K>, redaction: &Redaction) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| {
            let variables = self.variables(notification, redaction)?;
            self.evaluate(&variables)
        }))
        .unwrap_or_else(|_| Err("the evaluation panicked".to_owned()))
    }

    /// Builds the values of [`VARIABLES`]; objects that the expression does not read are null.
    fn variables<K>(
        &self,
        notification: &Notification<K>,
        redaction: &Redaction,
    ) -> Result<[serde_json::Value; VARIABLES.len()], String> {
        let origin = notification.origin();
        let (initial, tombstone, old) = match notification {
            Notification::Added { initial, .. } => (*initial, false, None),
            Notification::Updated { old, .. } => (false, false, Some(old)),
            Notification::Deleted { tombstone, .. } => (false, *tombstone, None),
            Notification::Synced(_) => (false, false, None),
        };
        let event_type = EventType::of(notification).as_str();
        Ok([
            decode(notification.object().filter(|_| self.wants.object), redaction)?,
            decode(old.filter(|_| self.wants.old_object), redaction)?,
            serde_json::json!({ "name": origin.cluster, "labels": origin.cluster_labels }),
            serde_json::json!({ "type": event_type, "initial": initial, "tombstone": tombstone }),
        ])
    }

    fn evaluate(&self, variables: &[serde_json::Value; VARIABLES.len()]) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&budget::ENVIRONMENT));
        for (name, value) in VARIABLES.into_iter().zip(variables) {
            context.add_variable_as_val(name, value::to_cel(value));
        }
        budget::within(&self.patterns, || match Value::resolve_val(&self.expression, &context) {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(passes) => Ok(*passes.inner()),
                None => Err("the result is not true or false".to_owned()),
            },
            Err(error) => Err(describe(&error)),
        })?
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Filter").field(&self.text).finish()
    }
}

fn decode<K>(object: Option<&Object<K>>, redaction: &Redaction) -> Result<serde_json::Value, String> {
    let Some(object) = object else { return Ok(serde_json::Value::Null) };
    let mut value = object.typed().map_err(|_| "cannot decode the object".to_owned())?;
    redaction.apply(&object.origin().resource.gvr, &mut value);
    Ok(value)
}

/// Returns a text for an evaluation error. Its own `Display` prints values of the object, which do not belong in a log.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(_)
        | ExecutionError::NoSuchOverload(_)
        | ExecutionError::UndeclaredReference(_)
        | ExecutionError::InvalidArgumentCount { .. }
        | ExecutionError::UnexpectedType { .. } => uncapitalised(&error.to_string()),
        ExecutionError::FunctionError { function, .. } => format!("function {function} failed"),
        ExecutionError::NotSupportedAsMethod { method, .. } => format!("the value has no method {method}"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::Overflow(operator, ..) => format!("overflow in {operator}"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        _ => "values do not fit the operation".to_owned(),
    }
}

/// Lowercases only the first character, so that names of fields and functions in the text stay unchanged.
fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Parses on a thread whose stack is sized for [`MAX_BRACKETS`].
fn parse(text: &str) -> Result<Program, InvalidFilter> {
    let failed = |problem: &str| InvalidFilter { problem: problem.to_owned(), line: 1, column: 1 };
    let parsed = std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("filter-parser".to_owned()).stack_size(PARSER_STACK);
        let running = parser.spawn_scoped(scope, || Program::compile(text));
        let running = running.map_err(|_| failed("cannot start a thread to parse the expression"))?;
        running.join().map_err(|_| failed("the parser panicked"))
    })?;
    parsed.map_err(|errors| {
        let place = |at: isize| usize::try_from(at).unwrap_or(1).max(1);
        // The parser reports follow-up errors at the start of the text: prefer the syntax error.
        let is_syntax = |error: &&cel::ParseError| error.msg.starts_with("Syntax error");
        let first = errors.errors.iter().find(is_syntax).or(errors.errors.first());
        first.map_or_else(
            || syntax::explain(text, "", 1, 1),
            |first| syntax::explain(text, &first.msg, place(first.pos.0), place(first.pos.1)),
        )
    })
}

/// Rejects brackets nested too deep for the parser's stack. Brackets in strings count too, which avoids a second lexer.
fn check_brackets(text: &str) -> Result<(), InvalidFilter> {
    let (mut depth, mut line, mut column) = (0_usize, 1, 0);
    for c in text.chars() {
        column += 1;
        match c {
            '\n' => (line, column) = (line + 1, 0),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Err(InvalidFilter { problem: format!("more than {MAX_BRACKETS} nested brackets"), line, column });
        }
    }
    Ok(())
}

/// Check of a parsed expression for recursion depth, nested loops and unknown names.
struct Check<'p> {
    program: &'p Program,
    /// Variables of the enclosing loops.
    scope: Vec<&'p str>,
    loops: usize,
}

impl<'p> Check<'p> {
    fn node(&mut self, node: &'p IdedExpr, depth: usize) -> Result<(), InvalidFilter> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(node, format!("more than {MAX_DEPTH} nested operations")));
        }
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(node, name),
            Expr::Select(select) => self.node(&select.operand, depth + 1),
            Expr::List(list) => list.elements.iter().try_for_each(|child| self.node(child, depth + 1)),
            Expr::Call(call) => {
                call.target.as_deref().into_iter().chain(&call.args).try_for_each(|child| self.node(child, depth + 1))
            }
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr, depth + 1)),
            Expr::Struct(it) => it.entries.iter().try_for_each(|entry| self.entry(&entry.expr, depth + 1)),
            Expr::Comprehension(it) => {
                self.node(&it.iter_range, depth + 1)?;
                if self.loops == MAX_LOOPS {
                    let problem = format!("more than {MAX_LOOPS} nested calls of exists, all, map and filter");
                    return Err(self.wrong(node, problem));
                }
                let outer = self.scope.len();
                self.scope.extend([it.iter_var.as_str(), it.accu_var.as_str()]);
                self.scope.extend(it.iter_var2.as_deref());
                self.loops += 1;
                let mut parts = [&it.accu_init, &it.loop_cond, &it.loop_step, &it.result].into_iter();
                let checked = parts.try_for_each(|child| self.node(child, depth + 1));
                self.loops -= 1;
                self.scope.truncate(outer);
                checked
            }
        }
    }

    fn entry(&mut self, entry: &'p EntryExpr, depth: usize) -> Result<(), InvalidFilter> {
        match entry {
            EntryExpr::StructField(field) => self.node(&field.value, depth),
            EntryExpr::MapEntry(entry) => {
                self.node(&entry.key, depth)?;
                self.node(&entry.value, depth)
            }
        }
    }

    fn name(&self, node: &IdedExpr, name: &str) -> Result<(), InvalidFilter> {
        if VARIABLES.contains(&name) || TYPES.contains(&name) || self.scope.contains(&name) {
            return Ok(());
        }
        let known = VARIABLES.join(", ");
        Err(self.wrong(node, format!("unknown variable {name:?} (there are {known})")))
    }

    fn wrong(&self, node: &IdedExpr, problem: String) -> InvalidFilter {
        wrong(self.program, node.id, problem)
    }
}

/// Returns a compile error with the text `problem`, at the line and column of a node.
fn wrong(program: &Program, node: u64, problem: String) -> InvalidFilter {
    let source = program.source_info();
    let at = source.offset_for(node).map_or(0, |(start, _)| start as usize);
    let before: Vec<char> = source.source.chars().take(at).collect();
    let line = before.iter().filter(|c| **c == '\n').count() + 1;
    let column = before.iter().rev().take_while(|c| **c != '\n').count() + 1;
    InvalidFilter { problem, line, column }
}

#[cfg(test)]
mod tests;

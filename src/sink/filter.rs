//! A sink's `filter`: a CEL expression that decides about one notification.
//!
//! The expression comes from outside, so it is bounded before it is run: in length, in nesting (the interpreter
//! recurses on the caller's stack, and an overflow would abort the process) and in loops within loops (nothing can
//! interrupt an evaluation).

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, ExecutionError, Program, Value};

use super::event::EventType;
use super::redact;
use crate::types::{Notification, Object};

/// Bytes of an expression at most.
const MAX_LENGTH: usize = 4096;
/// Brackets within brackets at most: what the parser's stack is made for.
const MAX_BRACKETS: usize = 24;
/// Depth of the parsed expression at most: what an actor's stack (2 MiB) takes in every build.
const MAX_DEPTH: usize = 32;
/// `exists`, `all`, `map` and `filter` within one another at most.
const MAX_LOOPS: usize = 2;
/// What an expression can speak of.
const VARIABLES: [&str; 4] = ["object", "oldObject", "cluster", "event"];
/// Names that CEL itself gives a meaning to.
const TYPES: [&str; 10] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];
/// The parser takes up to 200 KiB of stack for each bracket; it has a thread of its own for a moment.
const PARSER_STACK: usize = 32 * 1024 * 1024;

/// A compiled expression over `object`, `oldObject`, `cluster` {`name`, `labels`} and `event` {`type`, `initial`,
/// `tombstone`}.
///
/// `oldObject` is null but for an update, `object` is null for `synced`. Secrets are redacted, as on the wire.
pub struct Filter {
    text: String,
    program: Program,
    wants: Wants,
}

/// Which objects the expression reads: the others are not decoded.
#[derive(Clone, Copy, Debug)]
struct Wants {
    object: bool,
    old_object: bool,
}

/// An expression that is not to be used; its author can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("filter is not usable: {problem} at line {line}, column {column}")]
pub struct InvalidFilter {
    /// What is wrong.
    pub problem: String,
    /// Line of the mistake, from 1.
    pub line: usize,
    /// Column of the mistake, from 1.
    pub column: usize,
}

impl Filter {
    /// Compiles an expression. Takes a few milliseconds and, for that time, a thread.
    ///
    /// # Errors
    /// [`InvalidFilter`] when it does not parse, names something that is not there, or is over a bound.
    pub fn compile(text: &str) -> Result<Self, InvalidFilter> {
        if text.len() > MAX_LENGTH {
            let problem = format!("it has {} bytes, of at most {MAX_LENGTH},", text.len());
            return Err(InvalidFilter { problem, line: 1, column: 1 });
        }
        check_brackets(text)?;
        let program = parse(text)?;
        Check { program: &program, scope: Vec::new(), loops: 0 }.node(program.expression(), 0)?;
        let references = program.references();
        let wants =
            Wants { object: references.has_variable("object"), old_object: references.has_variable("oldObject") };
        Ok(Self { text: text.to_owned(), program, wants })
    }

    /// Whether the notification passes.
    ///
    /// # Errors
    /// Why that could not be told, in words that hold nothing of the object's values.
    pub fn passes<K>(&self, notification: &Notification<K>) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| self.evaluate(notification)))
            .unwrap_or_else(|_| Err("the evaluation panicked".to_owned()))
    }

    fn evaluate<K>(&self, notification: &Notification<K>) -> Result<bool, String> {
        let mut context = Context::default();
        let origin = notification.origin();
        let (initial, tombstone, old) = match notification {
            Notification::Added { initial, .. } => (*initial, false, None),
            Notification::Updated { old, .. } => (false, false, Some(old)),
            Notification::Deleted { tombstone, .. } => (false, *tombstone, None),
            Notification::Synced(_) => (false, false, None),
        };
        let mut set = |name: &str, value: serde_json::Value| {
            context.add_variable(name, value).map_err(|_| format!("{name} does not convert"))
        };
        set("cluster", serde_json::json!({ "name": origin.cluster, "labels": origin.cluster_labels }))?;
        let event_type = EventType::of(notification).as_str();
        set("event", serde_json::json!({ "type": event_type, "initial": initial, "tombstone": tombstone }))?;
        if self.wants.object {
            set("object", decode(notification.object())?)?;
        }
        if self.wants.old_object {
            set("oldObject", decode(old)?)?;
        }
        match self.program.execute(&context) {
            Ok(Value::Bool(passes)) => Ok(passes),
            Ok(_) => Err("the result is not true or false".to_owned()),
            Err(error) => Err(describe(&error)),
        }
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Filter").field(&self.text).finish()
    }
}

fn decode<K>(object: Option<&Object<K>>) -> Result<serde_json::Value, String> {
    let Some(object) = object else { return Ok(serde_json::Value::Null) };
    let mut value = object.typed().map_err(|_| "the object does not decode".to_owned())?;
    if redact::is_secret(&object.origin().resource.gvr) {
        redact::redact(&mut value);
    }
    Ok(value)
}

/// The error in words; its own `Display` prints values of the object, which have no place in a log.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(_)
        | ExecutionError::NoSuchOverload(_)
        | ExecutionError::UndeclaredReference(_)
        | ExecutionError::InvalidArgumentCount { .. }
        | ExecutionError::UnexpectedType { .. } => error.to_string().to_lowercase(),
        ExecutionError::FunctionError { function, .. } => format!("function {function} failed"),
        ExecutionError::NotSupportedAsMethod { method, .. } => format!("no method {method} on such a value"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::Overflow(operator, ..) => format!("overflow in {operator}"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        _ => "values do not fit the operation".to_owned(),
    }
}

/// Parses on a thread with a stack that is large enough for [`MAX_BRACKETS`].
fn parse(text: &str) -> Result<Program, InvalidFilter> {
    let failed = |problem: &str| InvalidFilter { problem: problem.to_owned(), line: 1, column: 1 };
    let parsed = std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("filter-parser".to_owned()).stack_size(PARSER_STACK);
        let running = parser.spawn_scoped(scope, || Program::compile(text));
        running.map_err(|_| failed("no thread to parse it on"))?.join().map_err(|_| failed("the parser panicked"))
    })?;
    parsed.map_err(|errors| {
        let Some(first) = errors.errors.first() else { return failed("it does not parse") };
        let place = |at: isize| usize::try_from(at).unwrap_or(1).max(1);
        let problem = first.msg.trim_start_matches("Syntax error: ").to_lowercase();
        InvalidFilter { problem, line: place(first.pos.0), column: place(first.pos.1) }
    })
}

/// Refuses brackets nested deeper than the parser's stack. Brackets in strings count too: harmless, and simpler
/// than a second lexer that would have to agree with the first.
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

/// Refuses what would recurse too deep or loop too long, and names that stand for nothing.
struct Check<'p> {
    program: &'p Program,
    /// Variables of the loops around.
    scope: Vec<&'p str>,
    loops: usize,
}

impl<'p> Check<'p> {
    fn node(&mut self, node: &'p IdedExpr, depth: usize) -> Result<(), InvalidFilter> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(node, format!("more than {MAX_DEPTH} operations within one another")));
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
                    let problem = format!("more than {MAX_LOOPS} of exists, all, map and filter within one another");
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
        let source = self.program.source_info();
        let at = source.offset_for(node.id).map_or(0, |(start, _)| start as usize);
        let before: Vec<char> = source.source.chars().take(at).collect();
        let line = before.iter().filter(|c| **c == '\n').count() + 1;
        let column = before.iter().rev().take_while(|c| **c != '\n').count() + 1;
        InvalidFilter { problem, line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::{added, pod, secret, updated};
    use super::*;

    fn passes(filter: &str, notification: &Notification) -> Result<bool, String> {
        Filter::compile(filter).unwrap().passes(notification)
    }

    #[test]
    fn a_filter_sees_object_old_object_cluster_and_event() {
        let update = updated(pod("web", "1", "Pending"), pod("web", "2", "Failed"));
        for yes in [
            "object.status.phase == 'Failed'",
            "oldObject.status.phase != object.status.phase",
            "cluster.name == 'prod-eu' && cluster.labels.tier == 'prod'",
            "event.type == 'updated' && !event.initial && !event.tombstone",
            "object.spec.containers.exists(c, c.image.startsWith('web:'))",
            "!has(object.metadata.annotations)",
        ] {
            assert_eq!(passes(yes, &update), Ok(true), "{yes}");
        }
        assert_eq!(passes("object.status.phase == 'Running'", &update), Ok(false));
        assert_eq!(passes("oldObject == null && event.initial", &added(pod("web", "1", "Failed"), true)), Ok(true));
    }

    #[test]
    fn an_evaluation_error_says_why_without_values() {
        let add = added(pod("web", "1", "hunter2"), false);
        let error = passes("object.status.nothing == 1", &add).unwrap_err();
        assert!(error.contains("nothing"), "{error}");
        for filter in ["object.status.phase / 2 == 1", "object.status.phase > 1", "object.status.phase", "1 / 0 == 1"] {
            let error = passes(filter, &add).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_filter_sees_a_secret_redacted() {
        assert_eq!(passes("object.data.password == '<redacted>'", &added(secret("1"), false)), Ok(true));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let error = Filter::compile("object.status.phase ==\n 'Failed' &&").unwrap_err();
        assert_eq!((error.line, error.column), (2, 13), "{error}");
        let error = Filter::compile("event.initial ||\n  pod.status == 1").unwrap_err();
        assert!(error.problem.contains("unknown variable \"pod\""), "{error}");
        assert_eq!((error.line, error.column), (2, 3), "{error}");
        assert!(Filter::compile("[1].exists(c, c == 1) && c == 1").is_err());
        assert!(Filter::compile("type(object) == map").is_ok());
        assert!(Filter::compile("").is_err());
    }

    #[test]
    fn hostile_expressions_are_refused_or_run_on_a_small_stack() {
        let mut hostile = vec!["a".repeat(MAX_LENGTH + 1)];
        for n in [MAX_BRACKETS, MAX_DEPTH, 100, 1000] {
            hostile.extend([
                format!("{}1{}", "(".repeat(n), ")".repeat(n)),
                format!("{}1{}", "[".repeat(n), "]".repeat(n)),
                format!("{}1{}", "{1:".repeat(n), "}".repeat(n)),
                format!("{}1{}", "size(".repeat(n), ")".repeat(n)),
                format!("{}1", "true?1:".repeat(n)),
                format!("{}true", "!".repeat(n)),
                format!("1{} == 1", "+1".repeat(n)),
                format!("true{}", " && true".repeat(n)),
                format!("object{}", "[0]".repeat(n)),
                format!("object{}", ".a".repeat(n)),
                format!("object{}", ".a()".repeat(n)),
            ]);
        }
        let inside = (0..20).fold("true".to_owned(), |inside, i| format!("[1].all(x{i}, {inside})"));
        hostile.push(inside);
        // An actor's stack, less what the actor itself may have used.
        let thread = std::thread::Builder::new().stack_size(3 * 512 * 1024).spawn(move || {
            let add = added(pod("web", "1", "Failed"), false);
            let compiled = hostile.iter().filter_map(|text| Filter::compile(text).ok());
            compiled.map(|filter| filter.passes(&add)).filter(Result::is_err).count()
        });
        assert!(thread.unwrap().join().unwrap() > 0);
    }

    #[test]
    fn loops_nest_twice_and_no_deeper() {
        assert!(Filter::compile("[1].all(x, [2].all(y, x < y))").is_ok());
        assert!(Filter::compile("[1].all(x, [2].all(y, [3].all(z, x < y)))").is_err());
    }
}

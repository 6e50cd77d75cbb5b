//! Messages rendered by a Jinja template.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

/// Maximum instructions of the template engine for one message.
const FUEL: u64 = 200_000;
/// Maximum bytes of a message.
const MAX_OUTPUT: usize = 1 << 20;
/// Maximum bytes of a template.
const MAX_LENGTH: usize = 256 << 10;
/// Maximum depth of nested macro calls.
const MAX_RECURSION: usize = 32;
const NAME: &str = "template";

/// Compiled template over `id`, `type`, `time`, `cluster`, `clusterLabels`, `resource`, `namespace`, `name`, `uid`,
/// `resourceVersion`, `initial`, `tombstone`, `object` and `oldObject`.
///
/// If the message is JSON, `{{ … }}` writes JSON: a string includes its quotes. Undefined values are an error. Work and
/// length of a message are bounded.
#[derive(Debug)]
pub struct Template {
    engine: Environment<'static>,
    content_type: String,
}

/// Compile error of a template, to be fixed by its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot compile template: {problem} at line {line}")]
pub struct InvalidTemplate {
    /// Description of the error.
    pub problem: String,
    /// Line of the error, from 1.
    pub line: usize,
}

impl Template {
    /// Compiles a template for messages of this media type.
    ///
    /// # Errors
    /// [`InvalidTemplate`] if it does not parse or is too long.
    pub fn compile(text: &str, content_type: &str) -> Result<Self, InvalidTemplate> {
        if text.len() > MAX_LENGTH {
            let problem = format!("{} bytes exceed the limit of {MAX_LENGTH} bytes", text.len());
            return Err(InvalidTemplate { problem, line: 1 });
        }
        let escape = if is_json(content_type) { AutoEscape::Json } else { AutoEscape::None };
        let mut engine = Environment::new();
        engine.set_auto_escape_callback(move |_| escape.clone());
        engine.set_undefined_behavior(UndefinedBehavior::Strict);
        engine.set_fuel(Some(FUEL));
        engine.set_recursion_limit(MAX_RECURSION);
        engine.add_template_owned(NAME, text.to_owned()).map_err(|error| InvalidTemplate {
            problem: error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
            line: error.line().unwrap_or(1),
        })?;
        Ok(Self { engine, content_type: content_type.to_owned() })
    }

    /// Returns the media type of the messages.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// Renders the message of an event given as plain JSON. A panic of the engine, e.g. an arithmetic overflow in a debug
    /// build, is returned as an error.
    pub(super) fn render(&self, event: &str) -> Result<String, String> {
        catch_unwind(AssertUnwindSafe(|| self.message(event)))
            .unwrap_or_else(|_| Err("the template panicked".to_owned()))
    }

    fn message(&self, event: &str) -> Result<String, String> {
        let event: serde_json::Value = serde_json::from_str(event).map_err(|error| error.to_string())?;
        let template = self.engine.get_template(NAME).map_err(|error| describe(&error))?;
        let mut out = Bounded(Vec::new());
        template.render_captured_to(Serde(&event), &mut out).map_err(|error| describe(&error))?;
        let text = String::from_utf8(out.0).map_err(|_| "the template's output is not UTF-8".to_owned())?;
        if is_json(&self.content_type)
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text)
        {
            return Err(format!(
                "the template's output is not JSON (line {}, column {})",
                error.line(),
                error.column()
            ));
        }
        Ok(text)
    }
}

/// Describes an error and its line, without values of the object, which do not belong in a log.
fn describe(error: &minijinja::Error) -> String {
    let place = error.line().map(|line| format!(" at line {line} of the template")).unwrap_or_default();
    match error.kind() {
        ErrorKind::OutOfFuel => "the template exceeds its work limit".to_owned(),
        ErrorKind::WriteFailure => format!("the template's output exceeds {MAX_OUTPUT} bytes"),
        kind => format!("{kind}{place}"),
    }
}

fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.ends_with("/json") || media.ends_with("+json")
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"type":"added","name":"we\"b\n</script>","cluster":"c","labels":{"a":"b"},
        "object":{"n":3,"list":[1,2],"big":"hunter2"},"oldObject":null}"#;

    fn json(template: &str) -> Result<serde_json::Value, String> {
        let text = Template::compile(template, "application/json").unwrap().render(EVENT)?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn json_template_writes_values_as_json() {
        let found = json(
            r#"{"text": {{ "pod " ~ name }}, "n": {{ object.n }}, "all": {{ object.list }}, "old": {{ oldObject }}}"#,
        );
        let expected = serde_json::json!({"text": "pod we\"b\n</script>", "n": 3, "all": [1, 2], "old": null});
        assert_eq!(found, Ok(expected));
        let found = json("[{% for i in object.list %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}]");
        assert_eq!(found, Ok(serde_json::json!([1, 2])));
    }

    #[test]
    fn text_template_writes_values_unescaped() {
        let template = Template::compile("{{ type }} {{ cluster }}/{{ name }}", "text/plain; charset=utf-8").unwrap();
        assert_eq!(template.render(EVENT).unwrap(), "added c/we\"b\n</script>");
    }

    #[test]
    fn undefined_value_is_an_error_without_values() {
        for template in ["{{ object.nothing }}", "{{ nothing }}", "\n{{ object.big + 1 }}", "{{ object.big.x.y }}"] {
            let error = json(template).unwrap_err();
            assert!(!error.contains("hunter2") && error.contains("line"), "{error}");
        }
        assert_eq!(json("{{ object.nothing | default('none') }}"), Ok("none".into()));
        let error = json(r#"{"text": "{{ name }}"}"#).unwrap_err();
        assert!(error.contains("not JSON") && !error.contains("we"), "{error}");
    }

    #[test]
    fn template_work_and_length_are_bounded() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert!(json(loops).unwrap_err().contains("work limit"));
        let long = "{% for a in range(9999) %}{{ object.big }}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}";
        assert!(json(long).unwrap_err().contains("bytes"));
        let endless = "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}";
        assert!(json(endless).is_err());
    }

    #[test]
    fn template_error_has_its_line() {
        let error = Template::compile("a\n{{ b", "text/plain").unwrap_err();
        assert_eq!(error.line, 2, "{error}");
        assert!(Template::compile("{% nonsense %}", "text/plain").is_err());
        assert!(Template::compile(&"a".repeat(MAX_LENGTH + 1), "text/plain").is_err());
    }
}

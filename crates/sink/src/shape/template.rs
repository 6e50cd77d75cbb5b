//! A message's text by a template in the language of Jinja.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

/// Instructions of one rendering at most.
const FUEL: u64 = 200_000;
/// Bytes of a message at most.
const MAX_OUTPUT: usize = 1 << 20;
/// Bytes of a template at most.
const MAX_LENGTH: usize = 256 << 10;
/// Macros within one another at most.
const MAX_RECURSION: usize = 32;
const NAME: &str = "template";

/// A compiled template over `id`, `type`, `time`, `cluster`, `clusterLabels`, `resource`, `namespace`, `name`, `uid`,
/// `resourceVersion`, `initial`, `tombstone`, `object` and `oldObject`.
///
/// Where the message is JSON, `{{ … }}` writes JSON: a text comes with its quotes. What is not defined is an error.
/// Work and length of a message are bounded.
#[derive(Debug)]
pub struct Template {
    engine: Environment<'static>,
    content_type: String,
}

/// A template that is not to be used; its author can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template is not usable: {problem} at line {line}")]
pub struct InvalidTemplate {
    /// What is wrong.
    pub problem: String,
    /// Line of the mistake, from 1.
    pub line: usize,
}

impl Template {
    /// Compiles a template for messages of this media type.
    ///
    /// # Errors
    /// [`InvalidTemplate`] when it does not parse or is too long.
    pub fn compile(text: &str, content_type: &str) -> Result<Self, InvalidTemplate> {
        if text.len() > MAX_LENGTH {
            let problem = format!("it has {} bytes, of at most {MAX_LENGTH},", text.len());
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

    /// The media type of its messages.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The message of an event in its plain form. A panic of the engine is an error like any other: arithmetic that goes
    /// over, where that is checked.
    pub(super) fn render(&self, event: &str) -> Result<String, String> {
        catch_unwind(AssertUnwindSafe(|| self.message(event)))
            .unwrap_or_else(|_| Err("the template panicked".to_owned()))
    }

    fn message(&self, event: &str) -> Result<String, String> {
        let event: serde_json::Value = serde_json::from_str(event).map_err(|error| error.to_string())?;
        let template = self.engine.get_template(NAME).map_err(|error| describe(&error))?;
        let mut out = Bounded(Vec::new());
        template.render_captured_to(Serde(&event), &mut out).map_err(|error| describe(&error))?;
        let text = String::from_utf8(out.0).map_err(|_| "the template's text is not UTF-8".to_owned())?;
        if is_json(&self.content_type)
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text)
        {
            return Err(format!(
                "what the template wrote is not JSON (line {}, column {})",
                error.line(),
                error.column()
            ));
        }
        Ok(text)
    }
}

/// What went wrong, and where; values of the object have no place in a log.
fn describe(error: &minijinja::Error) -> String {
    let place = error.line().map(|line| format!(" at line {line} of the template")).unwrap_or_default();
    match error.kind() {
        ErrorKind::OutOfFuel => "the template does more work than it may".to_owned(),
        ErrorKind::WriteFailure => format!("the template's text has more than {MAX_OUTPUT} bytes"),
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
    fn values_are_written_as_json_where_the_message_is_json() {
        let found = json(
            r#"{"text": {{ "pod " ~ name }}, "n": {{ object.n }}, "all": {{ object.list }}, "old": {{ oldObject }}}"#,
        );
        let wanted = serde_json::json!({"text": "pod we\"b\n</script>", "n": 3, "all": [1, 2], "old": null});
        assert_eq!(found, Ok(wanted));
        let found = json("[{% for i in object.list %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}]");
        assert_eq!(found, Ok(serde_json::json!([1, 2])));
    }

    #[test]
    fn a_text_is_written_as_it_is() {
        let template = Template::compile("{{ type }} {{ cluster }}/{{ name }}", "text/plain; charset=utf-8").unwrap();
        assert_eq!(template.render(EVENT).unwrap(), "added c/we\"b\n</script>");
    }

    #[test]
    fn what_is_not_defined_is_an_error_that_shows_no_value() {
        for template in ["{{ object.nothing }}", "{{ nothing }}", "\n{{ object.big + 1 }}", "{{ object.big.x.y }}"] {
            let error = json(template).unwrap_err();
            assert!(!error.contains("hunter2") && error.contains("line"), "{error}");
        }
        assert_eq!(json("{{ object.nothing | default('none') }}"), Ok("none".into()));
        let error = json(r#"{"text": "{{ name }}"}"#).unwrap_err();
        assert!(error.contains("not JSON") && !error.contains("we"), "{error}");
    }

    #[test]
    fn work_and_length_are_bounded() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert!(json(loops).unwrap_err().contains("more work"));
        let long = "{% for a in range(9999) %}{{ object.big }}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}";
        assert!(json(long).unwrap_err().contains("bytes"));
        let endless = "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}";
        assert!(json(endless).is_err());
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let error = Template::compile("a\n{{ b", "text/plain").unwrap_err();
        assert_eq!(error.line, 2, "{error}");
        assert!(Template::compile("{% nonsense %}", "text/plain").is_err());
        assert!(Template::compile(&"a".repeat(MAX_LENGTH + 1), "text/plain").is_err());
    }
}

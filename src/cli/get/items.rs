//! Output of `get` as JSON, YAML, names or by a template.

use serde_json::Value;
use serde_json::value::RawValue;

use super::Args;
use super::sink::Sink;
use super::sort::{SortKey, Sorted};
use super::target::Target;
use crate::cli::Misuse;
use crate::cli::objects::{Documents, Output, print_template, whole_list};
use crate::cli::print::{json, out, say, yaml};
use informer_hub_apiclient::{ListPage, Resource, parse_deep};
use informer_hub_screen::{CellKey, Template};
use informer_hub_types::printable;

#[derive(Debug)]
pub(super) struct Items<'a> {
    args: &'a Args,
    path: Option<&'a Template>,
    documents: Documents,
    /// Template of `-o jsonpath` that is applied to each object as it arrives. `None` for other outputs. Without
    /// `--watch`, also `None` for a template that needs the whole list.
    of_each: Option<Template>,
    sorted: Sorted<Value>,
    /// Objects to print at the end, because the output needs all of them.
    kept: Vec<Value>,
    /// Whether one object is asked for by its name, without `--watch`.
    is_one: bool,
}

impl<'a> Items<'a> {
    /// Creates the printer.
    ///
    /// # Errors
    /// [`Misuse`] if the objects are to be sorted by a column.
    pub(super) fn new(args: &'a Args) -> anyhow::Result<Self> {
        let path = match &args.sort_by {
            None => None,
            Some(SortKey::Path(path)) => Some(path),
            Some(SortKey::Title(title)) => {
                return Err(Misuse::error(format!(
                    "--sort-by {title}: this output has no columns; give the path of a field, such as .metadata.name"
                )));
            }
        };
        let of_each = match &args.output {
            Output::JsonPath(template) if args.watch => Some(template.clone()),
            Output::JsonPath(template) => template.of_items(),
            _ => None,
        };
        let documents = Documents::new(&args.output);
        Ok(Self { args, path, documents, of_each, sorted: Sorted::new(), kept: Vec::new(), is_one: false })
    }

    fn print(&mut self, resource: &Resource, object: Value) -> anyhow::Result<()> {
        match &self.args.output {
            Output::Name => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                say(format_args!("{}/{}", resource.prefix(), printable(name)))
            }
            Output::JsonPath(_) if self.of_each.is_none() || self.is_one => {
                self.kept.push(object);
                Ok(())
            }
            Output::JsonPath(_) => match &self.of_each {
                Some(template) => print_template(template, &object),
                None => Ok(()),
            },
            Output::Yaml if self.args.watch => out(&format!("---\n{}", yaml(&object)?)),
            _ if self.args.watch => say(json(&object)?),
            _ if self.is_one => {
                self.kept.push(object);
                Ok(())
            }
            _ => self.documents.item(&object),
        }
    }
}

/// Reads an object. Adds its `kind` and `apiVersion` if they are missing, as in items of a list.
fn typed(resource: &Resource, text: &RawValue) -> anyhow::Result<Value> {
    let mut object: Value = parse_deep(text.get().as_bytes())?;
    if let Some(members) = object.as_object_mut() {
        members.entry("kind").or_insert_with(|| resource.api.kind.as_str().into());
        members.entry("apiVersion").or_insert_with(|| resource.api.gvr.api_version().into());
    }
    Ok(object)
}

impl Sink for Items<'_> {
    type Page = ListPage;

    fn prepare(&mut self, targets: &[Target<'_>]) {
        self.is_one = matches!(targets, [target] if target.names.len() == 1) && !self.args.watch;
    }

    fn page(&mut self, resource: &Resource, page: ListPage) -> anyhow::Result<()> {
        for text in page.items {
            let object = typed(resource, &text)?;
            match self.path {
                Some(path) => self.sorted.push(CellKey::of_value(path.first(&object)), object),
                None => self.print(resource, object)?,
            }
        }
        Ok(())
    }

    fn event(&mut self, resource: &Resource, object: &str) -> anyhow::Result<()> {
        let text: Box<RawValue> = serde_json::from_str(object)?;
        let object = typed(resource, &text)?;
        self.print(resource, object)
    }

    fn end_of(&mut self, resource: &Resource) -> anyhow::Result<()> {
        let (objects, over) = self.sorted.take(self.args.desc, self.args.limit.map(Into::into));
        objects.into_iter().try_for_each(|object| self.print(resource, object))?;
        if over > 0 {
            note!("informer-hub: there are {over} more {} than --limit shows", resource.api.gvr);
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let kept = std::mem::take(&mut self.kept);
        let is_whole = self.is_one && kept.is_empty();
        match (&self.args.output, self.is_one) {
            // For a missing object, the error is already printed.
            (Output::Name, _) => Ok(()),
            _ if is_whole => Ok(()),
            (Output::JsonPath(template), is_one) if is_one || self.of_each.is_none() => {
                print_template(template, &document(kept, is_one))
            }
            (Output::JsonPath(_), _) => Ok(()),
            (Output::Yaml, true) => out(&yaml(&document(kept, true))?),
            (_, true) => say(json(&document(kept, true))?),
            (_, false) => self.documents.end(),
        }
    }
}

/// Returns the document to print. It is the object alone if the command names one (`is_one`) and exactly one was found,
/// else a list of all objects.
fn document(mut objects: Vec<Value>, is_one: bool) -> Value {
    match objects.pop() {
        Some(object) if is_one && objects.is_empty() => object,
        last => {
            objects.extend(last);
            whole_list(&objects)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_object_is_printed_alone_and_several_as_a_list() {
        assert_eq!(document(vec![json!(1)], true), json!(1));
        assert_eq!(document(vec![json!(1), json!(2)], true)["items"], json!([1, 2]));
        assert_eq!(document(vec![json!(1)], false)["kind"], "List");
        assert_eq!(document(Vec::new(), false)["items"], json!([]));
    }
}

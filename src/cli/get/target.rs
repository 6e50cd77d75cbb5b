//! Parser of the words of the command line: resources and names.

use crate::cli::Misuse;
use informer_hub_apiclient::{Resource, Resources};

/// A resource, and the names to look for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target<'r> {
    pub(super) resource: &'r Resource,
    /// Names of objects; empty for all.
    pub(super) names: Vec<String>,
}

impl Target<'_> {
    /// Returns one item for each list request to send: the name of an object. If no names are given, returns a single
    /// `None`: one request for all objects.
    pub(super) fn lookups(&self) -> impl Iterator<Item = Option<&str>> {
        let everything = self.names.is_empty().then_some(None);
        everything.into_iter().chain(self.names.iter().map(|name| Some(name.as_str())))
    }
}

/// Reads `RESOURCE[,RESOURCE…] [NAME…]` or `RESOURCE/NAME…`.
///
/// # Errors
/// [`Misuse`] for wrong words, or an error for a resource that the hub does not have.
pub(super) fn targets<'r>(words: &[String], known: &'r Resources) -> anyhow::Result<Vec<Target<'r>>> {
    let mut targets: Vec<Target<'r>> = Vec::new();
    let mut add =
        |resource: &'r Resource, names: Vec<String>| match targets.iter_mut().find(|it| it.resource == resource) {
            Some(target) => target.names.extend(names),
            None => targets.push(Target { resource, names }),
        };
    if words.iter().any(|word| word.contains('/')) {
        for word in words {
            let Some((resource, name)) = word.split_once('/') else {
                return Err(Misuse::error("write either RESOURCE NAME… or RESOURCE/NAME…, not both"));
            };
            if name.is_empty() || name.contains('/') {
                return Err(Misuse::error(format!("{word:?} is not RESOURCE/NAME")));
            }
            for resource in known.find(resource)? {
                add(resource, vec![name.to_owned()]);
            }
        }
        return Ok(targets);
    }
    let (first, names) = words.split_first().map_or(("", &[][..]), |(first, names)| (first.as_str(), names));
    for word in first.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        for resource in known.find(word)? {
            add(resource, names.to_vec());
        }
    }
    if targets.is_empty() { Err(Misuse::error("name a resource, e.g. pods")) } else { Ok(targets) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> Resources {
        let entry = |plural: &str, kind: &str| json!({ "resource": plural, "responseKind": { "kind": kind }, "scope": "Namespaced", "categories": ["all"] });
        let resources = json!([entry("pods", "Pod"), entry("services", "Service")]);
        let document = json!({ "items": [{ "metadata": { "name": "" }, "versions": [{ "version": "v1", "resources": resources }] }] });
        Resources::parse([document.to_string().as_bytes()]).unwrap()
    }

    fn read(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match targets(&words, &known()) {
            Ok(targets) => {
                let shown = |it: &Target<'_>| format!("{}({})", it.resource.api.gvr, it.names.join(" "));
                targets.iter().map(shown).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn words_are_read_as_kubectl_reads_them() {
        assert_eq!(read("pods"), "pods()");
        assert_eq!(read("pod,svc,services"), "the hub has no resource \"svc\"; it has: pods, services");
        assert_eq!(read("service,pods,pod a b"), "services(a b) pods(a b a b)");
        assert_eq!(read("all"), "pods() services()");
        assert_eq!(read("pod/a service/b pods/c"), "pods(a c) services(b)");
        assert_eq!(read("pod/a b"), "write either RESOURCE NAME… or RESOURCE/NAME…, not both");
        assert_eq!(
            (read("pod/"), read(",")),
            ("\"pod/\" is not RESOURCE/NAME".into(), "name a resource, e.g. pods".into())
        );
    }
}

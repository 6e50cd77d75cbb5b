//! Output of `query --explain`: the plan as text.

use std::fmt::Write;

use informer_hub_apiclient::{QueryAnswer, Resource, plan_parts};
use informer_hub_types::printable;

/// Maximum number of steps that are listed.
const SHOWN: usize = 20;

/// Returns the plan of an explained query.
pub(super) fn text(answer: &QueryAnswer<'_>, resource: &Resource) -> String {
    let coverage = &answer.coverage;
    let clusters = if coverage.clusters == 1 { "cluster" } else { "clusters" };
    let mut text = format!("Plan for {} in {} {clusters}", resource.api.gvr, coverage.clusters);
    for (state, names) in [("stale", &coverage.stale), ("missing", &coverage.missing)] {
        if !names.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, ", {} {state}", names.len());
        }
    }
    text.push_str(":\n");
    let found = match answer.steps.len() {
        0 => vec!["nothing can match".to_owned()],
        _ => answer.steps.iter().take(SHOWN).map(|step| format!("candidates: {step}")).collect(),
    };
    let more = answer.steps.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("candidates of {more} more look-ups"));
    let examined = format!("examined: about {} objects", answer.candidates);
    let how = plan_parts(&answer.plan, answer.candidates).into_iter().map(str::to_owned);
    for (at, line) in found.into_iter().chain(more).chain([examined]).chain(how).enumerate() {
        let _ = writeln!(text, "{:3}. {}", at + 1, printable(&line));
    }
    text
}

#[cfg(test)]
mod tests {
    use informer_hub_types::{ApiResource, Gvr};

    use super::*;

    #[test]
    fn plan_is_a_numbered_list() {
        let json = br#"{"coverage":{"clusters":3,"stale":[1],"missing":[]},"steps":["index by-node = \"n1\""],"candidates":31,
            "plan":"index by-node = \"n1\": about 31 objects; matched on heads; matches are decompressed for the answer"}"#;
        let api = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
        let resource = Resource { api, singular: String::new(), short_names: Vec::new(), categories: Vec::new() };
        assert_eq!(
            text(&QueryAnswer::parse(json).unwrap(), &resource),
            "Plan for pods in 3 clusters, 1 stale:\n  1. candidates: index by-node = \"n1\"\n  2. examined: about 31 \
             objects\n  3. matched on heads\n  4. matches are decompressed for the answer\n"
        );
    }
}

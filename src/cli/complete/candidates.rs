//! Completion candidates from the running hub.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::MOST;
use super::completed_word::{CompletedWord, Kind};
use crate::cli::client::{Client, Request};
use crate::cli::objects::{FORMATS, resources};
use informer_hub_apiclient::{QueryAnswer, Resources, value_text};

/// Maximum size of the hub's answer to a request, in bytes.
const LONGEST: usize = 16 << 20;

/// Asks the hub for candidates.
///
/// # Errors
/// If the hub does not answer, or refuses.
pub(super) async fn candidates(completed: &CompletedWord) -> anyhow::Result<Vec<String>> {
    if completed.kind == Kind::Formats {
        let format = |name: &str| if name == "jsonpath" { "jsonpath=".to_owned() } else { name.to_owned() };
        return Ok(FORMATS.map(format).to_vec());
    }
    let client = completed.hub.client()?;
    let root = ["clusters", &completed.clusters];
    match completed.kind {
        Kind::Resources => Ok(plurals(&resources(&client, root).await?)),
        Kind::Namespaces | Kind::Names => {
            let known = resources(&client, root).await?;
            of_objects(&client, completed, &known).await
        }
        Kind::Sinks => Ok(names(&client.get(&["v1", "status"], &[]).await?["sinks"])),
        _ => Ok(of_clusters(&client.get(&["v1", "status"], &[]).await?["clusters"], completed.kind)),
    }
}

/// Returns the plural names of resources, each with its API group if several groups have the same plural, and then the
/// categories.
fn plurals(known: &Resources) -> Vec<String> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for resource in known.all() {
        let full = resource.api.gvr.to_string();
        let names = groups.entry(&resource.api.gvr.resource).or_default();
        if !names.contains(&full) {
            names.push(full);
        }
    }
    let categories = known.all().iter().flat_map(|resource| resource.categories.iter().cloned());
    let plurals = groups.iter().flat_map(|(plural, names)| match &names[..] {
        [_] => vec![(*plural).to_owned()],
        several => several.to_vec(),
    });
    plurals.chain(categories).collect()
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).map(str::to_owned).collect()
}

fn of_clusters(clusters: &Value, kind: Kind) -> Vec<String> {
    let labels = clusters.as_array().into_iter().flatten().filter_map(|it| it["labels"].as_object()).flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let labels = labels.filter(|_| kind == Kind::ClustersAndLabels);
    names(clusters).into_iter().chain(labels).collect()
}

/// Queries the hub for names or namespaces of objects. The query reads no JSON of objects, so it is fast.
async fn of_objects(client: &Client, completed: &CompletedWord, known: &Resources) -> anyhow::Result<Vec<String>> {
    let word = completed.resource.as_deref().and_then(|words| words.split(',').next());
    let named = word.and_then(|word| known.find(word).ok()?.first().copied());
    let start = quoted(completed.word.strip_prefix(&*completed.prefix).unwrap_or_default());
    let (resource, text) = if completed.kind == Kind::Names {
        let namespace = completed.namespace.as_ref().map(|namespace| format!(" and namespace = {}", quoted(namespace)));
        (named, format!("name prefix {start}{} select name limit {MOST}", namespace.unwrap_or_default()))
    } else {
        let any = known.all().iter().find(|resource| resource.api.namespaced);
        let text = format!("namespace prefix {start} distinct namespace limit {MOST}");
        (named.filter(|resource| resource.api.namespaced).or(any), text)
    };
    let Some(resource) = resource else { return Ok(Vec::new()) };
    let body = json!({ "q": text, "resource": resource.api.gvr.long(), "clusters": completed.clusters });
    let request =
        Request { path: vec!["v1", "query"], accept: "application/json", body: Some(body), ..Request::default() };
    let (json, _) = client.whole(&request, LONGEST).await?;
    let answer = QueryAnswer::parse(&json)?;
    let rows = answer.rows.into_iter().flatten().flatten();
    Ok(rows.chain(answer.values.into_iter().flatten()).map(|value| value_text(&value)).collect())
}

/// Quotes a text as a string of the query language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

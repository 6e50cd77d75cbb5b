//! Lists and pages that skip objects by label or by index equal a plain selection from all objects.

use informer_hub_testing::properties;
use informer_hub_types::LabelSelector;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::cache::{IndexFn, Indexers};

/// A change of a pod: number of the cluster, number of the pod, value of its label, and whether it is deleted.
type Step = (usize, usize, usize, bool);

const SELECTORS: [&str; 8] = [
    "app=v0",
    "app in (v0,v3)",
    "app",
    "!app",
    "app!=v0",
    "app=v1,informer-hub.io/cluster=b",
    "informer-hub.io/cluster",
    "app notin (v1),app",
];

/// Selectors of the indexed field `spec.color`.
const FIELD_SELECTORS: [&str; 9] = [
    "spec.color=v0",
    "spec.color=1",
    "spec.color=2.5",
    "spec.color=2.50",
    "spec.color=true",
    "spec.color=",
    "spec.color!=v0",
    "spec.color=v0,metadata.namespace=n1",
    "spec.color=none",
];

/// JSON of `spec.color` by the number of a pod's value. A pod with the value 4 has no color.
const COLORS: [&str; 4] = [r#""v0""#, "1", "2.50", "true"];

/// Number of pods in each cluster: more than the 512 that one step of a scan reads.
const PODS: usize = 700;

/// Returns a pod in one of three namespaces. It has no label and no color if the value is 4.
fn labelled(number: usize, value: usize, version: u64) -> StoredObject {
    let (index, value) = (value, format!("v{value}"));
    let (namespace, name) = (format!("n{}", number % 3), format!("p{number:04}"));
    let is_labelled = value != "v4";
    let labels = if is_labelled { json!({ "app": value }) } else { json!({}) };
    let metadata = json!({
        "name": name, "namespace": namespace, "resourceVersion": version.to_string(), "labels": labels,
    });
    let spec = COLORS.get(index).map_or_else(|| "{}".to_owned(), |color| format!(r#"{{"color":{color}}}"#));
    let json = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{spec}}}"#);
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(&namespace, &name),
        uid: Uid::new(&name),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::new(is_labelled.then(|| ("app".into(), value.as_str().into())).into_iter().collect()),
        index_values: Vec::<IndexEntry>::new(),
        json: json.into_bytes(),
    })
}

/// Returns all items of a list, page by page if `limit` is above 0.
async fn all(bench: &Bench, path: &str, limit: usize) -> Vec<Value> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page =
            if token.is_empty() { path.to_owned() } else { path.split("&resourceVersion=").next().unwrap().into() };
        let (code, list) = bench.json(&format!("{page}&limit={limit}{token}")).await;
        assert_eq!(code, 200, "{page}: {list}");
        found.extend(list["items"].as_array().unwrap().iter().cloned());
        match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(next) => token = format!("&continue={next}"),
            None => return found,
        }
    }
}

/// A request's selector.
#[derive(Clone, Debug)]
struct SelectorParameter {
    parameter: &'static str,
    text: &'static str,
}

impl SelectorParameter {
    /// Returns whether an item of a plain list is selected.
    fn selects(&self, item: &Value) -> bool {
        if self.parameter == "labelSelector" {
            let selector: LabelSelector = self.text.parse().unwrap();
            return selector.matches(|label| item["metadata"]["labels"][label].as_str());
        }
        self.text.split(',').all(|term| {
            let (field, value) = term.split_once('=').unwrap();
            let found = match field.trim_end_matches('!') {
                "spec.color" => &item["spec"]["color"],
                _ => &item["metadata"]["namespace"],
            };
            let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned).replace("null", "");
            (found == value) != field.ends_with('!')
        })
    }
}

async fn check(
    values: [Vec<usize>; 2],
    steps: Vec<Step>,
    asked: SelectorParameter,
    limit: usize,
    is_overlapping: bool,
) {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    for (cluster, values) in ["a", "b"].into_iter().zip(values) {
        let pods_of = values.into_iter().enumerate().map(|(number, value)| labelled(number, value, 1)).collect();
        bench.list(&pods(), cluster, pods_of, 10);
    }
    let by_color = Indexers::new().with("by-color", IndexFn::path("spec.color".parse().unwrap()));
    bench.fleet.stores.lock().get_mut(&pods().gvr).unwrap().add_indexers(by_color).unwrap();
    if is_overlapping {
        // A second informer has some of the objects with other values.
        bench.open_scope(&pods(), "b", Scope::namespace("n1"));
        let others = (1..PODS).step_by(3).map(|number| labelled(number, number % 5, 1)).collect();
        bench.list(&pods(), "b", others, 10);
    }
    let (_, before) = bench.json("/clusters/*/api/v1/pods?limit=1").await;
    let version = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for (at, (cluster, number, value, is_deleted)) in (11..).zip(steps) {
        let kind = if is_deleted { DeltaKind::Deleted } else { DeltaKind::Updated };
        bench.event(["a", "b"][cluster], kind, labelled(number, value, at));
    }
    let encoded = asked.text.replace('!', "%21").replace(' ', "%20").replace('=', "%3D");
    let exact = format!("&resourceVersion={version}&resourceVersionMatch=Exact");
    for namespace in ["", "/namespaces/n1"] {
        for at in ["", exact.as_str()] {
            let path = format!("/clusters/*/api/v1{namespace}/pods?{}=", asked.parameter);
            let mut plain = all(&bench, &format!("{path}{at}"), 0).await;
            plain.retain(|item| asked.selects(item));
            let selected = format!("{path}{encoded}{at}");
            for limit in [0, limit] {
                let found = all(&bench, &selected, limit).await;
                assert!(found == plain, "{selected}, limit {limit}: {} instead of {}", found.len(), plain.len());
            }
        }
    }
}

#[test]
fn lists_by_selector_equal_a_selection_from_all_objects() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Most pods have the value 2, so selectors of other values skip them.
    let values = || prop::collection::vec(prop_oneof![1 => 0_usize..5, 30 => Just(2_usize)], PODS);
    let step = (0_usize..2, 0..PODS + 5, 0_usize..5, any::<bool>());
    let by_label =
        prop::sample::select(&SELECTORS[..]).prop_map(|text| SelectorParameter { parameter: "labelSelector", text });
    let by_field = prop::sample::select(&FIELD_SELECTORS[..])
        .prop_map(|text| SelectorParameter { parameter: "fieldSelector", text });
    let asked = prop_oneof![by_label, by_field];
    let steps = prop::collection::vec(step, 0..60);
    let cases = (values(), values(), steps, asked, 1_usize..40, any::<bool>());
    let mut runner = TestRunner::new(properties(48));
    let outcome = runner.run(&cases, |(a, b, steps, asked, limit, is_overlapping)| {
        runtime.block_on(check([a, b], steps, asked, limit, is_overlapping));
        Ok(())
    });
    outcome.unwrap();
}

//! Contexts of the printed kubeconfig: their names, and the URL path below the hub's address for each.

use std::str::FromStr;

use crate::cli::Misuse;
use informer_hub_types::{ClusterLabels, ClusterName, LabelSelector, check_name};

/// Name of the context of all clusters.
pub(super) const FLEET: &str = "fleet";
/// Name of the context that addresses all clusters together and gives every object a name that is unique among them.
const UNIQUE: &str = "fleet-unique";
/// Prefix for the context name of a cluster if another context already has the cluster's name.
const OTHERWISE: &str = "cluster-";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::cli) struct Context {
    pub(super) name: String,
    /// The first two segments of the context's URL path, such as `clusters` and `*`, not percent-encoded.
    pub(super) root: [String; 2],
}

/// `NAME=SELECTOR`: a context for the clusters with matching labels.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Selection {
    name: String,
    selector: LabelSelector,
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write NAME=SELECTOR, such as prod=tier=prod";
        let (name, selector) = text.split_once('=').ok_or(shape)?;
        check_name("context name", name).map_err(|error| error.to_string())?;
        let selector: LabelSelector =
            selector.parse().map_err(|error: informer_hub_types::InvalidSelector| error.to_string())?;
        if selector.is_empty() {
            return Err(format!("the selector is empty; {shape}"));
        }
        Ok(Self { name: name.to_owned(), selector })
    }
}

impl Selection {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn matches(&self, labels: &ClusterLabels) -> bool {
        self.selector.matches(|key| labels.get(key).map(String::as_str))
    }

    /// Returns the selector as a segment of the hub's URL path. A selector that looks like a cluster name is repeated
    /// after a comma, so that it is not taken for a name.
    fn segment(&self) -> String {
        let text = self.selector.to_string();
        if ClusterName::new(&text).is_ok() { format!("{text},{text}") } else { text }
    }
}

impl Context {
    fn new(name: impl Into<String>, kind: &str, clusters: impl Into<String>) -> Self {
        Self { name: name.into(), root: [kind.to_owned(), clusters.into()] }
    }
}

/// Returns the contexts for all clusters, then for the selections, then for each cluster, sorted by name. No two
/// contexts have the same name.
pub(in crate::cli) fn contexts(clusters: &[ClusterName], selections: &[Selection]) -> anyhow::Result<Vec<Context>> {
    let mut all = vec![Context::new(FLEET, "clusters", "*"), Context::new(UNIQUE, "unique", "*")];
    for selection in selections {
        let name = &selection.name;
        if all.iter().any(|it| it.name == *name) {
            return Err(Misuse::error(format!("--selection {name}: there is another context of this name")));
        }
        all.push(Context::new(name, "clusters", selection.segment()));
    }
    let mut clusters = clusters.to_vec();
    clusters.sort();
    clusters.dedup();
    for cluster in &clusters {
        let mut context = Context::new(cluster.as_str(), "clusters", cluster.as_str());
        while all.iter().any(|it| it.name == context.name) || is_other(&context.name, cluster, &clusters) {
            context.name.insert_str(0, OTHERWISE);
        }
        all.push(context);
    }
    Ok(all)
}

/// Returns whether any cluster except `cluster` has this name.
fn is_other(name: &str, cluster: &ClusterName, clusters: &[ClusterName]) -> bool {
    clusters.iter().any(|other| other != cluster && other.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<ClusterName> {
        texts.iter().map(|text| ClusterName::new(text).unwrap()).collect()
    }

    fn shown(clusters: &[&str], selections: &[&str]) -> Vec<String> {
        let selections: Vec<_> = selections.iter().map(|text| text.parse().unwrap()).collect();
        let all = contexts(&names(clusters), &selections).unwrap();
        all.into_iter().map(|context| format!("{} {}", context.name, context.root.join("/"))).collect()
    }

    #[test]
    fn contexts_are_fleet_selections_and_sorted_clusters() {
        assert_eq!(
            shown(&["eu", "ap", "eu"], &["prod=tier=prod", "west=region in (us, ca)", "any=tier"]),
            [
                "fleet clusters/*",
                "fleet-unique unique/*",
                "prod clusters/tier=prod",
                "west clusters/region in (ca,us)",
                "any clusters/tier,tier",
                "ap clusters/ap",
                "eu clusters/eu",
            ]
        );
    }

    #[test]
    fn cluster_with_the_name_of_another_context_gets_another_one() {
        let all = shown(&["fleet", "cluster-fleet", "a", "cluster-a"], &["a=b=c"]);
        assert_eq!(
            all[3..],
            [
                "cluster-cluster-a clusters/a",
                "cluster-a clusters/cluster-a",
                "cluster-fleet clusters/cluster-fleet",
                "cluster-cluster-fleet clusters/fleet",
            ]
        );
    }

    #[test]
    fn selection_is_a_name_and_a_selector() {
        let error = |text: &str| text.parse::<Selection>().unwrap_err();
        assert!(error("prod").contains("write NAME=SELECTOR"));
        assert!(error("=a=b").contains("context name \"\" is not valid"));
        assert!(error("a/b=c").contains("context name \"a/b\" is not valid"));
        assert!(error("a=").contains("the selector is empty"));
        assert!(error("a=b in (c").contains("is not a label selector"));
        let twice: Vec<Selection> = ["fleet=a=b"].iter().map(|text| text.parse().unwrap()).collect();
        let error = contexts(&[], &twice).unwrap_err().to_string();
        assert_eq!(error, "--selection fleet: there is another context of this name");
        let prod: Selection = "prod=tier=prod".parse().unwrap();
        let labels = |value: &str| ClusterLabels::from([("tier".to_owned(), value.to_owned())]);
        assert!(prod.matches(&labels("prod")) && !prod.matches(&labels("dev")));
    }
}

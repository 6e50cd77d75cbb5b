//! Options that select clusters and namespaces.

use clap::Args as ClapArgs;

use informer_hub_types::ClusterName;

/// Clusters and namespace of a command.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(in crate::cli) struct PlaceArgs {
    /// Only these clusters: a name, or a selector of their labels such as 'tier=prod,region in (eu)'; default: all
    #[arg(long, value_name = "NAME|SELECTOR", default_value = "*", hide_default_value = true)]
    pub(in crate::cli) clusters: String,
    /// Only this namespace; default: all namespaces
    #[arg(short, long, conflicts_with = "all_namespaces")]
    pub(in crate::cli) namespace: Option<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long)]
    pub(in crate::cli) all_namespaces: bool,
}

impl PlaceArgs {
    /// Returns the two URL path segments under which the hub serves the Kubernetes API of the selected clusters.
    pub(in crate::cli) fn root(&self) -> [&str; 2] {
        ["clusters", &self.clusters]
    }

    /// Returns whether one cluster is selected by its name.
    pub(in crate::cli) fn clusters_are_one(&self) -> bool {
        ClusterName::new(&self.clusters).is_ok()
    }

    /// Describes the selected clusters and namespace, such as ` in namespace shop of tier=prod`; empty if all are
    /// selected.
    pub(in crate::cli) fn described(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("namespace {namespace}"));
        let clusters = (self.clusters != "*").then(|| self.clusters.clone());
        match (namespace, clusters) {
            (None, None) => String::new(),
            (Some(one), None) | (None, Some(one)) => format!(" in {one}"),
            (Some(namespace), Some(clusters)) => format!(" in {namespace} of {clusters}"),
        }
    }
}

//! Kubeconfig Secrets of Cluster API: `<cluster>-kubeconfig`, with a kubeconfig in `value`.

use super::kubeconfig::from_data;
use super::object::{Secret, read};
use super::source_report::{Candidate, SourceReport};
use crate::{ClusterAccess, ClusterSourceConfig};

/// Label selector of Cluster API's Secrets. The label's value is the name of the cluster.
pub const CLUSTER_API_SELECTOR: &str = "cluster.x-k8s.io/cluster-name";

/// Type of Cluster API's Secrets.
const TYPE: &str = "cluster.x-k8s.io/secret";

/// Domain of the label keys that Cluster API sets for its own use.
const OWN: &str = "cluster.x-k8s.io";

/// Reads the clusters that Cluster API's kubeconfig Secrets describe, each given as JSON. Ignores a cluster's Secrets for
/// CAs and etcd.
pub fn report_from_cluster_api<J: AsRef<[u8]>>(
    source: &ClusterSourceConfig,
    secrets: impl IntoIterator<Item = J>,
) -> SourceReport {
    let mut report = SourceReport::default();
    for json in secrets {
        match read::<Secret>(json.as_ref()) {
            Ok(secret) => {
                let Some(cluster) = secret.metadata.label(CLUSTER_API_SELECTOR) else { continue };
                if secret.metadata.name == format!("{cluster}-kubeconfig") {
                    report.note(source, &secret.title(), candidate(&secret, cluster));
                }
            }
            Err(problem) => report.note(source, "Secret", Err(problem)),
        }
    }
    report
}

fn candidate<'s>(secret: &'s Secret, cluster: &'s str) -> Result<Candidate<'s>, String> {
    let object = secret.title();
    if secret.kind.as_deref() != Some(TYPE) {
        return Err(format!("its type is {:?}, expected {TYPE:?}", secret.kind.as_deref().unwrap_or_default()));
    }
    let text = secret.text("value")?.ok_or("data.value is missing; it is the kubeconfig")?;
    let kubeconfig = from_data(&text, &object).map_err(|problem| format!("data.value: {problem}"))?;
    let is_own = |key: &str| {
        key.split_once('/').is_some_and(|(domain, _)| domain == OWN || domain.ends_with(".cluster.x-k8s.io"))
    };
    Ok(Candidate {
        object,
        name: cluster.into(),
        namespace: &secret.metadata.namespace,
        labels: secret.metadata.labels(is_own),
        access: ClusterAccess::Inline(kubeconfig),
    })
}

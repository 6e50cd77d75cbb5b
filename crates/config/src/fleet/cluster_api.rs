//! Cluster API's kubeconfig Secrets: `<cluster>-kubeconfig`, with a kubeconfig in `value`.

use super::kubeconfig::from_data;
use super::object::{Secret, read};
use super::said::{Candidate, Said};
use crate::{ClusterAccess, ClusterSourceConfig};

/// Which Secrets belong to clusters of Cluster API.
pub const CLUSTER_API_SELECTOR: &str = "cluster.x-k8s.io/cluster-name";

/// The type of its Secrets.
const TYPE: &str = "cluster.x-k8s.io/secret";

/// What the domains of its labels end with.
const OWN: &str = "cluster.x-k8s.io";

/// What Secrets of Cluster API say, each as JSON. A cluster has others besides its kubeconfig (CAs, etcd's), which are
/// passed over.
pub fn of_cluster_api<J: AsRef<[u8]>>(source: &ClusterSourceConfig, secrets: impl IntoIterator<Item = J>) -> Said {
    let mut said = Said::default();
    for json in secrets {
        match read::<Secret>(json.as_ref()) {
            Ok(secret) => {
                let Some(cluster) = secret.metadata.label(CLUSTER_API_SELECTOR) else { continue };
                if secret.metadata.name == format!("{cluster}-kubeconfig") {
                    said.note(source, &secret.title(), candidate(&secret, cluster));
                }
            }
            Err(problem) => said.note(source, "Secret", Err(problem)),
        }
    }
    said
}

fn candidate<'s>(secret: &'s Secret, cluster: &'s str) -> Result<Candidate<'s>, String> {
    let object = secret.title();
    if secret.kind.as_deref() != Some(TYPE) {
        return Err(format!(
            "its type is {:?}, and Cluster API's is {TYPE:?}",
            secret.kind.as_deref().unwrap_or_default()
        ));
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

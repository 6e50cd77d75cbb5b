//! Kubeconfigs in a folder: each file a cluster, or each of its contexts.

use std::path::Path;

use super::kubeconfig::Kubeconfig;
use super::said::{Candidate, PART, Said};
use crate::{ClusterAccess, ClusterSourceConfig, Contexts};

/// Endings of files that do not belong to a cluster's name.
const ENDINGS: [&str; 5] = [".yaml", ".yml", ".kubeconfig", ".conf", ".json"];

/// The name of the cluster that a file stands for; `None` for what is hidden or a backup, which does not count.
#[must_use]
pub fn stem(file: &str) -> Option<&str> {
    if file.starts_with('.') || file.ends_with('~') {
        return None;
    }
    Some(ENDINGS.iter().find_map(|ending| file.strip_suffix(ending)).unwrap_or(file)).filter(|stem| !stem.is_empty())
}

/// What a file says.
#[must_use]
pub fn of_file(source: &ClusterSourceConfig, contexts: Contexts, path: &Path, text: &str) -> Said {
    let mut said = Said::default();
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let object = format!("file {file}");
    let kubeconfig = match Kubeconfig::read(text) {
        Ok(kubeconfig) => kubeconfig,
        Err(problem) => {
            said.note(source, &object, Err(problem));
            return said;
        }
    };
    let access = |context: Option<&str>| ClusterAccess::Kubeconfig {
        path: path.to_owned(),
        context: context.map(str::to_owned),
    };
    match contexts {
        Contexts::Current => {
            let candidate = kubeconfig.check(None).map(|()| Candidate {
                object: object.clone(),
                name: stem(&file).unwrap_or_default().into(),
                namespace: "",
                labels: Vec::new(),
                access: access(None),
            });
            said.note(source, &object, candidate);
        }
        Contexts::All => {
            for context in kubeconfig.contexts() {
                let object = format!("{object}{PART}{context}");
                let candidate = kubeconfig.check(Some(context)).map(|()| Candidate {
                    object: object.clone(),
                    name: context.into(),
                    namespace: "",
                    labels: Vec::new(),
                    access: access(Some(context)),
                });
                said.note(source, &object, candidate);
            }
        }
    }
    said
}

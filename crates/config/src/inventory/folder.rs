//! Source of kubeconfigs in a directory: each file, or each of its contexts, is a cluster.

use std::path::Path;

use super::kubeconfig::Kubeconfig;
use super::source_report::{Candidate, PART, SourceReport};
use crate::{ClusterAccess, ClusterSourceConfig, Contexts};

/// File endings that are removed to derive the cluster's name from the file's name.
const ENDINGS: [&str; 5] = [".yaml", ".yml", ".kubeconfig", ".conf", ".json"];

/// Returns the cluster name of a file; `None` for hidden files and backups, which are ignored.
#[must_use]
pub fn stem(file: &str) -> Option<&str> {
    if file.starts_with('.') || file.ends_with('~') {
        return None;
    }
    Some(ENDINGS.iter().find_map(|ending| file.strip_suffix(ending)).unwrap_or(file)).filter(|stem| !stem.is_empty())
}

/// Reads the clusters of a kubeconfig file.
#[must_use]
pub fn report_from_file(source: &ClusterSourceConfig, contexts: Contexts, path: &Path, text: &str) -> SourceReport {
    let mut report = SourceReport::default();
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let object = format!("file {file}");
    let kubeconfig = match Kubeconfig::read(text) {
        Ok(kubeconfig) => kubeconfig,
        Err(problem) => {
            report.note(source, &object, Err(problem));
            return report;
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
            report.note(source, &object, candidate);
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
                report.note(source, &object, candidate);
            }
        }
    }
    report
}

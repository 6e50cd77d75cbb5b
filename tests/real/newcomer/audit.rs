//! What an apiserver was asked, by its audit log: a line for each request, written before it is answered.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tempfile::TempDir;

/// Everything that is listed or watched, when it is received.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [ResponseStarted, ResponseComplete, Panic]\n\
                      rules:\n- level: Metadata\n  verbs: [list, watch]\n- level: None\n";

/// The audit log of one cluster.
pub(super) struct Audit(TempDir);

/// A list or a watch.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) user: String,
    pub(super) resource: String,
    pub(super) uri: String,
    /// What the user was known by: of a token its id.
    pub(super) credential: String,
    /// Whether it brings all objects: a list, or a watch that begins with them.
    pub(super) is_list: bool,
}

impl Audit {
    /// One that is empty, for a cluster that is to be started.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
        Self(folder)
    }

    /// What the cluster's apiserver is to be started with.
    pub(super) fn flags(&self) -> Vec<String> {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        vec![format!("--audit-policy-file={}", at("policy.yaml")), format!("--audit-log-path={}", at("log"))]
    }

    /// All requests so far, in their order.
    pub(super) fn requests(&self) -> Vec<Request> {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        // The last line may be under way.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).map(|line: Value| request(&line)).collect()
    }

    /// How often who has this in the name has had all objects of a resource sent.
    pub(super) fn lists(&self, user: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in self.requests().into_iter().filter(|it| it.is_list && it.user.contains(user)) {
            *counts.entry(request.resource).or_default() += 1;
        }
        counts
    }
}

fn request(line: &Value) -> Request {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (uri, user) = (text(&line["requestURI"]), &line["user"]);
    Request {
        user: text(&user["username"]),
        resource: text(&line["objectRef"]["resource"]),
        is_list: line["verb"] == "list" || uri.contains("sendInitialEvents=true"),
        uri,
        credential: text(&user["extra"]["authentication.kubernetes.io/credential-id"][0]),
    }
}

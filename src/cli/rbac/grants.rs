//! Rights to list and watch resources, and the RBAC objects that grant them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::builtin::NamedResource;
use informer_hub_types::ApiResource;

/// Verbs that the hub needs for each resource.
const VERBS: [&str; 2] = ["list", "watch"];

const API: &str = "rbac.authorization.k8s.io";

/// Plural names of resources, by API group.
type Rules = BTreeMap<String, BTreeSet<String>>;

/// Subjects that get the rights, and names of the printed objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Grantee {
    /// Service account, which is printed as an object too.
    pub(super) account: Option<Account>,
    /// Whether a Secret with a token of the service account is printed.
    pub(super) token_secret: bool,
    pub(super) users: Vec<String>,
    pub(super) groups: Vec<String>,
    /// Name of all printed roles and bindings.
    pub(super) role: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) namespace: String,
}

impl Grantee {
    fn subjects(&self) -> Value {
        let accounts = self.account.iter().map(
            |Account { name, namespace }| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace }),
        );
        let named = |kind: &'static str, names: &[String]| {
            let subject = |name: &String| json!({ "apiGroup": API, "kind": kind, "name": name });
            names.iter().map(subject).collect::<Vec<_>>()
        };
        accounts.chain(named("User", &self.users)).chain(named("Group", &self.groups)).collect()
    }
}

impl Account {
    /// Returns the name of the Secret that holds a token without expiry for this service account.
    pub(super) fn token_secret(&self) -> String {
        format!("{}-token", self.name)
    }

    fn objects(&self, token_secret: bool) -> Vec<Value> {
        let Self { name, namespace } = self;
        let metadata = |name: &str| json!({ "name": name, "namespace": namespace, "labels": labels() });
        let mut objects = vec![json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name) })];
        if token_secret {
            let mut metadata = metadata(&self.token_secret());
            metadata["annotations"] = json!({ "kubernetes.io/service-account.name": name });
            let kind = "kubernetes.io/service-account-token";
            objects.push(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind }));
        }
        objects
    }
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "informer-hub" })
}

/// Rights of the hub in one cluster: resources to list and watch, reviews to create, and the Lease of its replicas.
#[derive(Debug, Default)]
pub(super) struct Grants {
    everywhere: Rules,
    by_namespace: BTreeMap<String, Rules>,
    /// Review resources (access and token reviews) that the hub creates; they have no namespace.
    created: Rules,
    /// Namespace and name of the Lease.
    lease: Option<(String, String)>,
}

impl Grants {
    /// Adds a resource in these namespaces, or in the whole cluster if there are none.
    pub(super) fn add(&mut self, named: &NamedResource, namespaces: &[String]) {
        let to = |rules: &mut Rules| {
            rules.entry(named.group.clone()).or_default().insert(named.plural.clone());
        };
        if namespaces.is_empty() || !named.namespaced {
            to(&mut self.everywhere);
        } else {
            for namespace in namespaces {
                to(self.by_namespace.entry(namespace.clone()).or_default());
            }
        }
    }

    /// Adds the right to create a review resource, such as SubjectAccessReviews.
    pub(super) fn add_review(&mut self, review: &ApiResource) {
        let gvr = &review.gvr;
        self.created.entry(gvr.group.to_string()).or_default().insert(gvr.resource.to_string());
    }

    /// Adds the rights to create, read and renew the Lease of the hub's replicas.
    pub(super) fn add_lease(&mut self, namespace: &str, name: &str) {
        self.lease = Some((namespace.to_owned(), name.to_owned()));
    }

    fn lease_rules(&self, place: &str) -> Vec<Value> {
        let Some((_, name)) = self.lease.as_ref().filter(|(namespace, _)| namespace == place) else {
            return Vec::new();
        };
        let (group, plural) = ("coordination.k8s.io", "leases");
        // A request to create an object has no name that RBAC could compare.
        vec![
            json!({ "apiGroups": [group], "resources": [plural], "verbs": ["create"] }),
            json!({ "apiGroups": [group], "resources": [plural], "resourceNames": [name], "verbs": ["get", "update"] }),
        ]
    }

    /// Returns the objects that grant these rights to `to`, in the order in which to apply them. A right for the whole
    /// cluster is not repeated in a namespace.
    pub(super) fn objects(&self, to: &Grantee) -> Vec<Value> {
        let (role, subjects) = (&to.role, to.subjects());
        let mut objects = to.account.as_ref().map(|account| account.objects(to.token_secret)).unwrap_or_default();
        let mut grant = |kind: &str, place: Option<&String>, rules: Value| {
            let mut metadata = json!({ "name": role, "labels": labels() });
            if let Some(place) = place {
                metadata["namespace"] = json!(place);
            }
            let api = format!("{API}/v1");
            objects.push(json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules }));
            objects.push(json!({
                "apiVersion": api, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": { "apiGroup": API, "kind": kind, "name": role }, "subjects": subjects,
            }));
        };
        let cluster_wide = [rules(&self.everywhere, &VERBS), rules(&self.created, &["create"])].concat();
        if !cluster_wide.is_empty() {
            grant("ClusterRole", None, cluster_wide.into());
        }
        let places: BTreeSet<_> = self.by_namespace.keys().chain(self.lease.as_ref().map(|(place, _)| place)).collect();
        for place in places {
            let left =
                self.by_namespace.get(place).map(|allowed| self.without_cluster_wide(allowed)).unwrap_or_default();
            let all = [rules(&left, &VERBS), self.lease_rules(place)].concat();
            if !all.is_empty() {
                grant("Role", Some(place), all.into());
            }
        }
        objects
    }

    fn without_cluster_wide(&self, allowed: &Rules) -> Rules {
        let left = |(group, plurals): (&String, &BTreeSet<String>)| {
            let covered = self.everywhere.get(group);
            let is_covered = |plural: &String| covered.is_some_and(|all| all.contains(plural) || all.contains("*"));
            let left: BTreeSet<_> = plurals.iter().filter(|it| !is_covered(it)).cloned().collect();
            (!left.is_empty()).then(|| (group.clone(), left))
        };
        allowed.iter().filter_map(left).collect()
    }
}

fn rules(allowed: &Rules, verbs: &[&str]) -> Vec<Value> {
    let rule = |(group, plurals): (&String, &BTreeSet<String>)| {
        // `*` covers all other names.
        let plurals = if plurals.contains("*") { json!(["*"]) } else { json!(plurals) };
        json!({ "apiGroups": [group], "resources": plurals, "verbs": verbs })
    };
    allowed.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(group: &str, plural: &str, namespaced: bool) -> NamedResource {
        NamedResource { group: group.to_owned(), plural: plural.to_owned(), namespaced, is_unchecked: false }
    }

    fn account() -> Account {
        Account { name: "hub".to_owned(), namespace: "tools".to_owned() }
    }

    #[test]
    fn lease_is_granted_by_name_in_its_namespace_only() {
        let mut grants = Grants::default();
        grants.add(&named("", "pods", true), &["hub".to_owned()]);
        grants.add_lease("hub", "one");
        let to = Grantee { account: Some(account()), role: "hub".to_owned(), ..Grantee::default() };
        let objects = grants.objects(&to);
        let roles: Vec<_> = objects.iter().filter(|object| object["kind"] == "Role").collect();
        assert_eq!((roles.len(), &roles[0]["metadata"]["namespace"]), (1, &json!("hub")));
        let granted = roles[0]["rules"].as_array().unwrap();
        assert_eq!(granted.len(), 3);
        assert_eq!((&granted[1]["verbs"], &granted[1]["resourceNames"]), (&json!(["create"]), &Value::Null));
        assert_eq!((&granted[2]["verbs"], &granted[2]["resourceNames"]), (&json!(["get", "update"]), &json!(["one"])));
    }

    #[test]
    fn users_and_groups_are_subjects_without_objects_of_their_own() {
        let mut grants = Grants::default();
        grants.add(&named("", "pods", true), &[]);
        let to = Grantee {
            users: vec!["jane's: # @example.com".to_owned()],
            groups: vec!["dev".to_owned()],
            role: "reader".to_owned(),
            ..Grantee::default()
        };
        let objects = grants.objects(&to);
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding"]);
        let user = json!({ "apiGroup": API, "kind": "User", "name": "jane's: # @example.com" });
        let group = json!({ "apiGroup": API, "kind": "Group", "name": "dev" });
        assert_eq!(objects[1]["subjects"], json!([user, group]));
    }

    #[test]
    fn a_token_secret_refers_to_its_account() {
        let to = Grantee { account: Some(account()), token_secret: true, ..Grantee::default() };
        let objects = Grants::default().objects(&to);
        let [_, secret] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!(secret["type"], "kubernetes.io/service-account-token");
        let metadata = &secret["metadata"];
        assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("hub-token"), &json!("tools")));
        assert_eq!(metadata["annotations"]["kubernetes.io/service-account.name"], "hub");
    }

    fn summary(grants: &Grants) -> Vec<String> {
        let to = Grantee { account: Some(account()), role: "reader".to_owned(), ..Grantee::default() };
        let text = |object: &Value| {
            let place = object["metadata"]["namespace"].as_str().unwrap_or("-");
            let rules = object["rules"].as_array().map(|rules| {
                let rule = |rule: &Value| format!("{}{}", rule["apiGroups"], rule["resources"]);
                rules.iter().map(rule).collect::<Vec<_>>().join(" ")
            });
            let rules = rules.unwrap_or_default();
            format!("{} {place} {} {rules}", object["kind"].as_str().unwrap(), object["metadata"]["name"])
        };
        grants.objects(&to).iter().map(text).collect()
    }

    #[test]
    fn namespaced_rights_are_roles_and_the_others_a_cluster_role() {
        let mut grants = Grants::default();
        let namespaces = ["shop".to_owned(), "pay".to_owned()];
        grants.add(&named("", "pods", true), &namespaces);
        grants.add(&named("", "nodes", false), &namespaces);
        grants.add(&named("apps", "deployments", true), &[]);
        assert_eq!(
            summary(&grants),
            [
                "ServiceAccount tools \"hub\" ",
                "ClusterRole - \"reader\" [\"\"][\"nodes\"] [\"apps\"][\"deployments\"]",
                "ClusterRoleBinding - \"reader\" ",
                "Role pay \"reader\" [\"\"][\"pods\"]",
                "RoleBinding pay \"reader\" ",
                "Role shop \"reader\" [\"\"][\"pods\"]",
                "RoleBinding shop \"reader\" ",
            ]
        );
    }

    #[test]
    fn cluster_wide_rights_are_not_repeated_in_namespaces() {
        let mut grants = Grants::default();
        grants.add(&named("", "pods", true), &["shop".to_owned()]);
        grants.add(&named("", "secrets", true), &["shop".to_owned()]);
        grants.add(&named("", "pods", true), &[]);
        let found = summary(&grants);
        assert_eq!(found[1], "ClusterRole - \"reader\" [\"\"][\"pods\"]");
        assert_eq!(found[3], "Role shop \"reader\" [\"\"][\"secrets\"]");
        assert_eq!(summary(&Grants::default()), ["ServiceAccount tools \"hub\" "]);
    }

    #[test]
    fn a_whole_group_covers_its_resources() {
        let mut grants = Grants::default();
        grants.add(&named("example.com", "widgets", true), &[]);
        grants.add(&named("example.com", "*", true), &[]);
        grants.add(&named("example.com", "gears", true), &["shop".to_owned()]);
        let found = summary(&grants);
        assert_eq!(found[1], "ClusterRole - \"reader\" [\"example.com\"][\"*\"]");
        assert_eq!(found.len(), 3, "there is no role for the namespace: {found:?}");
    }
}

//! Table of the resources built into Kubernetes, with all their names, for use when no cluster can be queried.

use super::ResourceRef;

/// A resource that is built into Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuiltIn {
    /// API group.
    pub group: &'static str,
    /// Plural name.
    pub plural: &'static str,
    /// Whether objects of the resource are namespaced.
    pub namespaced: bool,
}

/// Each entry: API group, whether the objects are namespaced, and the resources as `plural` or
/// `plural=singular,short,…`.
const BUILT_IN: &[(&str, bool, &str)] = &[
    (
        "",
        true,
        "configmaps=configmap,cm endpoints=ep events=event,ev limitranges=limitrange,limits \
         persistentvolumeclaims=persistentvolumeclaim,pvc pods=pod,po podtemplates=podtemplate \
         replicationcontrollers=replicationcontroller,rc resourcequotas=resourcequota,quota secrets=secret \
         serviceaccounts=serviceaccount,sa services=service,svc",
    ),
    ("", false, "namespaces=namespace,ns nodes=node,no persistentvolumes=persistentvolume,pv"),
    (
        "apps",
        true,
        "controllerrevisions=controllerrevision daemonsets=daemonset,ds deployments=deployment,deploy \
         replicasets=replicaset,rs statefulsets=statefulset,sts",
    ),
    ("autoscaling", true, "horizontalpodautoscalers=horizontalpodautoscaler,hpa"),
    ("batch", true, "cronjobs=cronjob,cj jobs=job"),
    ("certificates.k8s.io", false, "certificatesigningrequests=certificatesigningrequest,csr"),
    ("coordination.k8s.io", true, "leases=lease"),
    ("discovery.k8s.io", true, "endpointslices=endpointslice"),
    ("events.k8s.io", true, "events=event,ev"),
    ("networking.k8s.io", true, "ingresses=ingress,ing networkpolicies=networkpolicy,netpol"),
    ("networking.k8s.io", false, "ingressclasses=ingressclass ipaddresses=ipaddress,ip servicecidrs=servicecidr"),
    ("node.k8s.io", false, "runtimeclasses=runtimeclass"),
    ("policy", true, "poddisruptionbudgets=poddisruptionbudget,pdb"),
    ("rbac.authorization.k8s.io", true, "rolebindings=rolebinding roles=role"),
    ("rbac.authorization.k8s.io", false, "clusterrolebindings=clusterrolebinding clusterroles=clusterrole"),
    ("resource.k8s.io", true, "resourceclaims=resourceclaim resourceclaimtemplates=resourceclaimtemplate"),
    ("resource.k8s.io", false, "deviceclasses=deviceclass resourceslices=resourceslice"),
    ("scheduling.k8s.io", false, "priorityclasses=priorityclass,pc"),
    ("storage.k8s.io", true, "csistoragecapacities=csistoragecapacity"),
    (
        "storage.k8s.io",
        false,
        "csidrivers=csidriver csinodes=csinode storageclasses=storageclass,sc volumeattachments=volumeattachment \
         volumeattributesclasses=volumeattributesclass,vac",
    ),
    (
        "admissionregistration.k8s.io",
        false,
        "mutatingwebhookconfigurations=mutatingwebhookconfiguration \
         validatingadmissionpolicies=validatingadmissionpolicy \
         validatingadmissionpolicybindings=validatingadmissionpolicybinding \
         validatingwebhookconfigurations=validatingwebhookconfiguration",
    ),
    ("apiextensions.k8s.io", false, "customresourcedefinitions=customresourcedefinition,crd,crds"),
    ("apiregistration.k8s.io", false, "apiservices=apiservice"),
    (
        "flowcontrol.apiserver.k8s.io",
        false,
        "flowschemas=flowschema prioritylevelconfigurations=prioritylevelconfiguration",
    ),
];

/// Returns the built-in resource with this plural, singular or short name, preferably in the core group; `None` if
/// there is none.
#[must_use]
pub fn built_in(written: &ResourceRef) -> Option<BuiltIn> {
    let wanted = written.resource.as_str();
    let in_group = |group: &str| written.group.as_ref().is_none_or(|written| written.as_str() == group);
    let words = BUILT_IN.iter().filter(|(group, ..)| in_group(group)).flat_map(|(group, namespaced, words)| {
        words.split_whitespace().map(move |word| (*group, *namespaced, word.split_once('=').unwrap_or((word, ""))))
    });
    let found = words.clone().find(|(.., (plural, _))| *plural == wanted);
    let found = found.or_else(|| words.clone().find(|(.., (_, others))| others.split(',').any(|it| it == wanted)));
    found.map(|(group, namespaced, (plural, _))| BuiltIn { group, plural, namespaced })
}

/// Returns whether Kubernetes itself defines the resource. Such a resource can be removed only by a change to another
/// release of the apiserver.
#[must_use]
pub fn is_built_in(group: &str, plural: &str) -> bool {
    let in_group = BUILT_IN.iter().filter(|(known, ..)| *known == group);
    in_group.flat_map(|(.., words)| words.split_whitespace()).any(|word| word.split('=').next() == Some(plural))
}

/// Returns the other names of a built-in resource: its singular name, if it differs from the plural, then its short
/// names. Empty for a resource that is not built in.
pub fn built_in_names(group: &str, plural: &str) -> impl Iterator<Item = &'static str> {
    let in_group = BUILT_IN.iter().filter(move |(known, ..)| *known == group);
    let words = in_group.flat_map(|(.., words)| words.split_whitespace()).filter_map(|word| word.split_once('='));
    words.filter(move |(known, _)| *known == plural).flat_map(|(_, names)| names.split(','))
}

impl ResourceRef {
    /// Returns whether this reference names the core group's Secrets (`secrets`, `secret`).
    #[must_use]
    pub fn is_secrets(&self) -> bool {
        built_in(self).is_some_and(|known| known.plural == "secrets" && known.group.is_empty())
    }

    /// Returns a reference with plural name and group if this one names a built-in resource, for example by its short
    /// name `po`. Otherwise returns a copy.
    #[must_use]
    pub fn canonical(&self) -> Self {
        match built_in(self) {
            Some(known) => {
                Self { resource: known.plural.into(), version: self.version.clone(), group: Some(known.group.into()) }
            }
            None => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_resolves_names_like_discovery() {
        let is = |text: &str, group: &'static str, plural: &'static str, namespaced| {
            assert_eq!(built_in(&text.parse().unwrap()), Some(BuiltIn { group, plural, namespaced }), "{text}");
        };
        is("pods", "", "pods", true);
        is("po", "", "pods", true);
        is("node", "", "nodes", false);
        is("deploy", "apps", "deployments", true);
        is("deployments.v1.apps", "apps", "deployments", true);
        is("pods.v1", "", "pods", true);
        is("events", "", "events", true);
        is("events.events.k8s.io", "events.k8s.io", "events", true);
        is("crd", "apiextensions.k8s.io", "customresourcedefinitions", false);
        assert_eq!(built_in(&"widgets".parse().unwrap()), None);
        assert_eq!(built_in(&"deploy.example.com".parse().unwrap()), None);
        assert!(is_built_in("apps", "deployments") && is_built_in("", "pods"));
        assert!(!is_built_in("apps", "deploy") && !is_built_in("example.com", "pods"));
    }

    #[test]
    fn built_in_names_are_singular_and_short_names() {
        let names = |group, plural| built_in_names(group, plural).collect::<Vec<_>>();
        assert_eq!(names("", "pods"), ["pod", "po"]);
        assert_eq!(names("", "endpoints"), ["ep"]);
        assert_eq!(
            names("apiextensions.k8s.io", "customresourcedefinitions"),
            ["customresourcedefinition", "crd", "crds"]
        );
        assert_eq!(names("batch", "jobs"), ["job"]);
        assert!(names("example.com", "pods").is_empty() && names("", "po").is_empty());
    }
}

//! The resources that Kubernetes itself brings, so that rights can be worked out where no cluster can be asked.

use crate::types::ResourceRef;

/// A resource as rights name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Nobody has confirmed it: the text of the configuration was taken at its word.
    pub(super) taken_as_written: bool,
}

/// Group, namespaced, and in that group `plural` or `plural=singular,short,…`.
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

/// What a text of the configuration means without a cluster to ask. What is not built in is taken at its word where it
/// has a group: as a plural, in namespaces if some are configured.
///
/// `None`: a bare name that Kubernetes does not bring, whose group nobody knows.
pub(super) fn named(written: &ResourceRef, has_namespaces: bool) -> Option<Named> {
    let wanted = written.resource.as_str();
    let in_group = |group: &str| written.group.as_ref().is_none_or(|written| written.as_str() == group);
    let words = BUILT_IN.iter().filter(|(group, ..)| in_group(group)).flat_map(|(group, namespaced, words)| {
        words.split_whitespace().map(move |word| (*group, *namespaced, word.split_once('=').unwrap_or((word, ""))))
    });
    let found = words.clone().find(|(.., (plural, _))| *plural == wanted);
    let found = found.or_else(|| words.clone().find(|(.., (_, others))| others.split(',').any(|it| it == wanted)));
    if let Some((group, namespaced, (plural, _))) = found {
        let (group, plural) = (group.to_owned(), plural.to_owned());
        return Some(Named { group, plural, namespaced, taken_as_written: false });
    }
    let group = written.group.as_ref()?.to_string();
    Some(Named { group, plural: wanted.to_owned(), namespaced: has_namespaces, taken_as_written: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(String, String, bool, bool)> {
        let named = named(&text.parse().unwrap(), false)?;
        Some((named.group, named.plural, named.namespaced, named.taken_as_written))
    }

    #[test]
    fn a_name_is_found_as_discovery_would_find_it() {
        let is = |text: &str, group: &str, plural: &str, namespaced| {
            assert_eq!(of(text), Some((group.to_owned(), plural.to_owned(), namespaced, false)), "{text}");
        };
        is("pods", "", "pods", true);
        is("po", "", "pods", true);
        is("node", "", "nodes", false);
        is("deploy", "apps", "deployments", true);
        is("deployments.v1.apps", "apps", "deployments", true);
        is("events", "", "events", true);
        is("events.events.k8s.io", "events.k8s.io", "events", true);
        is("crd", "apiextensions.k8s.io", "customresourcedefinitions", false);
        assert_eq!(of("widgets"), None);
        assert_eq!(of("pods.v1"), of("pods"), "the core group, written out");
        assert_eq!(of("widgets.example.com"), Some(("example.com".to_owned(), "widgets".to_owned(), false, true)));
    }
}

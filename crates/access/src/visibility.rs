//! Decides which objects of one resource a reader sees, by cluster and namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::namespaces::Namespaces;
use crate::reader::Grants;
use crate::rule::{Rule, is_secrets};
use crate::visible::Visible;
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName};

/// A cluster's answers to the access reviews of one reader, verb and resource.
///
/// If the reader may not read all namespaces, only the namespaces that the cluster has allowed are visible.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReviewedCluster {
    /// Whether the reader may read all namespaces; `None` if the cluster gave no answer about this.
    pub everywhere: Option<bool>,
    /// Namespaces that the cluster answered for, each with whether the reader may read it.
    pub namespaces: BTreeMap<SmolStr, bool>,
    /// Why some answers are missing; `None` if the cluster has answered every review.
    pub failure: Option<Arc<str>>,
}

impl ReviewedCluster {
    fn visible(&self) -> Visible {
        if self.everywhere == Some(true) {
            return Visible::Everything;
        }
        let allowed: Vec<_> = self.namespaces.iter().filter(|(_, is_allowed)| **is_allowed).map(|(it, _)| it).collect();
        if allowed.is_empty() { Visible::Nothing } else { Visible::Namespaces(Namespaces::new(allowed)) }
    }

    fn sees(&self, namespace: Option<&str>) -> bool {
        self.everywhere == Some(true)
            || namespace.is_some_and(|namespace| self.namespaces.get(namespace) == Some(&true))
    }

    fn sees_any(&self) -> bool {
        self.everywhere == Some(true) || self.namespaces.values().any(|is_allowed| *is_allowed)
    }
}

/// Answers to access reviews, by cluster.
pub type Reviewed = BTreeMap<ClusterName, ReviewedCluster>;

/// Objects of one resource that a reader sees. Cheap to clone.
///
/// The methods evaluate the rules with the cluster's labels that the caller passes. So a label change can show or hide
/// the cluster's objects.
#[derive(Clone, PartialEq, Debug)]
pub struct Visibility(Kind);

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Everything,
    Some(Arc<Granted>),
}

#[derive(PartialEq, Debug)]
struct Granted {
    /// The rules that apply to the resource.
    rules: Vec<Rule>,
    namespaced: bool,
    /// Answers to access reviews; `None` if the reader's rights come from rules alone.
    reviewed: Option<Reviewed>,
}

impl Visibility {
    /// Returns a visibility that shows everything.
    #[must_use]
    pub fn everything() -> Self {
        Self(Kind::Everything)
    }

    /// Returns a visibility that shows nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self(Kind::Some(Arc::new(Granted { rules: Vec::new(), namespaced: true, reviewed: None })))
    }

    /// Returns the visibility of a resource by these grants, before any access review. `serve_secrets`: whether readers
    /// that see everything also see Secrets.
    #[must_use]
    pub fn new(grants: &Grants, resource: &ApiResource, serve_secrets: bool) -> Self {
        if grants.everything && (serve_secrets || !is_secrets(resource)) {
            return Self::everything();
        }
        let rules = grants.rules.iter().filter(|rule| rule.covers(resource)).cloned().collect();
        let reviewed = grants.reviews.then(Reviewed::new);
        Self(Kind::Some(Arc::new(Granted { rules, namespaced: resource.namespaced, reviewed })))
    }

    /// Returns this visibility with `reviewed` in place of earlier answers to access reviews.
    #[must_use]
    pub fn with_reviewed(&self, reviewed: Reviewed) -> Self {
        match &self.0 {
            Kind::Everything => self.clone(),
            Kind::Some(granted) => Self(Kind::Some(Arc::new(Granted {
                rules: granted.rules.clone(),
                namespaced: granted.namespaced,
                reviewed: Some(reviewed),
            }))),
        }
    }

    /// Returns whether every object of every cluster is visible.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(self.0, Kind::Everything)
    }

    /// Returns the answers to access reviews; `None` if the reader's rights do not depend on them.
    #[must_use]
    pub fn reviewed(&self) -> Option<&Reviewed> {
        match &self.0 {
            Kind::Everything => None,
            Kind::Some(granted) => granted.reviewed.as_ref(),
        }
    }

    /// Returns whether the reader may see any object: a rule covers the resource, or clusters decide by access reviews.
    #[must_use]
    pub fn may_see_some(&self) -> bool {
        match &self.0 {
            Kind::Everything => true,
            Kind::Some(granted) => !granted.rules.is_empty() || granted.reviewed.is_some(),
        }
    }

    /// Returns whether rules alone show all objects of a cluster, so that no access review is needed.
    #[must_use]
    pub fn sees_all_by_rules(&self, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
        match &self.0 {
            Kind::Everything => true,
            Kind::Some(granted) => granted.of(cluster, labels).any(|visible| visible == Visible::Everything),
        }
    }

    /// Returns whether rules alone make a namespace visible, so that no access review is needed. `namespace` is `None`
    /// for objects without a namespace.
    #[must_use]
    pub fn sees_by_rules(&self, cluster: &ClusterName, labels: &ClusterLabels, namespace: Option<&str>) -> bool {
        match &self.0 {
            Kind::Everything => true,
            Kind::Some(granted) => granted.of(cluster, labels).any(|visible| visible.sees(namespace)),
        }
    }

    /// Returns whether rules show at least one namespace of a cluster.
    #[must_use]
    pub fn sees_some_by_rules(&self, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
        match &self.0 {
            Kind::Everything => true,
            Kind::Some(granted) => granted.of(cluster, labels).any(|visible| !visible.is_nothing()),
        }
    }

    /// Returns the visible objects of a cluster.
    #[must_use]
    pub fn visible(&self, cluster: &ClusterName, labels: &ClusterLabels) -> Visible {
        match &self.0 {
            Kind::Everything => Visible::Everything,
            Kind::Some(granted) => {
                let reviewed = granted.review_of(cluster).map_or(Visible::Nothing, ReviewedCluster::visible);
                granted.of(cluster, labels).fold(reviewed, Visible::union)
            }
        }
    }

    /// Returns whether the objects in `namespace` of a cluster are visible. `namespace` is `None` for objects without a
    /// namespace.
    #[must_use]
    pub fn sees(&self, cluster: &ClusterName, labels: &ClusterLabels, namespace: Option<&str>) -> bool {
        match &self.0 {
            Kind::Everything => true,
            Kind::Some(granted) => {
                granted.review_of(cluster).is_some_and(|review| review.sees(namespace))
                    || granted.of(cluster, labels).any(|visible| visible.sees(namespace))
            }
        }
    }

    /// Returns whether it is already known if a namespace is visible, from rules or earlier answers to access reviews.
    /// If not known, the cluster must be asked by an access review.
    ///
    /// `namespace` is `None` for objects without a namespace.
    #[must_use]
    pub fn is_decided(&self, cluster: &ClusterName, labels: &ClusterLabels, namespace: Option<&str>) -> bool {
        let Some(reviewed) = self.reviewed() else { return true };
        let is_known = |review: &ReviewedCluster| match (review.everywhere, namespace) {
            (Some(true), _) => true,
            (everywhere, None) => everywhere.is_some(),
            (_, Some(namespace)) => review.namespaces.contains_key(namespace),
        };
        reviewed.get(cluster).is_some_and(is_known) || self.sees_by_rules(cluster, labels, namespace)
    }

    /// Returns the clusters that did not answer all access reviews, each with the reason.
    pub fn unanswered(&self) -> impl Iterator<Item = (&ClusterName, &Arc<str>)> {
        let reviewed = self.reviewed().into_iter().flatten();
        reviewed.filter_map(|(cluster, review)| Some((cluster, review.failure.as_ref()?)))
    }

    /// Returns whether any object of a cluster may be visible, by rules or by access reviews.
    #[must_use]
    pub fn sees_any(&self, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
        match &self.0 {
            Kind::Everything => true,
            Kind::Some(granted) => {
                granted.review_of(cluster).is_some_and(ReviewedCluster::sees_any)
                    || granted.of(cluster, labels).any(|visible| !visible.is_nothing())
            }
        }
    }
}

impl Granted {
    fn review_of(&self, cluster: &ClusterName) -> Option<&ReviewedCluster> {
        self.reviewed.as_ref()?.get(cluster)
    }

    /// Returns the visible objects of the cluster, one value for each rule that selects the cluster.
    fn of<'g>(&'g self, cluster: &'g ClusterName, labels: &'g ClusterLabels) -> impl Iterator<Item = Visible> + 'g {
        let rules = self.rules.iter().filter(move |rule| rule.selects(cluster, labels));
        rules.map(|rule| rule.visible(self.namespaced))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::ResourceMatch;
    use informer_hub_types::{ClusterSelector, Groups, Gvr};

    fn pods() -> ApiResource {
        ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
    }

    fn labels(tier: &str) -> ClusterLabels {
        [("tier".to_owned(), tier.to_owned())].into()
    }

    fn rule(tier: Option<&str>, namespaces: &[&str]) -> Rule {
        let clusters = tier.map_or(ClusterSelector::All, |tier| ClusterSelector::Labels(labels(tier)));
        Rule::new(clusters, namespaces, vec![ResourceMatch::Groups(Groups::All)], Vec::new())
    }

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    fn granted(rules: Vec<Rule>, reviews: bool) -> Visibility {
        let grants = Grants { rules: rules.into(), reviews, everything: false };
        Visibility::new(&grants, &pods(), false)
    }

    #[test]
    fn rules_add_up_and_follow_the_labels_of_a_cluster() {
        let seen = granted(vec![rule(Some("prod"), &["shop"]), rule(None, &["team-*"])], false);
        let (a, prod, dev) = (name("a"), labels("prod"), labels("dev"));
        for (labels, namespace, expected) in [
            (&prod, Some("shop"), true),
            (&dev, Some("shop"), false),
            (&prod, Some("team-x"), true),
            (&dev, Some("team-x"), true),
            (&prod, Some("pay"), false),
            (&prod, None, false),
        ] {
            assert_eq!(seen.sees(&a, labels, namespace), expected, "{labels:?} {namespace:?}");
            assert_eq!(seen.visible(&a, labels).sees(namespace), expected, "{labels:?} {namespace:?}");
        }
        assert!(granted(vec![rule(Some("prod"), &[])], false).sees(&a, &prod, None));
        assert!(!granted(vec![rule(Some("prod"), &["*"])], false).sees_any(&a, &dev));
    }

    #[test]
    fn objects_without_a_namespace_need_a_rule_for_every_namespace() {
        let nodes = ApiResource { namespaced: false, ..pods() };
        for (namespaces, expected) in
            [(&["shop"][..], false), (&["*"], true), (&["shop", "*"], true), (&["sh*"], false)]
        {
            let grants = Grants { rules: [rule(None, namespaces)].into(), ..Grants::default() };
            let seen = Visibility::new(&grants, &nodes, false);
            assert_eq!(seen.sees(&name("a"), &labels("prod"), None), expected, "{namespaces:?}");
            assert_eq!(seen.sees_any(&name("a"), &labels("prod")), expected, "{namespaces:?}");
        }
    }

    #[test]
    fn unreviewed_clusters_and_namespaces_are_invisible() {
        let (a, b, prod) = (name("a"), name("b"), labels("prod"));
        let asked = granted(Vec::new(), true);
        assert!(!asked.sees_any(&a, &prod) && asked.may_see_some());
        let namespaces = [("shop".into(), true), ("pay".into(), false)].into();
        let reviewed = ReviewedCluster { everywhere: Some(false), namespaces, failure: None };
        let all = ReviewedCluster { everywhere: Some(true), ..ReviewedCluster::default() };
        let seen = asked.with_reviewed([(a.clone(), reviewed), (b.clone(), all)].into());
        let is_seen = |cluster, namespace| seen.sees(cluster, &prod, namespace);
        assert!(is_seen(&a, Some("shop")) && !is_seen(&a, Some("pay")));
        assert!(!is_seen(&a, Some("other")) && !is_seen(&a, None));
        assert!(is_seen(&b, Some("other")) && is_seen(&b, None));
        assert!(!seen.sees_any(&name("c"), &prod));
    }

    #[test]
    fn secrets_of_unrestricted_readers_depend_on_the_setting() {
        let secrets = ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true };
        let grants = Grants { everything: true, ..Grants::default() };
        let sees = |resource: &ApiResource, served| Visibility::new(&grants, resource, served).is_everything();
        assert!(sees(&pods(), false) && sees(&secrets, true) && !sees(&secrets, false));
        assert!(!Visibility::new(&grants, &secrets, false).may_see_some());
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(512))]

        #[test]
        fn three_ways_to_ask_agree(
            rules in prop::collection::vec((prop::option::of("prod|dev"), prop::collection::vec("[ab*]{1,2}", 0..3)), 0..4),
            everywhere in prop::option::of(any::<bool>()),
            reviewed in prop::collection::btree_map("[ab]{1,2}", any::<bool>(), 0..3),
            reviews in any::<bool>(),
            tier in "prod|dev",
            namespace in prop::option::of("[ab]{1,2}"),
        ) {
            let of = |(tier, namespaces): &(Option<String>, Vec<String>)| {
                rule(tier.as_deref(), &namespaces.iter().map(String::as_str).collect::<Vec<_>>())
            };
            let seen = granted(rules.iter().map(of).collect(), reviews);
            let namespaces = reviewed.iter().map(|(name, is_allowed)| (name.into(), *is_allowed)).collect();
            let answers = ReviewedCluster { everywhere, namespaces, failure: None };
            let seen = if reviews { seen.with_reviewed([(name("a"), answers)].into()) } else { seen };
            let (a, labels, namespace) = (name("a"), labels(&tier), namespace.as_deref());
            let visible = seen.visible(&a, &labels);
            prop_assert_eq!(seen.sees(&a, &labels, namespace), visible.sees(namespace));
            prop_assert_eq!(seen.sees_any(&a, &labels), !visible.is_nothing());
            prop_assert!(!seen.sees_by_rules(&a, &labels, namespace) || visible.sees(namespace));
            prop_assert!(!seen.sees_all_by_rules(&a, &labels) || visible == Visible::Everything);
        }
    }
}

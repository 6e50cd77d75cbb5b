//! Invented Deployments and ReplicaSets.

use super::names::{App, Metadata, joined};
use super::pods::{Written, container, pod_annotations, spec_end, spec_middle, volumes};
use super::random::Random;

fn template(random: &mut Random, app: &App, labels: &str) -> String {
    let annotations = match pod_annotations(random) {
        annotations if annotations.is_empty() => annotations,
        annotations => format!(r#","annotations":{{{annotations}}}"#),
    };
    let token = random.suffix(5);
    format!(
        r#"{{"metadata":{{"labels":{{{labels}}}{annotations}}},"spec":{{"volumes":[{}],"containers":[{}],{}{}}}}}"#,
        volumes(random, app, &token),
        container(random, app, 0, &token),
        spec_middle(random, app, false),
        spec_end(random, false),
    )
}

fn annotations(random: &mut Random, app: &App) -> String {
    joined(&[
        format!(r#""deployment.kubernetes.io/revision":"{}""#, 1 + random.below(60)),
        random.maybe(45, |_| {
            format!(
                r#""meta.helm.sh/release-name":"{}","meta.helm.sh/release-namespace":"{}""#,
                app.name, app.namespace
            )
        }),
        random.maybe(15, |_| {
            format!(r#""argocd.argoproj.io/tracking-id":"{}:apps/Deployment:{}/{}""#, app.name, app.namespace, app.name)
        }),
    ])
}

pub(crate) fn deployment(random: &mut Random, app: &App) -> (String, Written) {
    let annotations = annotations(random, app);
    let (metadata, uid, version) = Metadata {
        name: &app.name,
        generate_name: None,
        namespace: Some(app.namespace),
        has_generation: true,
        labels: &app.labels,
        annotations: &annotations,
        owner: None,
    }
    .write(random);
    let replicas = random.below(10);
    let strategy = random.pick(&[
        r#"{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}"#,
        r#"{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}"#,
        r#"{"type":"Recreate"}"#,
    ]);
    let template = template(random, app, &app.labels);
    let (time, hash, name) = (random.time(), random.suffix(9), &app.name);
    let history = random.pick(&["10", "10", "3", "5"]);
    let json = format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment",{metadata},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{{}}}}},"template":{template},"strategy":{strategy},"revisionHistoryLimit":{history},"progressDeadlineSeconds":600}},"status":{{"observedGeneration":{},"replicas":{replicas},"updatedReplicas":{replicas},"readyReplicas":{replicas},"availableReplicas":{replicas},"conditions":[{{"type":"Available","status":"True","lastUpdateTime":"{time}","lastTransitionTime":"{time}","reason":"MinimumReplicasAvailable","message":"Deployment has minimum availability."}},{{"type":"Progressing","status":"True","lastUpdateTime":"{time}","lastTransitionTime":"{time}","reason":"NewReplicaSetAvailable","message":"ReplicaSet \"{name}-{hash}\" has successfully progressed."}}]}}}}"#,
        app.labels,
        1 + random.below(40),
    );
    (json, Written { namespace: Some(app.namespace.to_owned()), name: name.clone(), uid, version })
}

pub(crate) fn replica_set(random: &mut Random, app: &App) -> (String, Written) {
    let hash = random.suffix(9);
    let name = format!("{}-{hash}", app.name);
    let labels = joined(&[app.labels.clone(), format!(r#""pod-template-hash":"{hash}""#)]);
    let replicas = if random.chance(70) { 0 } else { 1 + random.below(9) };
    let counts = format!(
        r#""deployment.kubernetes.io/desired-replicas":"{replicas}","deployment.kubernetes.io/max-replicas":"{}",{}"#,
        replicas + 1,
        annotations(random, app)
    );
    let (metadata, uid, version) = Metadata {
        name: &name,
        generate_name: None,
        namespace: Some(app.namespace),
        has_generation: true,
        labels: &labels,
        annotations: &counts,
        owner: Some(("apps/v1", "Deployment", &app.name)),
    }
    .write(random);
    let template = template(random, app, &labels);
    let ready = if replicas == 0 {
        String::new()
    } else {
        format!(r#""fullyLabeledReplicas":{replicas},"readyReplicas":{replicas},"availableReplicas":{replicas},"#)
    };
    let json = format!(
        r#"{{"apiVersion":"apps/v1","kind":"ReplicaSet",{metadata},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{{labels}}}}},"template":{template}}},"status":{{"replicas":{replicas},{ready}"observedGeneration":{}}}}}"#,
        1 + random.below(5)
    );
    (json, Written { namespace: Some(app.namespace.to_owned()), name, uid, version })
}

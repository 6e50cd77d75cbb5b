//! Table columns of horizontal pod autoscalers.

use serde::Deserialize;

use super::Row;
use super::fields::{List, Meta, Scalar, Text};
use super::kind::{AGE, Kind, NAME, cells, decode, text};

pub(super) const HORIZONTAL_POD_AUTOSCALERS: Kind = Kind {
    columns: &[
        NAME,
        text("Reference", "Object that is scaled"),
        text("Targets", "Present and desired values of the metrics"),
        text("MinPods", "Least number of pods"),
        text("MaxPods", "Greatest number of pods"),
        text("Replicas", "Number of pods"),
        AGE,
    ],
    print: autoscaler,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Autoscaler<'j> {
    #[serde(borrow)]
    api_version: Text<'j>,
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: Spec<'j>,
    #[serde(borrow)]
    status: Status<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'j> {
    #[serde(borrow)]
    scale_target_ref: Reference<'j>,
    min_replicas: Option<i64>,
    max_replicas: i64,
    #[serde(borrow)]
    metrics: List<Metric<'j>>,
    /// Target CPU utilization in percent, the only target of `autoscaling/v1`.
    #[serde(rename = "targetCPUUtilizationPercentage")]
    target_cpu: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reference<'j> {
    #[serde(borrow)]
    kind: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status<'j> {
    #[serde(rename = "currentReplicas")]
    replicas: i64,
    #[serde(borrow, rename = "currentMetrics")]
    metrics: List<Metric<'j>>,
    /// Current CPU utilization in percent, the only metric of `autoscaling/v1`.
    #[serde(rename = "currentCPUUtilizationPercentage")]
    cpu: Option<i64>,
}

/// A metric with its target (in the specification) or its current value (in the status).
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metric<'j> {
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    #[serde(borrow)]
    resource: Option<Source<'j>>,
    #[serde(borrow)]
    container_resource: Option<Source<'j>>,
    #[serde(borrow)]
    pods: Option<Source<'j>>,
    #[serde(borrow)]
    object: Option<Source<'j>>,
    #[serde(borrow)]
    external: Option<Source<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Source<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    #[serde(alias = "current")]
    target: Target,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Target {
    value: Option<Scalar>,
    average_value: Option<Scalar>,
    average_utilization: Option<i64>,
}

impl<'j> Metric<'j> {
    /// Returns the member with the data of a metric of type `kind`; `None` if missing or the type is unknown.
    fn source(&self, kind: &str) -> Option<&Source<'j>> {
        match kind {
            "Resource" => self.resource.as_ref(),
            "ContainerResource" => self.container_resource.as_ref(),
            "Pods" => self.pods.as_ref(),
            "Object" => self.object.as_ref(),
            "External" => self.external.as_ref(),
            _ => None,
        }
    }

    /// Returns a metric as `current/target`. `self` has the target value, `status` the current value. The text of a
    /// resource's metric starts with the resource's name, as in `cpu: 20%/80%`.
    fn text(&self, status: Option<&Self>) -> String {
        let kind = &*self.kind;
        let Some(Source { name, target }) = self.source(kind) else { return "<unknown type>".to_owned() };
        let current = status.and_then(|status| status.source(kind)).map(|source| &source.target);
        let average = |current: &Target| quantity(current.average_value.as_ref());
        match (kind, &target.average_value) {
            ("Pods", value) => format!("{}/{}", shown(current.map(average)), quantity(value.as_ref())),
            ("Resource" | "ContainerResource", Some(value)) => {
                format!("{name}: {}/{value}", shown(current.map(average)))
            }
            ("Resource" | "ContainerResource", None) => {
                let percent = |utilization: i64| format!("{utilization}%");
                let current = current.and_then(|current| current.average_utilization).map(percent);
                let target = target.average_utilization.map_or_else(|| "<auto>".to_owned(), percent);
                format!("{name}: {}/{target}", shown(current))
            }
            (_, Some(value)) => {
                let current = current.and_then(|current| current.average_value.as_ref());
                format!("{}/{value} (avg)", shown(current.map(ToString::to_string)))
            }
            (_, None) => {
                let current = current.map(|current| quantity(current.value.as_ref()));
                format!("{}/{}", shown(current), quantity(target.value.as_ref()))
            }
        }
    }
}

fn shown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "<unknown>".to_owned())
}

/// Returns a quantity as text; `<nil>`, as in Go, if it is missing.
fn quantity(value: Option<&Scalar>) -> String {
    value.map_or_else(|| "<nil>".to_owned(), ToString::to_string)
}

impl Autoscaler<'_> {
    /// Returns the first two metrics, as `current/target`. Metrics that `autoscaling/v1` keeps in annotations are
    /// ignored.
    fn targets(&self) -> String {
        const SHOWN: usize = 2;
        const DEFAULT_CPU: i64 = 80;
        let metrics = &self.spec.metrics;
        if *self.api_version == *"autoscaling/v1" {
            let current = self.status.cpu.map(|current| format!("{current}%"));
            return format!("cpu: {}/{}%", shown(current), self.spec.target_cpu.unwrap_or(DEFAULT_CPU));
        }
        if metrics.is_empty() {
            return "<none>".to_owned();
        }
        let statuses = self.status.metrics.iter().map(Some).chain(std::iter::repeat(None));
        let texts: Vec<_> =
            metrics.iter().zip(statuses).take(SHOWN).map(|(metric, status)| metric.text(status)).collect();
        let joined = texts.join(", ");
        if metrics.len() > SHOWN { format!("{joined} + {} more...", metrics.len() - SHOWN) } else { joined }
    }
}

fn autoscaler(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let autoscaler: Autoscaler<'_> = decode(json)?;
    let Autoscaler { metadata, spec, status, .. } = &autoscaler;
    cells![
        &metadata.name,
        format!("{}/{}", spec.scale_target_ref.kind, spec.scale_target_ref.name),
        autoscaler.targets(),
        spec.min_replicas.map_or_else(|| "<unset>".to_owned(), |replicas| replicas.to_string()),
        spec.max_replicas,
        status.replicas,
        metadata.creation_timestamp.age(now),
    ]
}

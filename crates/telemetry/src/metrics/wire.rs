//! OTLP export requests, built from a snapshot of the metrics.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, exemplar, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource as WireResource;
use opentelemetry_sdk::Resource;

use super::catalogue::{Id, Kind};
use super::snapshot::{LabelSet, Snapshot};
use informer_hub_types::{self as types, HistogramState};

/// Maximum number of values per request, about two megabytes. Receivers reject much larger requests.
const PER_REQUEST: usize = 10_000;
/// Number of values as which one histogram counts towards [`PER_REQUEST`]: its buckets, sum and count.
const PER_HISTOGRAM: usize = 20;

/// Builder of OTLP requests for the metrics of this process.
#[derive(Debug)]
pub(super) struct Sender {
    resource: WireResource,
    /// Time from which the counters count, in Unix nanoseconds.
    since: u64,
}

impl Sender {
    pub(super) fn new(resource: &Resource, since: u64) -> Self {
        let attributes = resource.iter().map(|(key, value)| pair(key.as_str(), &value.to_string())).collect();
        Self { resource: WireResource { attributes, ..WireResource::default() }, since }
    }

    /// Returns the requests for a snapshot, built one at a time, since they are large.
    pub(super) fn requests(&self, snapshot: &Snapshot) -> impl Iterator<Item = ExportMetricsServiceRequest> {
        let mut pieces = Id::ALL.iter().flat_map(|&id| self.pieces(snapshot, id)).peekable();
        std::iter::from_fn(move || {
            pieces.peek()?;
            let (mut metrics, mut values) = (Vec::new(), 0);
            while let Some((metric, count)) = pieces.next_if(|(_, count)| values == 0 || values + count <= PER_REQUEST)
            {
                values += count;
                metrics.push(metric);
            }
            Some(self.request(metrics))
        })
    }

    fn request(&self, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
        let scope = InstrumentationScope {
            name: super::super::otlp::NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        ExportMetricsServiceRequest { resource_metrics }
    }

    /// Converts a metric to OTLP, in pieces of at most [`PER_REQUEST`] values. Returns each piece with its number of
    /// values.
    fn pieces(&self, snapshot: &Snapshot, id: Id) -> impl Iterator<Item = (Metric, usize)> {
        let points = snapshot.points_of(id).chunks(PER_REQUEST).map(move |points| {
            let values = points.iter().map(|point| NumberDataPoint {
                attributes: attributes(snapshot, id, point.set, point.word),
                start_time_unix_nano: if id.metric().kind == Kind::Counter { self.since } else { 0 },
                time_unix_nano: nanos(snapshot.taken()),
                value: Some(number_data_point::Value::AsDouble(point.value)),
                ..NumberDataPoint::default()
            });
            let data_points = values.collect();
            let data = match id.metric().kind {
                Kind::Counter => {
                    Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true })
                }
                Kind::Gauge | Kind::Histogram => Data::Gauge(Gauge { data_points }),
            };
            (metric(id, data), points.len())
        });
        let histograms = snapshot.histograms_of(id).chunks(PER_REQUEST / PER_HISTOGRAM).map(move |histograms| {
            let points = histograms.iter().map(|(set, word, state)| HistogramDataPoint {
                attributes: attributes(snapshot, id, *set, word),
                start_time_unix_nano: self.since,
                time_unix_nano: nanos(snapshot.taken()),
                ..histogram(state)
            });
            let data = Histogram { data_points: points.collect(), aggregation_temporality: CUMULATIVE };
            (metric(id, Data::Histogram(data)), histograms.len() * PER_HISTOGRAM)
        });
        points.chain(histograms)
    }
}

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

fn metric(id: Id, data: Data) -> Metric {
    let metric = id.metric();
    Metric {
        name: metric.otlp_name(),
        description: metric.help().to_owned(),
        unit: metric.otlp_unit().to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn histogram(state: &HistogramState) -> HistogramDataPoint {
    HistogramDataPoint {
        count: state.count(),
        sum: Some(state.sum),
        bucket_counts: state.counts.clone(),
        explicit_bounds: state.bounds.to_vec(),
        exemplars: state.exemplars.iter().flatten().map(exemplar).collect(),
        ..HistogramDataPoint::default()
    }
}

fn exemplar(seen: &types::Exemplar) -> Exemplar {
    Exemplar {
        time_unix_nano: nanos(seen.at),
        span_id: seen.span.to_be_bytes().to_vec(),
        trace_id: seen.trace.to_be_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(seen.seconds)),
        ..Exemplar::default()
    }
}

fn attributes(snapshot: &Snapshot, id: Id, set: LabelSet, word: &str) -> Vec<KeyValue> {
    let shared = snapshot.set(set).pairs.iter().map(|(name, value)| pair(name, value));
    let last = id.metric().labels.last().filter(|_| !word.is_empty()).map(|name| pair(name, word));
    shared.chain(last).collect()
}

fn pair(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn nanos(at: jiff::Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender() -> Sender {
        Sender::new(&Resource::builder_empty().with_service_name("hub").build(), 5)
    }

    fn metrics(request: &ExportMetricsServiceRequest) -> &[Metric] {
        &request.resource_metrics[0].scope_metrics[0].metrics
    }

    #[test]
    fn counter_becomes_a_cumulative_sum_and_gauge_stays_a_gauge() {
        let mut snapshot = Snapshot::new(jiff::Timestamp::from_second(7).unwrap());
        let cluster = snapshot.labels(&[("cluster", "a")]);
        snapshot.count_word(Id::Lists, cluster, "first", 3);
        snapshot.put(Id::ClusterStale, cluster, 1.5);
        let requests: Vec<_> = sender().requests(&snapshot).collect();
        let [stale, lists] = metrics(&requests[0]) else { panic!("two metrics: {requests:?}") };
        assert_eq!((stale.name.as_str(), stale.unit.as_str()), ("informer_hub.cluster_stale", "s"));
        let Some(Data::Gauge(gauge)) = &stale.data else { panic!("{stale:?}") };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(1.5)));
        assert_eq!(lists.name, "informer_hub.lists");
        let Some(Data::Sum(sum)) = &lists.data else { panic!("{lists:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 7_000_000_000));
        assert_eq!(point.attributes, [pair("cluster", "a"), pair("reason", "first")]);
    }

    #[test]
    fn large_snapshot_is_split_into_several_requests() {
        let mut snapshot = Snapshot::new(jiff::Timestamp::UNIX_EPOCH);
        for cluster in 0..(2 * PER_REQUEST + 7) {
            let set = snapshot.labels(&[("cluster", &cluster.to_string())]);
            snapshot.flag(Id::ClusterUp, set, true);
            if cluster < 5 {
                snapshot.put(Id::ClusterStale, set, 0.0);
            }
        }
        let requests: Vec<_> = sender().requests(&snapshot).collect();
        let count = |metric: &Metric| match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => gauge.data_points.len(),
            other => panic!("{other:?}"),
        };
        let sizes: Vec<usize> = requests.iter().map(|request| metrics(request).iter().map(count).sum()).collect();
        assert_eq!(sizes, [PER_REQUEST, PER_REQUEST, 12]);
        let names = |request| metrics(request).iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(&requests[2]), ["informer_hub.cluster_up", "informer_hub.cluster_stale"]);
    }

    #[test]
    fn histograms_are_split_into_requests_by_their_buckets() {
        let mut snapshot = Snapshot::new(jiff::Timestamp::UNIX_EPOCH);
        let most = PER_REQUEST / PER_HISTOGRAM;
        for cluster in 0..=most {
            let set = snapshot.labels(&[("cluster", &cluster.to_string())]);
            snapshot.histogram(Id::ListDuration, set, "", HistogramState::default());
        }
        let sender = sender();
        let sizes = sender.requests(&snapshot).map(|request| match &metrics(&request)[0].data {
            Some(Data::Histogram(histogram)) => histogram.data_points.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [most, 1]);
    }
}

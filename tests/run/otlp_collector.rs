//! OTLP receiver that decodes a hub's HTTP exports with OpenTelemetry's own messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point::Value as Number};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::receiver::read_request;

pub(crate) type Attributes = BTreeMap<String, String>;

/// Exports that a collector has received.
#[derive(Default)]
pub(crate) struct Collected {
    pub services: Vec<String>,
    /// Name, attributes and duration of each span.
    pub spans: Vec<(String, Attributes, Duration)>,
    /// Trace and span ids, in hexadecimal.
    pub ids: BTreeSet<(String, String)>,
    /// Name and parent span of each span, by its ids.
    pub tree: BTreeMap<(String, String), (String, String)>,
    /// Last value of each metric, by its attributes.
    pub metrics: BTreeMap<(String, Attributes), f64>,
    /// Unit and kind of each metric.
    pub kinds: BTreeMap<String, (String, &'static str)>,
    /// Number of requests with metrics.
    pub exports: u64,
    /// Headers of the last request with metrics.
    pub headers: http::HeaderMap,
    pub problems: Vec<String>,
}

impl Collected {
    /// Returns the value of the metric whose attributes have these values.
    pub(crate) fn metric(&self, name: &str, values: &[&str]) -> Option<f64> {
        let mut all = self.metrics.iter().filter(|((of, _), _)| of == name);
        all.find(|((_, of), _)| of.values().map(String::as_str).eq(values.iter().copied())).map(|(_, value)| *value)
    }
}

pub(crate) async fn collector() -> (String, Arc<Mutex<Collected>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let collected = Arc::new(Mutex::new(Collected::default()));
    let sink = Arc::clone(&collected);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move {
                let (path, headers, body) = read_request(&mut stream).await?;
                collect(&mut sink.lock(), &path, headers, &body);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\nconnection: close\r\n\
                            content-length: 0\r\n\r\n";
                stream.write_all(head.as_bytes()).await.ok()
            });
        }
    });
    (url, collected)
}

fn attributes(pairs: &[KeyValue]) -> Attributes {
    let text = |pair: &KeyValue| match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    };
    pairs.iter().filter_map(|pair| Some((pair.key.clone(), text(pair)?))).collect()
}

fn collect(collected: &mut Collected, path: &str, headers: http::HeaderMap, body: &[u8]) {
    if headers.get("content-type").is_none_or(|kind| kind != "application/x-protobuf") {
        collected.problems.push(format!("{headers:?}"));
    }
    match path {
        "/v1/traces" => collect_traces(collected, body),
        "/v1/metrics" => {
            collected.headers = headers;
            collect_metrics(collected, body);
        }
        other => collected.problems.push(format!("a request to {other}")),
    }
}

fn collect_traces(collected: &mut Collected, body: &[u8]) {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return collected.problems.push("no OTLP traces".to_owned());
    };
    for resource in request.resource_spans {
        let of = attributes(&resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        collected.services.push(of.get("service.name").cloned().unwrap_or_default());
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let took = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
            let trace = span.trace_id.try_into().map(u128::from_be_bytes).unwrap();
            let id = span.span_id.try_into().map(u64::from_be_bytes).unwrap();
            let ids = (format!("{trace:032x}"), format!("{id:016x}"));
            collected.ids.insert(ids.clone());
            let parent = span.parent_span_id.try_into().map_or(0, u64::from_be_bytes);
            collected.tree.insert(ids, (span.name.clone(), format!("{parent:016x}")));
            collected.spans.push((span.name, attributes(&span.attributes), took));
        }
    }
}

fn collect_metrics(collected: &mut Collected, body: &[u8]) {
    let Ok(request) = ExportMetricsServiceRequest::decode(body) else {
        return collected.problems.push("no OTLP metrics".to_owned());
    };
    collected.exports += 1;
    for resource in request.resource_metrics {
        let of = attributes(&resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        collected.services.push(of.get("service.name").cloned().unwrap_or_default());
        resource
            .scope_metrics
            .into_iter()
            .flat_map(|scope| scope.metrics)
            .for_each(|one| collect_metric(collected, one));
    }
}

fn collect_metric(collected: &mut Collected, metric: Metric) {
    let (kind, points) = match metric.data {
        Some(Data::Sum(sum)) => ("sum", sum.data_points),
        Some(Data::Gauge(gauge)) => ("gauge", gauge.data_points),
        Some(Data::Histogram(histogram)) => {
            for point in histogram.data_points {
                #[expect(clippy::cast_precision_loss, reason = "few")]
                let count = point.count as f64;
                if point.bucket_counts.iter().sum::<u64>() != point.count {
                    collected.problems.push(format!("buckets of {}: {point:?}", metric.name));
                }
                collected.metrics.insert((metric.name.clone(), attributes(&point.attributes)), count);
            }
            ("histogram", Vec::new())
        }
        other => return collected.problems.push(format!("{}: {other:?}", metric.name)),
    };
    for point in points {
        let Some(Number::AsDouble(value)) = point.value else {
            return collected.problems.push(format!("{}: {point:?}", metric.name));
        };
        collected.metrics.insert((metric.name.clone(), attributes(&point.attributes)), value);
    }
    collected.kinds.insert(metric.name, (metric.unit, kind));
}

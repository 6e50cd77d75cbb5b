//! Text formats of a snapshot: Prometheus' own, and OpenMetrics, which adds units and exemplars.

use std::fmt::{self, Write};

use super::catalogue::{CATALOGUE, Id, Metric};
use super::snapshot::{LabelSet, Snapshot};
use informer_hub_types::{Exemplar, HistogramState};

/// Text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format that an `Accept` header requests: OpenMetrics if its weight is at least that of plain text,
    /// else Prometheus.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let weight = |wanted: &str| {
            let mut ranges = accept.split(',').filter_map(|range| {
                let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
                let weight =
                    || parameters.split(';').find_map(|one| one.trim().strip_prefix("q="))?.trim().parse().ok();
                (kind.trim().eq_ignore_ascii_case(wanted)).then(|| weight().unwrap_or(1.0_f32))
            });
            ranges.next()
        };
        let plain = weight("text/plain").unwrap_or(0.0);
        match weight("application/openmetrics-text") {
            Some(open) if open > 0.0 && open >= plain => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Returns the `Content-Type` of the format.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the text of all metrics that have values.
    #[must_use]
    pub fn write(self, snapshot: &Snapshot) -> String {
        // Estimated size of a value with two labels.
        let mut text = String::with_capacity(CATALOGUE.len() * 160 + snapshot.len() * 96);
        // Ignore the error: writing to a string cannot fail.
        let _ = self.write_to(&mut text, snapshot);
        text
    }

    fn write_to(self, out: &mut String, snapshot: &Snapshot) -> fmt::Result {
        for &id in Id::ALL {
            let metric = id.metric();
            let (points, histograms) = (snapshot.points_of(id), snapshot.histograms_of(id));
            if points.is_empty() && histograms.is_empty() {
                continue;
            }
            self.write_head(out, metric)?;
            for point in points {
                out.push_str(metric.name);
                write_labels(out, snapshot, metric, (point.set, point.word), None)?;
                writeln!(out, " {}", Number(point.value))?;
            }
            for (set, word, state) in histograms {
                self.write_histogram(out, snapshot, metric, (*set, word), state)?;
            }
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        Ok(())
    }

    fn write_head(self, out: &mut String, metric: &Metric) -> fmt::Result {
        let name = match self {
            Self::Prometheus => metric.name,
            Self::OpenMetrics => metric.family(),
        };
        writeln!(out, "# HELP {name} {}", metric.help())?;
        writeln!(out, "# TYPE {name} {}", metric.kind.as_str())?;
        if self == Self::OpenMetrics && !metric.unit().is_empty() {
            writeln!(out, "# UNIT {name} {}", metric.unit())?;
        }
        Ok(())
    }

    fn write_histogram(
        self,
        out: &mut String,
        snapshot: &Snapshot,
        metric: &Metric,
        labels: (LabelSet, &str),
        state: &HistogramState,
    ) -> fmt::Result {
        let mut total = 0;
        for (at, count) in state.counts.iter().enumerate() {
            total += count;
            let bound = state.bounds.get(at).copied().unwrap_or(f64::INFINITY);
            write!(out, "{}_bucket", metric.name)?;
            write_labels(out, snapshot, metric, labels, Some(Bound { value: bound, format: self }))?;
            write!(out, " {total}")?;
            if let (Self::OpenMetrics, Some(Some(exemplar))) = (self, state.exemplars.get(at)) {
                write_exemplar(out, exemplar)?;
            }
            out.push('\n');
        }
        for (suffix, value) in [("sum", Number(state.sum)), ("count", Number::of(total))] {
            write!(out, "{}_{suffix}", metric.name)?;
            write_labels(out, snapshot, metric, labels, None)?;
            writeln!(out, " {value}")?;
        }
        Ok(())
    }
}

fn write_labels(
    out: &mut String,
    snapshot: &Snapshot,
    metric: &Metric,
    (set, word): (LabelSet, &str),
    bound: Option<Bound>,
) -> fmt::Result {
    let shared = snapshot.set(set).text.as_str();
    let last = metric.labels.last().filter(|_| !word.is_empty());
    if shared.is_empty() && last.is_none() && bound.is_none() {
        return Ok(());
    }
    out.push('{');
    out.push_str(shared);
    let mut comma = if shared.is_empty() { "" } else { "," };
    if let Some(last) = last {
        write!(out, "{comma}{last}=\"{word}\"")?;
        comma = ",";
    }
    if let Some(bound) = bound {
        write!(out, "{comma}le=\"{bound}\"")?;
    }
    out.push('}');
    Ok(())
}

fn write_exemplar(out: &mut String, exemplar: &Exemplar) -> fmt::Result {
    let Exemplar { trace, span, seconds, at } = exemplar;
    write!(out, " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {}", Number(*seconds))?;
    write!(out, " {}.{:03}", at.as_second(), at.subsec_millisecond())
}

/// Formatter of a value; writes integers without a decimal point.
#[derive(Clone, Copy)]
struct Number(f64);

impl Number {
    fn of(count: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "scrapers keep floats")]
        Self(count as f64)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Largest number up to which an `f64` represents every integer: 2^53.
        const WHOLE: f64 = 9_007_199_254_740_992.0;
        let Self(value) = *self;
        if value.fract() == 0.0 && (0.0..WHOLE).contains(&value) {
            // Formatting as an integer takes a third of the time.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the value is a non-negative integer"
            )]
            return write!(f, "{}", value as u64);
        }
        if value.is_infinite() {
            return f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        write!(f, "{value}")
    }
}

/// Formatter of a histogram bucket's upper bound. OpenMetrics requires a decimal point, even for integers.
struct Bound {
    value: f64,
    format: Format,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.format == Format::OpenMetrics && self.value.is_finite() {
            return write!(f, "{:?}", self.value);
        }
        Number(self.value).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use informer_hub_types::TraceParent;
    use informer_hub_types::{Histogram, REQUEST_SECONDS};

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::new(jiff::Timestamp::UNIX_EPOCH);
        let cluster = snapshot.labels(&[("cluster", "a\"b")]);
        let sink = snapshot.labels(&[("sink", "hook")]);
        snapshot.count_word(Id::Lists, cluster, "first", 3);
        snapshot.put(Id::ClusterStale, cluster, 1.25);
        snapshot.put(Id::ProcessCpu, LabelSet::NONE, 0.5);
        let attempts = Histogram::new(REQUEST_SECONDS);
        attempts.record(Duration::from_millis(30), Some(TraceParent { trace: 0xab, span: 0xcd }));
        attempts.record(Duration::from_secs(60), None);
        snapshot.histogram(Id::Attempts, sink, "accepted", attempts.state());
        snapshot
    }

    #[test]
    fn prometheus_format_has_counters_gauges_and_histograms() {
        let text = Format::Prometheus.write(&snapshot());
        for line in [
            "# TYPE informer_hub_lists_total counter",
            r#"informer_hub_lists_total{cluster="a\"b",reason="first"} 3"#,
            r#"informer_hub_cluster_stale_seconds{cluster="a\"b"} 1.25"#,
            "# TYPE informer_hub_sink_attempt_duration_seconds histogram",
            r#"informer_hub_sink_attempt_duration_seconds_bucket{sink="hook",outcome="accepted",le="0.025"} 0"#,
            r#"informer_hub_sink_attempt_duration_seconds_bucket{sink="hook",outcome="accepted",le="1"} 1"#,
            r#"informer_hub_sink_attempt_duration_seconds_bucket{sink="hook",outcome="accepted",le="+Inf"} 2"#,
            r#"informer_hub_sink_attempt_duration_seconds_sum{sink="hook",outcome="accepted"} 60.03"#,
            r#"informer_hub_sink_attempt_duration_seconds_count{sink="hook",outcome="accepted"} 2"#,
            "process_cpu_seconds_total 0.5",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line}:\n{text}");
        }
        assert!(!text.contains("trace_id") && !text.contains("UNIT") && !text.contains("EOF"), "{text}");
        assert!(!text.contains("informer_hub_objects"), "metrics without values are omitted:\n{text}");
    }

    #[test]
    fn openmetrics_format_has_families_units_exemplars_and_an_end() {
        let text = Format::OpenMetrics.write(&snapshot());
        for line in [
            "# TYPE informer_hub_lists counter",
            r#"informer_hub_lists_total{cluster="a\"b",reason="first"} 3"#,
            "# TYPE process_cpu_seconds counter",
            "# UNIT process_cpu_seconds seconds",
            r#"informer_hub_sink_attempt_duration_seconds_bucket{sink="hook",outcome="accepted",le="1.0"} 1"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line}:\n{text}");
        }
        let exemplar =
            r#"le="0.05"} 1 # {trace_id="000000000000000000000000000000ab",span_id="00000000000000cd"} 0.03 "#;
        assert!(text.contains(exemplar), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn accepted_follows_the_accept_header() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", Format::OpenMetrics),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.1", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("text/html,*/*", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn numbers_are_formatted_for_scrapers() {
        let written = [0.0, 3.0, 0.1, 1.5e12, -2.0, f64::INFINITY, f64::NAN].map(|value| Number(value).to_string());
        assert_eq!(written, ["0", "3", "0.1", "1500000000000", "-2", "+Inf", "NaN"]);
    }
}

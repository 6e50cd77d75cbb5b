//! Exporter of metrics for programs that embed a hub: metrics of the hub, and of work queues that the program
//! registers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::metrics::Metrics;
use informer_hub_telemetry::metrics::{Format, Id, Snapshot};
use informer_hub_types::HistogramState;
use informer_hub_workqueue::{self as workqueue, Key, WorkQueue};

/// Upper bounds of the histogram buckets for a work queue's durations, in seconds.
const SECONDS: &[f64] = &{
    let bounds = workqueue::Histogram::BOUNDS;
    let mut seconds = [0.0; workqueue::Histogram::BOUNDS.len()];
    let mut at = 0;
    while at < bounds.len() {
        seconds[at] = bounds[at].as_secs_f64();
        at += 1;
    }
    seconds
};

/// The metrics of a hub and of registered work queues, as text for Prometheus. Cheap to clone.
///
/// Metrics of queues are those of client-go's `workqueue` package with the prefix `informer_hub_` and the label
/// `queue`; docs/metrics.md lists them.
///
/// # Examples
/// ```no_run
/// # async fn example(hub: informer_hub::Hub) -> Result<(), Box<dyn std::error::Error>> {
/// use informer_hub::{Request, WorkQueue};
///
/// let queue: WorkQueue<Request> = WorkQueue::new();
/// let exporter = hub.metrics_exporter().await?;
/// exporter.register_queue("deployments", &queue);
/// // Served by the program's own HTTP server.
/// println!("{}", exporter.prometheus());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MetricsExporter {
    hub: Metrics,
    queues: Arc<Mutex<BTreeMap<String, Read>>>,
}

/// Function that reads the metrics of one queue.
type Read = Box<dyn Fn() -> workqueue::Metrics + Send>;

impl MetricsExporter {
    pub(super) fn new(hub: Metrics) -> Self {
        Self { hub, queues: Arc::default() }
    }

    /// Adds a work queue under a name, which is the value of the label `queue`. Another queue of that name is replaced.
    ///
    /// The exporter holds a reference to the queue, but not to its workers, until [`MetricsExporter::remove_queue`].
    pub fn register_queue<T: Key>(&self, name: &str, queue: &WorkQueue<T>) {
        let queue = queue.clone();
        self.queues.lock().insert(name.to_owned(), Box::new(move || queue.metrics()));
    }

    /// Removes the work queue with this name; returns whether there was one.
    #[allow(clippy::must_use_candidate, reason = "most callers do not need the answer")]
    pub fn remove_queue(&self, name: &str) -> bool {
        self.queues.lock().remove(name).is_some()
    }

    /// Returns all metrics in Prometheus' text format (`text/plain; version=0.0.4`).
    ///
    /// Reads counters and sends no message to an actor. For the cost, see docs/metrics.md; each registered queue adds
    /// the time to visit the keys that its workers are processing.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut snapshot = self.hub.collect();
        for (name, read) in &*self.queues.lock() {
            put_queue(&mut snapshot, name, &read());
        }
        Format::Prometheus.write(&snapshot)
    }
}

fn put_queue(out: &mut Snapshot, name: &str, metrics: &workqueue::Metrics) {
    let labels = out.labels(&[("queue", name)]);
    out.count(Id::QueueDepth, labels, metrics.depth as u64);
    out.count(Id::QueueDelayed, labels, metrics.delayed as u64);
    out.count(Id::QueueAdds, labels, metrics.adds);
    out.count(Id::QueueRetries, labels, metrics.retries);
    out.histogram(Id::QueueLatency, labels, "", state(&metrics.queue_latency));
    out.histogram(Id::QueueWork, labels, "", state(&metrics.work_duration));
    out.put(Id::QueueUnfinished, labels, metrics.unfinished_work.as_secs_f64());
    out.put(Id::QueueLongest, labels, metrics.longest_running.as_secs_f64());
}

fn state(durations: &workqueue::Histogram) -> HistogramState {
    let mut counts: Vec<u64> = durations.buckets().map(|(_, count)| count).collect();
    counts.push(durations.count() - counts.iter().sum::<u64>());
    let exemplars = vec![None; counts.len()];
    HistogramState { bounds: SECONDS, counts, sum: durations.sum().as_secs_f64(), exemplars }
}

impl fmt::Debug for MetricsExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsExporter").finish_non_exhaustive()
    }
}

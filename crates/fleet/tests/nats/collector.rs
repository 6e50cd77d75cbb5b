//! Writer on a real log, driven until something happens.

use std::time::Duration;

use informer_hub_fleet::jetstream::{FixedLimits, JetStreamLog, LogParams};
use informer_hub_fleet::writer::OfferError;
use informer_hub_fleet::{Partition, Record, Subjects, Writer, WriterEvent, WriterParams};
use informer_hub_types::{ClusterName, Gvr, clock};

use crate::server::{DEADLINE, Servers, within};

pub(crate) fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

pub(crate) fn partition(cluster: &str) -> Partition {
    Partition {
        cluster: ClusterName::new(cluster).unwrap(),
        resource: Gvr::new("apps", "v1", "deployments"),
        selection: 0,
    }
}

pub(crate) fn params(replicas: usize) -> LogParams {
    LogParams {
        subjects: subjects(),
        replicas,
        max_age: Duration::from_secs(3600),
        max_bytes: 1 << 30,
        fixed: FixedLimits { replicas: true, max_age: true, max_bytes: true },
        timeout: Duration::from_secs(2),
    }
}

pub(crate) struct Collector {
    pub(crate) client: async_nats::Client,
    pub(crate) log: JetStreamLog,
    pub(crate) writer: Writer,
    begun: clock::Instant,
    events: Vec<WriterEvent>,
}

impl Collector {
    pub(crate) async fn start(servers: &Servers, replicas: usize) -> Self {
        let client = servers.client().await;
        let log = within("the stream", async {
            loop {
                // A cluster that has just started has no leader yet.
                match JetStreamLog::open(client.clone(), params(replicas)).await {
                    Ok(log) => return log,
                    Err(error) => eprintln!("{error}: {:?}", std::error::Error::source(&error)),
                }
            }
        })
        .await;
        Self::with(client, log)
    }

    pub(crate) fn with(client: async_nats::Client, log: JetStreamLog) -> Self {
        let params = WriterParams { answer_timeout: Duration::from_secs(3), ..WriterParams::default() };
        Self { client, log, writer: Writer::new(params), begun: clock::now(), events: Vec::new() }
    }

    /// Exchanges messages with the log once. Without an event, waits for an answer or the writer's next deadline.
    async fn step(&mut self) {
        self.writer.exchange(&mut self.log, clock::now() - self.begun);
        let events = self.writer.take_events();
        let changed = !events.is_empty();
        self.events.extend(events);
        if changed {
            return;
        }
        let deadline = self.writer.next_deadline().map(|at| self.begun + at);
        tokio::select! {
            biased;
            () = self.log.answered() => {}
            () = tokio::time::sleep_until(deadline.unwrap_or_else(|| clock::now() + DEADLINE)) => {}
        }
    }

    pub(crate) async fn run_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        within(what, async {
            while !done(self) {
                self.step().await;
            }
        })
        .await;
    }

    /// Returns the next event of a kind; drops the events before it.
    pub(crate) async fn until(&mut self, what: &str, kind: impl Fn(&WriterEvent) -> bool) -> WriterEvent {
        self.run_until(what, |collector| collector.events.iter().any(&kind)).await;
        let at = self.events.iter().position(&kind).expect("it was found");
        self.events.drain(..=at).next_back().expect("it was found")
    }

    pub(crate) async fn claim(&mut self, partition: &Partition, epoch: u64) {
        assert!(self.writer.open(partition.clone(), epoch));
        self.until("a claim", |event| matches!(event, WriterEvent::Claimed { partition: of, .. } if of == partition))
            .await;
    }

    pub(crate) async fn offer(&mut self, partition: &Partition, record: &Record) {
        loop {
            match self.writer.offer(partition, record) {
                // Requests go out without waiting for their answers.
                Ok(()) => return self.writer.exchange(&mut self.log, clock::now() - self.begun),
                Err(OfferError::Full) => within("room in the queue", self.step()).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until all records are stored.
    pub(crate) async fn flush(&mut self) {
        self.run_until("an empty queue", |collector| collector.writer.queued_bytes() == 0).await;
    }
}

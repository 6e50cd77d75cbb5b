//! Backend on NATS JetStream. It connects at the first request. After a failed attempt, a later request tries again.

mod cluster_buckets;
mod credentials;
mod roster;
mod steering;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use informer_hub_fleet::jetstream::{
    Buckets, Checkpoints, Documents, JetStreamLog, Leases, LogParams, NatsError, Owners, RosterBucket, probe,
};
use informer_hub_fleet::kept::Retained;
use informer_hub_fleet::{Answer, ClusterDocument, EntryPage, Ownership, Partition, Request, Sequence, Subjects};
use informer_hub_lease as lease;
use informer_hub_tls::{Roots, client_config};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Shard, jittered_backoff, with_causes};
use parking_lot::Mutex as SyncMutex;
use tokio::sync::{Mutex, OnceCell};

pub use informer_hub_fleet::jetstream::FixedLimits;
pub use steering::{FleetRoster, LeaseHolder};

use super::backend::{Answered, Backend, BackendError, TailStream};

/// Largest checkpoint of a partition that is read, in compressed bytes.
const LARGEST_CHECKPOINT: usize = 4 << 30;
/// First pause between attempts to connect to NATS and open its streams and buckets.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Function that returns the contents of a credentials file. It is called for each attempt to connect.
pub type Credentials = Arc<dyn Fn() -> io::Result<String> + Send + Sync>;

/// Parameters of a [`NatsBackend`].
#[derive(Clone)]
pub struct NatsParams {
    /// Addresses of the NATS servers.
    pub servers: Vec<String>,
    /// Reads the contents of a credentials file; `None` for a server without authentication.
    pub credentials: Option<Credentials>,
    /// Name under which the NATS server shows the connection.
    pub name: String,
    /// Name of the fleet.
    pub fleet: String,
    /// Number of copies of each message of the log. New buckets and checkpoints have as many copies as the log.
    pub replicas: usize,
    /// Age at which the log removes entries.
    pub max_age: Duration,
    /// Size in bytes at which the log removes the oldest entries.
    pub max_bytes: u64,
    /// Which of `replicas`, `max_age` and `max_bytes` are applied to an existing log. A new log gets all three.
    pub fixed: FixedLimits,
    /// Deadline of a request.
    pub timeout: Duration,
}

impl fmt::Debug for NatsParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsParams").field("servers", &self.servers).field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

/// Log, owners, checkpoints and leases of a fleet on JetStream.
pub struct NatsBackend(Arc<Connecting>);

struct Connecting {
    params: NatsParams,
    services: OnceCell<Arc<Services>>,
    failed: SyncMutex<Option<Failed>>,
}

/// Record of failed attempts to open the streams and buckets, for the backoff.
struct Failed {
    error: BackendError,
    /// Number of attempts that have failed since the start.
    attempts: u32,
    /// When the next attempt may begin.
    until: Instant,
}

struct Services {
    client: Client,
    log: JetStreamLog,
    owners: Owners,
    documents: Documents,
    checkpoints: Checkpoints,
    /// Bucket of leases. Only a request for a lease opens it, so that fleets without elections do not have it. `None`
    /// until then, and after a failed request.
    leases: Mutex<Option<Leases>>,
    roster: RosterBucket,
    buckets: Buckets,
    /// Locked while a failed request creates deleted streams and buckets again, so that no other request does it too.
    restoring: Mutex<()>,
}

impl NatsBackend {
    /// Creates a backend that is not connected yet.
    #[must_use]
    pub fn new(params: NatsParams) -> Self {
        Self(Arc::new(Connecting { params, services: OnceCell::new(), failed: SyncMutex::default() }))
    }

    /// Performs a request. After a failure, creates deleted streams and buckets again.
    fn perform<T, F>(&self, work: impl FnOnce(Arc<Services>) -> F + Send + 'static) -> Answered<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, NatsError>> + Send,
    {
        let connecting = Arc::clone(&self.0);
        Box::pin(async move {
            let services = connecting.services().await?;
            match work(Arc::clone(&services)).await {
                Ok(answer) => Ok(answer),
                Err(error) => {
                    services.restore(&error).await;
                    let BackendError(cause) = failure(&error);
                    Err(BackendError(match services.client.connection_state() {
                        State::Connected => cause,
                        _ => format!("no connection to {}: {cause}", connecting.params.servers.join(", ")),
                    }))
                }
            }
        })
    }
}

impl Connecting {
    async fn services(&self) -> Result<Arc<Services>, BackendError> {
        // Boxed: every request contains this future.
        let services = self.services.get_or_try_init(|| async { Box::pin(self.open()).await.map(Arc::new) });
        services.await.cloned()
    }

    /// Connects and opens the streams and buckets. All requests share the attempts, which have exponential backoff.
    /// Between two attempts, requests fail with the last error.
    async fn open(&self) -> Result<Services, BackendError> {
        let recent = |failed: &&Failed| clock::now() < failed.until;
        if let Some(failed) = self.failed.lock().as_ref().filter(recent) {
            return Err(failed.error.clone());
        }
        let opened = self.connect().await;
        let mut failed = self.failed.lock();
        if let Err(error) = &opened {
            let attempts = failed.as_ref().map_or(0, |failed| failed.attempts).saturating_add(1);
            let until = clock::now() + jittered_backoff(FIRST_PAUSE, attempts, LONGEST_PAUSE);
            *failed = Some(Failed { error: error.clone(), attempts, until });
        }
        opened
    }

    async fn connect(&self) -> Result<Services, BackendError> {
        let params = &self.params;
        let subjects = params.subjects().map_err(|error| failure(&error))?;
        let client = params.connect(&params.servers).await.map_err(|error| failure(&error))?;
        let NatsParams { replicas, max_age, max_bytes, fixed, timeout, .. } = *params;
        let log = LogParams { subjects: subjects.clone(), replicas, max_age, max_bytes, fixed, timeout };
        let opened = async {
            let log = JetStreamLog::open(client.clone(), log).await?;
            let replicas = log.replicas();
            let buckets = Buckets::new(client.clone(), &subjects, replicas, timeout);
            if fixed.replicas {
                buckets.fix_replicas().await?;
            }
            Ok(Services {
                log,
                owners: Owners::open(client.clone(), subjects.clone(), replicas, timeout).await?,
                documents: Documents::open(client.clone(), subjects.clone(), replicas, timeout).await?,
                roster: RosterBucket::open(client.clone(), &subjects, replicas, timeout).await?,
                buckets,
                checkpoints: Checkpoints::open(client.clone(), subjects, replicas, timeout).await?,
                restoring: Mutex::default(),
                leases: Mutex::default(),
                client,
            })
        };
        Box::pin(opened).await.map_err(|error: NatsError| failure(&error))
    }

    async fn lease(&self, name: &str, request: &lease::Request) -> Result<lease::Answer, BackendError> {
        let services = self.services().await?;
        let (replicas, timeout) = (services.log.replicas(), self.params.timeout);
        let subjects = self.params.subjects().map_err(|error| failure(&error))?;
        let opening = async {
            let mut opened = services.leases.lock().await;
            if let Some(leases) = &*opened {
                return Ok(leases.clone());
            }
            let leases = Leases::open(services.client.clone(), &subjects, replicas, timeout).await?;
            Ok(opened.insert(leases).clone())
        };
        let leases = opening.await.map_err(|error: NatsError| failure(&error))?;
        let answer = leases.execute(name, request).await;
        if answer.is_err() {
            // The bucket may be gone: the next request opens it again.
            *services.leases.lock().await = None;
        }
        answer.map_err(|error| failure(&error))
    }
}

impl Services {
    /// After a failed request, creates the log and the buckets again if an operator has deleted them. The processes of
    /// the fleet notice this and write the contents again.
    async fn restore(&self, error: &NatsError) {
        let (NatsError::Request { .. }, Ok(_alone)) = (error, self.restoring.try_lock()) else { return };
        let restored = async {
            let log = self.log.restore().await?.then(|| "log".to_owned());
            Ok(log.into_iter().chain(self.buckets.restore().await?).collect::<Vec<_>>())
        };
        match restored.await {
            Ok(created) if created.is_empty() => {}
            Ok(created) => {
                tracing::warn!(
                    created = created.join(", "),
                    "streams or buckets of the fleet in NATS were deleted; created them again"
                );
            }
            Err(error) => {
                let error: NatsError = error;
                tracing::debug!(
                    error = with_causes(&error),
                    "cannot check whether streams or buckets of the fleet in NATS were deleted"
                );
            }
        }
    }
}

impl NatsParams {
    fn subjects(&self) -> Result<Subjects, NatsProblem> {
        Subjects::new(&self.fleet).map_err(|error| NatsProblem::Other(error.to_string()))
    }

    async fn connect(&self, servers: &[String]) -> Result<Client, NatsProblem> {
        let tls = tokio::task::spawn_blocking(|| client_config(Roots::AnyOfSystem, None)).await;
        let tls = tls.map_err(|error| NatsProblem::Other(error.to_string()))?;
        let tls = tls.map_err(|error| NatsProblem::Other(format!("cannot use TLS: {error}")))?;
        let options = match self.credentials.clone() {
            None => ConnectOptions::new(),
            Some(read) => {
                let checked = credentials::check(Arc::clone(&read)).await;
                checked.map_err(|error| NatsProblem::Credentials(error.to_string()))?;
                credentials::options(read)
            }
        };
        let options = options
            .name(&self.name)
            .connection_timeout(self.timeout)
            .request_timeout(Some(self.timeout))
            .reconnect_delay_callback(pause)
            .tls_client_config(tls);
        options.connect(servers).await.map_err(|error| {
            let (servers, cause) = (servers.join(", "), with_causes(&error));
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    NatsProblem::Refused { servers, cause }
                }
                _ => NatsProblem::Unreachable { servers, cause },
            }
        })
    }

    /// Connects to each server. Checks that JetStream is enabled, and that no stream of another program has the name of
    /// the log. Changes nothing. Returns the problems found, and whether a process could join the fleet despite them.
    pub async fn check(&self) -> (Vec<NatsProblem>, bool) {
        let subjects = match self.subjects() {
            Ok(subjects) => subjects,
            Err(problem) => return (vec![problem], false),
        };
        let connecting = self.servers.iter().map(|server| self.connect(std::slice::from_ref(server)));
        let (mut problems, mut clients) = (Vec::new(), Vec::new());
        for connected in futures::future::join_all(connecting).await {
            match connected {
                Ok(client) => clients.push(client),
                Err(problem) if !problems.contains(&problem) => problems.push(problem),
                Err(_) => {}
            }
        }
        let Some(client) = clients.into_iter().next() else { return (problems, false) };
        match probe(client.clone(), &subjects, self.timeout).await {
            // A server outside a NATS cluster reports no cluster name.
            Ok(false) if self.replicas > 1 && client.server_info().cluster.is_none() => {
                problems.push(NatsProblem::NoCluster { replicas: self.replicas });
                (problems, false)
            }
            Ok(_) => (problems, true),
            Err(error) => {
                let cause = with_causes(&error);
                problems.push(match error {
                    NatsError::NoJetStream { .. } => NatsProblem::NoJetStream(cause),
                    NatsError::ForeignStream(_) => NatsProblem::ForeignStream(cause),
                    _ => NatsProblem::Other(cause),
                });
                (problems, false)
            }
        }
    }
}

/// Reason why a process cannot use NATS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsProblem {
    /// No connection to a server: wrong address, server down, TLS.
    #[error("cannot connect to {servers}: {cause}")]
    Unreachable {
        /// Addresses of the servers.
        servers: String,
        /// Text of the connection error.
        cause: String,
    },
    /// A server rejects the credentials, or requires credentials that are not configured.
    #[error("{servers} rejects the credentials: {cause}")]
    Refused {
        /// Addresses of the servers.
        servers: String,
        /// Text of the connection error.
        cause: String,
    },
    /// The credentials cannot be read or decoded.
    #[error("cannot use the credentials of NATS: {0}")]
    Credentials(
        /// Text of the error of reading or decoding.
        String,
    ),
    /// The server, or the account, has no JetStream.
    #[error("{0}")]
    NoJetStream(
        /// Text of the error, for operators.
        String,
    ),
    /// A stream of another program has the name of the log.
    #[error("{0}")]
    ForeignStream(
        /// Text of the error, which names the stream.
        String,
    ),
    /// The log does not exist yet and needs several copies, but the server is not part of a NATS cluster.
    #[error("the log needs {replicas} copies, but the NATS server is not part of a NATS cluster")]
    NoCluster {
        /// Configured number of copies.
        replicas: usize,
    },
    /// Other problem.
    #[error("{0}")]
    Other(
        /// Text of the error, for operators.
        String,
    ),
}

/// Returns the pause before an attempt to connect again: exponential backoff with jitter.
fn pause(attempt: usize) -> Duration {
    let times = u32::try_from(attempt).unwrap_or(u32::MAX);
    jittered_backoff(Duration::from_millis(50), times, LONGEST_PAUSE)
}

fn failure(error: &(dyn std::error::Error + 'static)) -> BackendError {
    BackendError(with_causes(error))
}

impl Backend for NatsBackend {
    fn execute(&self, request: Request) -> BoxFuture<'static, Answer> {
        let connecting = Arc::clone(&self.0);
        Box::pin(async move {
            match connecting.services().await {
                Ok(services) => services.log.execute(request).await,
                Err(error) => Answer::Failed(error.to_string()),
            }
        })
    }

    fn entries(&self, partition: &Partition, after: Sequence, page_bytes: usize) -> Answered<Option<EntryPage>> {
        let partition = partition.clone();
        self.perform(move |services| async move { services.log.entries(&partition, after, page_bytes).await })
    }

    fn tail(&self, after: Option<Sequence>) -> Answered<(Sequence, TailStream)> {
        self.perform(move |services| async move {
            let (after, tail) = services.log.follow(after).await?;
            let entries = stream::unfold(tail, |mut tail| async move {
                let next = tail.next().await.map_err(|error| failure(&error)).transpose()?;
                Some((next, tail))
            });
            Ok((after, entries.boxed()))
        })
    }

    fn retained(&self) -> Answered<Retained> {
        self.perform(move |services| async move { services.log.retained().await })
    }

    fn owner(&self, shard: &Shard) -> Answered<Option<Ownership>> {
        let shard = shard.clone();
        self.perform(move |services| async move { services.owners.get(&shard).await })
    }

    fn claim(
        &self,
        shard: &Shard,
        collector: &str,
        seen: Option<&Ownership>,
        newest: u64,
    ) -> Answered<Option<Ownership>> {
        let (shard, collector, seen) = (shard.clone(), collector.to_owned(), seen.cloned());
        self.perform(
            move |services| async move { services.owners.claim(&shard, &collector, seen.as_ref(), newest).await },
        )
    }

    fn renew(&self, own: &Ownership) -> Answered<Option<Ownership>> {
        let own = own.clone();
        self.perform(move |services| async move { services.owners.renew(&own).await })
    }

    fn restore_owner(&self, own: &Ownership) -> Answered<Option<Ownership>> {
        let own = own.clone();
        self.perform(move |services| async move { services.owners.restore(&own).await })
    }

    fn release(&self, own: &Ownership) -> Answered<bool> {
        let own = own.clone();
        self.perform(move |services| async move { services.owners.release(&own).await })
    }

    fn document(&self, shard: &Shard) -> Answered<Option<(u64, ClusterDocument)>> {
        let shard = shard.clone();
        self.perform(move |services| async move { services.documents.get(&shard).await })
    }

    fn save_document(&self, shard: &Shard, document: ClusterDocument, seen: Option<u64>) -> Answered<Option<u64>> {
        let shard = shard.clone();
        self.perform(move |services| async move { services.documents.put(&shard, &document, seen).await })
    }

    fn checkpoint(&self, partition: &Partition, before: Option<Sequence>) -> Answered<Option<Bytes>> {
        let partition = partition.clone();
        self.perform(move |services| async move {
            Ok(services.checkpoints.load(&partition, before, LARGEST_CHECKPOINT).await?.map(Bytes::from))
        })
    }

    fn save_checkpoint(
        &self,
        partition: &Partition,
        sequence: Sequence,
        collector: &str,
        checkpoint: Bytes,
    ) -> Answered<()> {
        let (partition, collector) = (partition.clone(), collector.to_owned());
        self.perform(move |services| async move {
            let retained = services.log.retained().await?;
            services.checkpoints.save(&partition, sequence, retained, &collector, &checkpoint).await.map(drop)
        })
    }

    fn checkpoints_created(&self) -> Answered<u64> {
        self.perform(|services| async move { services.checkpoints.created().await })
    }

    fn lease(&self, name: &str, request: lease::Request) -> Answered<lease::Answer> {
        let (connecting, name) = (Arc::clone(&self.0), name.to_owned());
        Box::pin(async move { connecting.lease(&name, &request).await })
    }
}

impl fmt::Debug for NatsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBackend").field("servers", &self.0.params.servers).finish_non_exhaustive()
    }
}

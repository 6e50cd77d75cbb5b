//! From a description of how to reach a cluster to a client for it.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use parking_lot::Mutex;

use super::exec::{ExecError, ExecToken, Plugin};
use super::request::{Asked, describe};
use super::transport::{self, CONNECT_TIMEOUT};
use informer_hub_codec::bounded;
use informer_hub_dial::{Dial, server_of};
use informer_hub_disk::FileStates;
use informer_hub_types::Threads;
use informer_hub_types::clock::{self, Instant};

/// How long a token from a file is used before the file is read again.
const TOKEN_AGE: Duration = Duration::from_secs(30);
/// How long a credential plugin and the files may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);

/// How to reach a cluster.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// A kubeconfig file, with everything that kube supports in one.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; unset: the file's current one.
        context: Option<String>,
    },
    /// The service account of the pod that this runs in.
    InCluster,
    /// An address, a CA and a token.
    Server {
        /// `https://…` or `http://…`.
        server: String,
        /// PEM file, read again about once a minute; unset: the system's roots.
        ca_file: Option<PathBuf>,
        /// The bearer token.
        token: Option<Token>,
    },
    /// A kubeconfig in memory, its current context. It is believed in all that it says, commands and files included.
    Inline {
        /// The kubeconfig, in YAML or JSON.
        text: Arc<str>,
        /// What it was found in, for messages.
        origin: Arc<str>,
    },
    /// Not known yet: who knows will say by [`KubeConnector::change`](super::KubeConnector::change).
    Awaited {
        /// Who is waited for.
        source: String,
    },
}

impl fmt::Debug for Access {
    /// Without the user information that an address may hold, and without what a kubeconfig in memory says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { path, context } => {
                f.debug_struct("Kubeconfig").field("path", path).field("context", context).finish()
            }
            Self::InCluster => f.write_str("InCluster"),
            Self::Server { server, ca_file, token } => {
                let host = server.rsplit_once('@').map_or(server.as_str(), |(_, host)| host);
                f.debug_struct("Server").field("server", &host).field("ca_file", ca_file).field("token", token).finish()
            }
            Self::Inline { origin, .. } => f.debug_struct("Inline").field("origin", origin).finish_non_exhaustive(),
            Self::Awaited { source } => f.debug_struct("Awaited").field("source", source).finish(),
        }
    }
}

/// Where a bearer token is to be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// An environment variable, read when the client is made.
    Env(String),
    /// A file, read again every half a minute; white space around the token does not count.
    File(PathBuf),
}

/// Why there is no client for a cluster. All but [`ClientError::TimedOut`] are for whoever wrote the configuration
/// (or keeps its files) to mend.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read, or is none.
    #[error("kubeconfig {} cannot be used: {message}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why, without what stands in the file.
        message: String,
    },
    /// The kubeconfig has no such context.
    #[error("kubeconfig {} has no context {context:?}; it has {known}", path.display())]
    NoContext {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        context: String,
        /// What there is, in words.
        known: String,
    },
    /// No context was asked for, and the kubeconfig names no current one.
    #[error("kubeconfig {} names no current context, set one of {known}", path.display())]
    NoCurrentContext {
        /// The file.
        path: PathBuf,
        /// What there is, in words.
        known: String,
    },
    /// A kubeconfig in memory is none, or lacks what its context names.
    #[error("the kubeconfig in {origin} cannot be used: {message}")]
    Inline {
        /// What it was found in.
        origin: String,
        /// Why, without what stands in it.
        message: String,
    },
    /// Nobody knows yet how the cluster is reached; whoever does will say.
    #[error("the cluster source {0} has not said yet how the cluster is reached")]
    Awaited(String),
    /// This does not run in a cluster.
    #[error("no service account of a pod")]
    NotInCluster(#[source] kube::config::InClusterError),
    /// The address is no URL.
    #[error("the server's address is not a URL with http or https")]
    Address,
    /// A file that is named cannot be read.
    #[error("{what} {} cannot be read", path.display())]
    File {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An environment variable that is named is not set (or not text).
    #[error("environment variable {0} for the token is not set")]
    TokenVariable(String),
    /// All files are there, but no client comes of them: TLS, a credential plugin, a proxy.
    #[error("no client for {what}: {message}")]
    Client {
        /// The context or address.
        what: String,
        /// What happened, without secrets.
        message: String,
    },
    /// A credential plugin or a file system takes too long. Try again later.
    #[error("no client for {0} within a minute")]
    TimedOut(String),
}

impl Access {
    /// What is reached, for messages.
    fn what(&self) -> String {
        match self {
            Self::Kubeconfig { path, context: Some(context) } => format!("context {context:?} of {}", path.display()),
            Self::Kubeconfig { path, context: None } => format!("the current context of {}", path.display()),
            Self::InCluster => "the cluster that this runs in".to_owned(),
            Self::Server { .. } => format!("{self:?}"),
            Self::Inline { origin, .. } => origin.to_string(),
            Self::Awaited { source } => format!("a cluster of {source}"),
        }
    }
}

/// A client, and what it was made from.
pub(super) struct Made {
    pub(super) client: Client,
    /// Where it goes, without user information.
    pub(super) address: String,
    /// Scheme, host and port of that.
    pub(super) server: String,
    /// Files that are not read again.
    pub(super) files: FileStates,
}

/// Makes a client for a cluster, on the runtime `io`, to which it belongs from then on. Its connections are TCP, unless
/// `dial` opens them.
///
/// Files are read on that runtime's blocking threads, and a credential plugin is run once, within bounds. Nothing is asked
/// of the cluster yet. Tokens and CAs from files are read again about once a minute, a plugin's token is renewed before it
/// expires; a client certificate, or a plugin's, is not: a hub's own clients are made anew for that.
///
/// # Errors
/// See [`ClientError`].
pub async fn connect(
    access: Access,
    compression: bool,
    dial: Option<Dial>,
    io: &Threads,
) -> Result<Client, ClientError> {
    Ok(make(None, access, compression, dial, io).await?.client)
}

/// As [`connect`]; `cluster` is the name in log lines.
pub(super) async fn make(
    cluster: Option<Arc<str>>,
    access: Access,
    compression: bool,
    dial: Option<Dial>,
    io: &Threads,
) -> Result<Made, ClientError> {
    let what = access.what();
    let work = io.spawn({
        let (what, threads) = (what.clone(), io.clone());
        async move {
            let (config, files) = load(access, &threads).await?;
            let mut config = prepare(config, compression);
            let cluster = cluster.unwrap_or_else(|| what.as_str().into());
            let token = ask_plugin(&mut config, &cluster, &threads).await.map_err(|error| ClientError::Client {
                what: what.clone(),
                message: format!("credentials cannot be had: {error}"),
            })?;
            let (address, server) = (config.cluster_url.to_string(), server_of(&config.cluster_url));
            let made = threads.spawn_blocking(move || open(config, token, dial)).await;
            match made {
                Ok(Ok(client)) => Ok(Made { client, address, server, files }),
                Ok(Err(error)) => Err(ClientError::Client { what, message: describe(&error) }),
                Err(_) => Err(ClientError::Client { what, message: "its configuration broke the client".to_owned() }),
            }
        }
    });
    // The deadline runs on the same runtime; a caller need not have one.
    let limited = io.spawn(async move { tokio::time::timeout(CONNECT_DEADLINE, work).await });
    match limited.await {
        Ok(Ok(Ok(made))) => made,
        Ok(Err(_)) => Err(ClientError::TimedOut(what)),
        Ok(Ok(Err(_))) | Err(_) => {
            Err(ClientError::Client { what, message: "the runtime for clients is shutting down".to_owned() })
        }
    }
}

/// The one place that opens connections: HTTP/1.1 with one connection per running request.
///
/// That costs a socket per watch. HTTP/2 would share one, and share its troubles: a server's limit of streams makes
/// further watches hang silently, one lost packet holds up every watch, and events come late once a hundred are in
/// flight (kubernetes-sigs/agent-sandbox#1240); its gain is in handshakes, which a watch of minutes hardly has.
fn open(mut config: Config, plugin: Option<ExecToken>, dial: Option<Dial>) -> Result<Client, kube::Error> {
    install_crypto();
    let file = TokenFile::take_from(&mut config).map(Arc::new);
    let plugin = plugin.map(Arc::new);
    let server: Arc<str> = server_of(&config.cluster_url).into();
    transport::open(config, dial, move |mut request: Request<Body>| {
        if let Some(asked) = request.extensions().get::<Asked>() {
            asked.note(&server);
        }
        let (file, plugin) = (file.clone(), plugin.clone());
        Box::pin(async move {
            let header = match plugin {
                Some(plugin) => Some(plugin.header().await?),
                None => file.and_then(|file| file.header()),
            };
            if let Some(header) = header {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            Ok(request)
        })
    })
}

/// Runs the credential plugin of a configuration, if it has one, and has the client show its certificate. Gives its token.
async fn ask_plugin(config: &mut Config, cluster: &Arc<str>, io: &Threads) -> Result<Option<ExecToken>, ExecError> {
    let Some(plugin) = Plugin::take_from(config, cluster)? else { return Ok(None) };
    let credentials = plugin.run().await?;
    credentials.identify(&mut config.auth_info);
    Ok(ExecToken::of(plugin, &credentials, io))
}

/// A bearer token in a file, read again now and then. In place of kube's own, which takes a trailing line break for
/// a part of the token, and then refuses it.
struct TokenFile {
    path: PathBuf,
    current: Mutex<(Option<HeaderValue>, Instant)>,
}

impl TokenFile {
    /// Takes the token file out of a configuration, if it is what authenticates. `exec` has been taken out before.
    fn take_from(config: &mut Config) -> Option<Self> {
        let auth = &mut config.auth_info;
        let other = auth.token.is_some() || auth.exec.is_some() || auth.auth_provider.is_some();
        let path: PathBuf = auth.token_file.take_if(|_| !other && auth.username.is_none())?.into();
        let header = Self::read(&path);
        Some(Self { path, current: Mutex::new((header, clock::now())) })
    }

    fn read(path: &Path) -> Option<HeaderValue> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", text.trim())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// The header for the current token. A file that has gone leaves the last one in force, as client-go does.
    fn header(&self) -> Option<HeaderValue> {
        let mut current = self.current.lock();
        if current.1 + TOKEN_AGE <= clock::now() {
            let fresh = Self::read(&self.path).or_else(|| current.0.take());
            *current = (fresh, clock::now());
        }
        current.0.clone()
    }
}

/// Makes ring the process's TLS provider, unless one is chosen.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // The only error is that another thread has just done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn prepare(mut config: Config, compression: bool) -> Config {
    config.cluster_url = without_user(config.cluster_url);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Deadlines are the request's own: a watch may well be silent for minutes.
    config.read_timeout = None;
    // Retries are the reflector's, which shows what it retries.
    config.default_retry = false;
    config.disable_compression |= !compression;
    let agent = HeaderValue::from_static(concat!("informer-hub/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    config
}

/// An address without its user information. Nothing down the line uses it, but hyper's log would show it.
fn without_user(url: http::Uri) -> http::Uri {
    let Some((_, host)) = url.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else { return url };
    let Ok(host) = host.parse() else { return url };
    let mut parts = url.clone().into_parts();
    parts.authority = Some(host);
    http::Uri::from_parts(parts).unwrap_or(url)
}

/// The configuration, and the files of it that a client does not read again itself.
async fn load(access: Access, threads: &Threads) -> Result<(Config, FileStates), ClientError> {
    match access {
        Access::Kubeconfig { path, context } => from_kubeconfig(path, context, threads).await,
        Access::InCluster => Ok((Config::incluster().map_err(ClientError::NotInCluster)?, FileStates::default())),
        Access::Server { server, ca_file, token } => Ok((from_parts(&server, ca_file, token)?, FileStates::default())),
        Access::Inline { text, origin } => {
            let unusable =
                |error| ClientError::Inline { origin: origin.to_string(), message: kubeconfig_problem(&error) };
            let kubeconfig = Kubeconfig::from_yaml(&text).map_err(unusable)?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            Ok((config.map_err(unusable)?, FileStates::default()))
        }
        Access::Awaited { source } => Err(ClientError::Awaited(source)),
    }
}

fn unusable(path: &Path, error: &KubeconfigError) -> ClientError {
    ClientError::Kubeconfig { path: path.to_owned(), message: kubeconfig_problem(error) }
}

async fn from_kubeconfig(
    path: PathBuf,
    context: Option<String>,
    threads: &Threads,
) -> Result<(Config, FileStates), ClientError> {
    let (file, wanted) = (path.clone(), context.clone());
    let read = threads.spawn_blocking(move || {
        // Stamped before it is read: what changes in between is seen the next time.
        let own = FileStates::of([file.clone()]);
        let kubeconfig = read_kubeconfig(&file, wanted.as_deref())?;
        let named = FileStates::of(files_of(&kubeconfig, wanted.as_deref()));
        Ok((kubeconfig, own.and(named)))
    });
    let Ok(read) = read.await else {
        return Err(ClientError::Client { what: path.display().to_string(), message: "reading it failed".to_owned() });
    };
    let (kubeconfig, files) = read?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| unusable(&path, &error))?;
    Ok((config, files))
}

/// The certificates and keys that a context names.
fn files_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Vec<PathBuf> {
    let wanted = context.or(kubeconfig.current_context.as_deref());
    let context = kubeconfig.contexts.iter().find(|known| Some(known.name.as_str()) == wanted);
    let Some(context) = context.and_then(|known| known.context.as_ref()) else { return Vec::new() };
    let cluster = kubeconfig.clusters.iter().find(|known| known.name == context.cluster);
    let user = kubeconfig.auth_infos.iter().find(|known| Some(&known.name) == context.user.as_ref());
    let cluster = cluster.and_then(|known| known.cluster.as_ref());
    let user = user.and_then(|known| known.auth_info.as_ref());
    let ca = cluster.and_then(|cluster| cluster.certificate_authority.clone());
    let own = user.map(|user| [user.client_certificate.clone(), user.client_key.clone()]);
    ca.into_iter().chain(own.into_iter().flatten().flatten()).map(PathBuf::from).collect()
}

/// Reads a kubeconfig that has the context that is asked for, or else a current one. Blocks; runs no plugin.
///
/// # Errors
/// [`ClientError::Kubeconfig`], [`ClientError::NoContext`], [`ClientError::NoCurrentContext`].
pub fn read_kubeconfig(path: &Path, context: Option<&str>) -> Result<Kubeconfig, ClientError> {
    let kubeconfig = read_any_kubeconfig(path)?;
    let path = path.to_owned();
    let known = || match kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>() {
        names if names.is_empty() => "no contexts".to_owned(),
        names => names.join(", "),
    };
    let wanted = context.or(kubeconfig.current_context.as_deref()).filter(|name| !name.is_empty());
    match wanted {
        None => Err(ClientError::NoCurrentContext { known: known(), path }),
        Some(name) if !kubeconfig.contexts.iter().any(|context| context.name == *name) => {
            Err(ClientError::NoContext { context: name.to_owned(), known: known(), path })
        }
        Some(_) => Ok(kubeconfig),
    }
}

/// Reads a kubeconfig whatever contexts it has. Paths in it are absolute afterwards. Blocks; runs no plugin.
///
/// # Errors
/// [`ClientError::Kubeconfig`].
pub fn read_any_kubeconfig(path: &Path) -> Result<Kubeconfig, ClientError> {
    if ends_within_utf16(path) {
        let message = "it begins as UTF-16 and ends within a character".to_owned();
        return Err(ClientError::Kubeconfig { path: path.to_owned(), message });
    }
    Kubeconfig::read_from(path).map_err(|error| unusable(path, &error))
}

/// Whether a file begins as UTF-16 and has an odd number of bytes, on which kube's reader panics.
fn ends_within_utf16(path: &Path) -> bool {
    let mut mark = [0; 2];
    let length = std::fs::File::open(path).and_then(|mut file| {
        file.read_exact(&mut mark)?;
        Ok(file.metadata()?.len())
    });
    matches!(mark, [0xff, 0xfe] | [0xfe, 0xff]) && length.is_ok_and(|length| length % 2 == 1)
}

/// What is wrong with a kubeconfig. The parser's own words quote the line, which may be the one with the token.
fn kubeconfig_problem(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else { return bounded(&error.to_string()) };
    let text = error.to_string();
    let place = text.split_once("line ").and_then(|(_, rest)| {
        let (line, rest) = rest.split_once(" column ")?;
        let column = rest.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
        line.bytes().all(|b| b.is_ascii_digit()).then(|| format!(" at line {line} column {column}"))
    });
    format!("it is not a kubeconfig in YAML{}", place.unwrap_or_default())
}

fn from_parts(server: &str, ca_file: Option<PathBuf>, token: Option<Token>) -> Result<Config, ClientError> {
    let url: http::Uri = server.parse().map_err(|_| ClientError::Address)?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
        return Err(ClientError::Address);
    }
    let mut config = Config::new(url);
    if let Some(path) = ca_file {
        readable("CA file", &path)?;
        config.root_cert_file = Some(path);
    }
    match token {
        None => {}
        Some(Token::Env(name)) => {
            let value = std::env::var(&name).map_err(|_| ClientError::TokenVariable(name))?;
            config.auth_info.token = Some(value.trim().to_owned().into());
        }
        Some(Token::File(path)) => {
            readable("token file", &path)?;
            config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
        }
    }
    Ok(config)
}

fn readable(what: &'static str, path: &Path) -> Result<(), ClientError> {
    std::fs::File::open(path).map(drop).map_err(|source| ClientError::File { what, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {token: hunter2}}]
contexts: [{name: blue, context: {cluster: c, user: u}}, {name: green, context: {cluster: c, user: u}}]
";

    fn kubeconfig(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    async fn fail(access: Access) -> String {
        let error = connect(access, true, None, &Threads::current()).await.err().unwrap();
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
    }

    #[tokio::test]
    async fn a_context_makes_a_client_and_an_unknown_one_names_those_that_exist() {
        let file = kubeconfig(KUBECONFIG);
        let access = |context: Option<&str>| Access::Kubeconfig {
            path: file.path().to_owned(),
            context: context.map(str::to_owned),
        };
        assert!(connect(access(Some("green")), true, None, &Threads::current()).await.is_ok());
        let error = fail(access(Some("grene"))).await;
        assert!(error.contains("\"grene\"") && error.contains("blue, green"), "{error}");
        let error = fail(access(None)).await;
        assert!(error.contains("no current context") && error.contains("blue, green"), "{error}");
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_named_and_never_quoted() {
        let file = kubeconfig("users: [hunter2");
        let error = fail(Access::Kubeconfig { path: file.path().to_owned(), context: None }).await;
        assert!(error.contains(&file.path().display().to_string()), "{error}");
        assert!(!error.contains("hunter2") && error.contains("line 1 column 8"), "{error}");
        let file = kubeconfig("apiVersion: v1\nusers: hunter2\n");
        let error = fail(Access::Kubeconfig { path: file.path().to_owned(), context: None }).await;
        assert!(!error.contains("hunter2"), "{error}");
        let missing = PathBuf::from("/does/not/exist");
        let error = fail(Access::Kubeconfig { path: missing.clone(), context: None }).await;
        assert!(error.contains("/does/not/exist"), "{error}");
        let server = |server: &str, ca_file, token| Access::Server { server: server.to_owned(), ca_file, token };
        assert!(fail(server("not a url", None, None)).await.contains("http or https"));
        let error = fail(server("https://127.0.0.1:1", Some(missing.clone()), None)).await;
        assert!(error.contains("CA file /does/not/exist"), "{error}");
        let error = fail(server("https://127.0.0.1:1", None, Some(Token::File(missing)))).await;
        assert!(error.contains("token file /does/not/exist"), "{error}");
        let error = fail(server("http://127.0.0.1:1", None, Some(Token::Env("NO_SUCH_TOKEN_7".to_owned())))).await;
        assert!(error.contains("NO_SUCH_TOKEN_7"), "{error}");
    }

    #[test]
    fn a_kubeconfig_that_ends_within_a_character_is_refused() {
        for bytes in [&b"\xff\xfe\x00"[..], b"\xfe\xffa"] {
            let file = kubeconfig("");
            std::fs::write(file.path(), bytes).unwrap();
            let error = read_any_kubeconfig(file.path()).unwrap_err().to_string();
            assert!(error.contains("begins as UTF-16"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_token_file_may_end_in_a_line_break_and_is_read_again() {
        let server = super::super::testserver::TestServer::always(Vec::new()).await;
        let file = kubeconfig("one\n");
        let access =
            Access::Server { server: server.url(), ca_file: None, token: Some(Token::File(file.path().to_owned())) };
        let client = connect(access, true, None, &Threads::current()).await.unwrap();
        let ask = async || {
            let _ = client.send(Request::get("/").body(Body::empty()).unwrap()).await;
            server.requests().last().unwrap().to_lowercase()
        };
        assert!(ask().await.contains("authorization: bearer one\r\n"));
        std::fs::write(file.path(), "two").unwrap();
        tokio::time::pause();
        tokio::time::advance(TOKEN_AGE).await;
        tokio::time::resume();
        assert!(ask().await.contains("authorization: bearer two\r\n"));
    }

    #[test]
    fn user_information_does_not_get_as_far_as_the_client() {
        let without = |text: &str| without_user(text.parse().unwrap()).to_string();
        assert_eq!(without("https://u:p@host:6443/prefix"), "https://host:6443/prefix");
        assert_eq!(without("https://[::1]:6443/"), "https://[::1]:6443/");
    }

    #[test]
    fn debug_output_shows_no_password() {
        let access = Access::Server { server: "https://u:hunter2@host".to_owned(), ca_file: None, token: None };
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}

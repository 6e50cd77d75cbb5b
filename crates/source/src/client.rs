//! Building a client from a cluster's access settings.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request};
use kube::client::Body;
#[cfg(feature = "auth-providers")]
use kube::config::AuthInfo;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::exec::{ExecError, ExecToken, Plugin};
use super::request::TargetServer;
use super::token_file::TokenFile;
use super::transport::{self, CONNECT_TIMEOUT, OpenError, Transport, Wiring};
use informer_hub_codec::bounded;
use informer_hub_dial::{Dial, server_of};
use informer_hub_disk::FileStates;
use informer_hub_types::{Encodings, HttpVersions, Threads};

/// Deadline for building a client, including a credential plugin and file reads.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);

/// Access settings of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// A kubeconfig file. All kubeconfig features of the kube crate are supported.
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Name of the context; `None` selects the file's current one.
        context: Option<String>,
    },
    /// The service account of the pod that runs this process.
    InCluster,
    /// No direct access: only an agent inside the cluster reaches the apiserver.
    Agent,
    /// Access by an address, with an optional CA file and bearer token.
    Server {
        /// `https://…` or `http://…`.
        server: String,
        /// PEM file with the roots, reread about once a minute; `None` means the system's roots.
        ca_file: Option<PathBuf>,
        /// Source of the bearer token; `None` sends no token.
        token: Option<Token>,
    },
    /// A kubeconfig in memory, of which the current context is used. It is fully trusted, including its commands and file
    /// paths.
    Inline {
        /// The kubeconfig, in YAML or JSON.
        text: Arc<str>,
        /// Where the kubeconfig comes from, as text for messages.
        origin: Arc<str>,
    },
    /// Access that is not known until [`KubeConnector::change`](super::KubeConnector::change) sets it.
    Awaited {
        /// The cluster source that will provide the access.
        source: String,
    },
}

impl fmt::Debug for Access {
    /// Omits the user information of an address and the contents of a kubeconfig in memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { path, context } => {
                f.debug_struct("Kubeconfig").field("path", path).field("context", context).finish()
            }
            Self::InCluster => f.write_str("InCluster"),
            Self::Agent => f.write_str("Agent"),
            Self::Server { server, ca_file, token } => {
                let host = server.rsplit_once('@').map_or(server.as_str(), |(_, host)| host);
                f.debug_struct("Server").field("server", &host).field("ca_file", ca_file).field("token", token).finish()
            }
            Self::Inline { origin, .. } => f.debug_struct("Inline").field("origin", origin).finish_non_exhaustive(),
            Self::Awaited { source } => f.debug_struct("Awaited").field("source", source).finish(),
        }
    }
}

/// The way to reach a cluster, and the options of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// Address and credentials of the cluster.
    pub access: Access,
    /// Whether lists may be gzipped.
    pub compression: bool,
    /// Versions of HTTP to use.
    pub http: HttpVersions,
    /// Encodings to request.
    pub encoding: Encodings,
}

impl From<Access> for AccessSettings {
    /// Creates settings with gzipped lists and the defaults of [`HttpVersions`] and [`Encodings`].
    fn from(access: Access) -> Self {
        Self { access, compression: true, http: HttpVersions::default(), encoding: Encodings::default() }
    }
}

/// Source of a bearer token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// An environment variable, read when the client is built.
    Env(String),
    /// A file, reread every 30 s. Surrounding white space is ignored.
    File(PathBuf),
}

/// A failure to build a client. Except for [`ClientError::TimedOut`], the configuration or its files must be fixed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read or is invalid.
    #[error("cannot use kubeconfig {}: {message}", path.display())]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The reason, without contents of the file.
        message: String,
    },
    /// The kubeconfig has no such context.
    #[error("kubeconfig {} has no context {context:?}; it has {known}", path.display())]
    NoContext {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The requested context.
        context: String,
        /// The existing contexts, as text for the message.
        known: String,
    },
    /// No context is configured, and the kubeconfig has no current one.
    #[error("kubeconfig {} has no current context: set one; it has {known}", path.display())]
    NoCurrentContext {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The existing contexts, as text for the message.
        known: String,
    },
    /// The kubeconfig in memory is invalid, or its current context is incomplete.
    #[error("cannot use the kubeconfig in {origin}: {message}")]
    Inline {
        /// Origin of the kubeconfig.
        origin: String,
        /// The reason, without contents of the kubeconfig.
        message: String,
    },
    /// The cluster source has not provided the access settings yet.
    #[error("cluster source {0} has not provided access to the cluster yet")]
    Awaited(String),
    /// The hub has no client for the cluster: only an agent inside the cluster reaches the apiserver.
    #[error("an agent watches the cluster for the fleet; this process has no access to it")]
    Agent,
    /// The process does not run in a pod.
    #[error("this process does not run in a pod with a service account")]
    NotInCluster(#[source] kube::config::InClusterError),
    /// The address is not a URL.
    #[error("the server's address is not a URL with http or https")]
    Address,
    /// A configured file cannot be read.
    #[error("cannot read {what} {}", path.display())]
    File {
        /// Kind of the file in the error text, such as `CA file`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of reading the file.
        #[source]
        source: std::io::Error,
    },
    /// A configured environment variable is not set, or not UTF-8.
    #[error("environment variable {0} for the token is not set, or is not UTF-8")]
    TokenVariable(String),
    /// TLS, a credential plugin or a proxy failed.
    #[error("cannot create a client for {what}: {message}")]
    Client {
        /// Description of the cluster, such as the kubeconfig's context or the server's address.
        what: String,
        /// The reason, without secrets.
        message: String,
    },
    /// A credential plugin or a file system was too slow. The caller retries later.
    #[error("cannot create a client for {0} within a minute")]
    TimedOut(String),
}

impl Access {
    /// Returns a description of the cluster, for logs and errors.
    fn target(&self) -> String {
        match self {
            Self::Kubeconfig { path, context: Some(context) } => format!("context {context:?} of {}", path.display()),
            Self::Kubeconfig { path, context: None } => format!("the current context of {}", path.display()),
            Self::InCluster => "the cluster of this pod".to_owned(),
            Self::Agent => "a cluster of an agent".to_owned(),
            Self::Server { .. } => format!("{self:?}"),
            Self::Inline { origin, .. } => origin.to_string(),
            Self::Awaited { source } => format!("a cluster of {source}"),
        }
    }
}

/// A new client, with its address, its connections, and the states of the files that it was built from.
pub(super) struct NewClient {
    pub(super) client: Client,
    /// The server's address, without user information.
    pub(super) address: String,
    /// Scheme, host and port of the address.
    pub(super) server: String,
    /// Sizes and modification times of the files that the client was built from and does not reread itself.
    pub(super) files: FileStates,
    /// Connections of this client, for reuse by the next one.
    pub(super) transport: Transport,
}

/// Builds a client on the runtime `io`. `dial` opens its connections; `None` opens them by TCP.
///
/// Reads files on the runtime's blocking threads and runs a credential plugin once. Sends no request to the cluster.
/// The client rereads a token file every 30 s, and the CA file of [`Access::Server`] and [`Access::InCluster`] every
/// minute. It renews a plugin's token before it expires. It does not reread a kubeconfig and its certificates; the
/// clients of [`KubeConnector`](super::KubeConnector) are rebuilt when these change.
///
/// # Errors
/// See [`ClientError`].
pub async fn connect(settings: AccessSettings, dial: Option<Dial>, io: &Threads) -> Result<Client, ClientError> {
    let wiring = Wiring { dial, ..Wiring::default() };
    Ok(make(None, settings, wiring, io).await?.client)
}

/// Builds a client like [`connect`], with the parts that `wiring` shares between clients of the cluster. `cluster` is
/// the cluster's name in log lines.
pub(super) async fn make(
    cluster: Option<Arc<str>>,
    settings: AccessSettings,
    wiring: Wiring,
    io: &Threads,
) -> Result<NewClient, ClientError> {
    let AccessSettings { access, compression, http, .. } = settings;
    let what = access.target();
    let work = io.spawn({
        let (what, threads) = (what.clone(), io.clone());
        async move {
            let (config, files) = load(access, &threads).await?;
            let mut config = prepare(config, compression);
            let cluster = cluster.unwrap_or_else(|| what.as_str().into());
            let token = run_plugin(&mut config, &cluster, &threads).await.map_err(|error| ClientError::Client {
                what: what.clone(),
                message: format!("cannot get credentials: {error}"),
            })?;
            let (address, server) = (config.cluster_url.to_string(), server_of(&config.cluster_url));
            let made = threads.spawn_blocking(move || open(config, token, http, wiring)).await;
            match made {
                Ok(Ok((client, transport))) => Ok(NewClient { client, address, server, files, transport }),
                Ok(Err(error)) => Err(ClientError::Client { what, message: error.describe() }),
                Err(_) => Err(ClientError::Client { what, message: "building the client panicked".to_owned() }),
            }
        }
    });
    // The timeout runs on `io`, since the caller's runtime may have no timer.
    let limited = io.spawn(async move { tokio::time::timeout(CONNECT_DEADLINE, work).await });
    match limited.await {
        Ok(Ok(Ok(made))) => made,
        Ok(Err(_)) => Err(ClientError::TimedOut(what)),
        Ok(Ok(Err(_))) | Err(_) => {
            Err(ClientError::Client { what, message: "the runtime for clients is shutting down".to_owned() })
        }
    }
}

/// Builds the HTTP client from its configuration. Sends nothing.
fn open(
    mut config: Config,
    plugin: Option<ExecToken>,
    http: HttpVersions,
    wiring: Wiring,
) -> Result<(Client, Transport), OpenError> {
    #[cfg(feature = "auth-providers")]
    install_provider_for(&config.auth_info);
    let file = TokenFile::take_from(&mut config).map(Arc::new);
    let plugin = plugin.map(Arc::new);
    let server: Arc<str> = server_of(&config.cluster_url).into();
    transport::open(&config, http, wiring, move |mut request: Request<Body>| {
        if let Some(target) = request.extensions().get::<TargetServer>() {
            target.note(&server);
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

/// Runs the credential plugin of a configuration, if any. Sets the plugin's certificate in `config`, and returns its
/// token; `None` without a token.
async fn run_plugin(config: &mut Config, cluster: &Arc<str>, io: &Threads) -> Result<Option<ExecToken>, ExecError> {
    let Some(plugin) = Plugin::take_from(config, cluster)? else { return Ok(None) };
    let credentials = plugin.run().await?;
    credentials.set_certificate(&mut config.auth_info);
    Ok(ExecToken::of(plugin, &credentials, io))
}

/// If the kubeconfig's user has an `auth-provider`, installs ring as the crypto provider of the process, unless there
/// is one. kube's clients for an `auth-provider` always use the crypto provider of the process.
#[cfg(feature = "auth-providers")]
fn install_provider_for(auth: &AuthInfo) {
    if auth.auth_provider.is_some() && rustls::crypto::CryptoProvider::get_default().is_none() {
        // Ignore the error: another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn prepare(mut config: Config, compression: bool) -> Config {
    config.cluster_url = without_user(config.cluster_url);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Requests have their own deadlines, and a watch may be silent for minutes.
    config.read_timeout = None;
    // kube must not retry: the reflector does, and reports its retries.
    config.default_retry = false;
    config.disable_compression |= !compression;
    let agent = HeaderValue::from_static(concat!("informer-hub/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    config
}

/// Removes the user information from an address: it is not used, but hyper would log it.
fn without_user(url: http::Uri) -> http::Uri {
    let Some((_, host)) = url.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else { return url };
    let Ok(host) = host.parse() else { return url };
    let mut parts = url.clone().into_parts();
    parts.authority = Some(host);
    http::Uri::from_parts(parts).unwrap_or(url)
}

/// Loads a client's configuration. Also returns sizes and modification times of the files that the client does not
/// reread itself, by which changes of these files are detected.
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
        Access::Agent => Err(ClientError::Agent),
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
        // Get the file's state before reading it, so that a change during the read is noticed at the next check.
        let own = FileStates::of([file.clone()]);
        let kubeconfig = read_kubeconfig(&file, wanted.as_deref())?;
        let named = FileStates::of(files_of(&kubeconfig, wanted.as_deref()));
        Ok((kubeconfig, own.and(named)))
    });
    let Ok(read) = read.await else {
        return Err(ClientError::Client {
            what: path.display().to_string(),
            message: "reading the kubeconfig panicked".to_owned(),
        });
    };
    let (kubeconfig, files) = read?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| unusable(&path, &error))?;
    Ok((config, files))
}

/// Returns the certificate and key files that a context names. `None` selects the current context.
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

/// Reads a kubeconfig and checks that it has the context `context`; with `None`, that it has a current context. Blocks;
/// runs no plugin.
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

/// Reads a kubeconfig and makes its paths absolute. Blocks; runs no plugin.
///
/// # Errors
/// [`ClientError::Kubeconfig`].
pub fn read_any_kubeconfig(path: &Path) -> Result<Kubeconfig, ClientError> {
    if is_truncated_utf16(path) {
        let message = "truncated UTF-16: the number of bytes is odd".to_owned();
        return Err(ClientError::Kubeconfig { path: path.to_owned(), message });
    }
    Kubeconfig::read_from(path).map_err(|error| unusable(path, &error))
}

/// Returns whether a file has a UTF-16 mark and an odd number of bytes. kube's reader would panic on such a file.
fn is_truncated_utf16(path: &Path) -> bool {
    let mut mark = [0; 2];
    let length = std::fs::File::open(path).and_then(|mut file| {
        file.read_exact(&mut mark)?;
        Ok(file.metadata()?.len())
    });
    matches!(mark, [0xff, 0xfe] | [0xfe, 0xff]) && length.is_ok_and(|length| length % 2 == 1)
}

/// Describes a parse error by its position. The parser's message quotes the line, which may contain a token.
fn kubeconfig_problem(error: &KubeconfigError) -> String {
    let error = match error {
        KubeconfigError::Parse(error) => error,
        // The path is already in the error.
        KubeconfigError::ReadConfig(error, _) => return bounded(&error.to_string()),
        error => return bounded(&error.to_string()),
    };
    let text = error.to_string();
    let place = text.split_once("line ").and_then(|(_, rest)| {
        let (line, rest) = rest.split_once(" column ")?;
        let column = rest.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
        line.bytes().all(|b| b.is_ascii_digit()).then(|| format!(": error at line {line}, column {column}"))
    });
    format!("not a valid kubeconfig{}", place.unwrap_or_default())
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
    use crate::token_file::TOKEN_AGE;

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
        let error = connect(access.into(), None, &Threads::current()).await.err().unwrap();
        informer_hub_types::with_causes(&error)
    }

    #[tokio::test]
    async fn client_is_built_for_a_context_and_unknown_context_lists_the_others() {
        let file = kubeconfig(KUBECONFIG);
        let access = |context: Option<&str>| Access::Kubeconfig {
            path: file.path().to_owned(),
            context: context.map(str::to_owned),
        };
        assert!(connect(access(Some("green")).into(), None, &Threads::current()).await.is_ok());
        let error = fail(access(Some("grene"))).await;
        assert!(error.contains("\"grene\"") && error.contains("blue, green"), "{error}");
        let error = fail(access(None)).await;
        assert!(error.contains("no current context") && error.contains("blue, green"), "{error}");
    }

    #[tokio::test]
    async fn error_names_the_input_without_quoting_it() {
        let file = kubeconfig("users: [hunter2");
        let error = fail(Access::Kubeconfig { path: file.path().to_owned(), context: None }).await;
        assert!(error.contains(&file.path().display().to_string()), "{error}");
        assert!(!error.contains("hunter2") && error.contains("line 1, column 8"), "{error}");
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
    fn truncated_utf16_kubeconfig_is_refused() {
        for bytes in [&b"\xff\xfe\x00"[..], b"\xfe\xffa"] {
            let file = kubeconfig("");
            std::fs::write(file.path(), bytes).unwrap();
            let error = read_any_kubeconfig(file.path()).unwrap_err().to_string();
            assert!(error.contains("truncated UTF-16"), "{error}");
        }
    }

    #[tokio::test]
    async fn token_file_is_trimmed_and_reread() {
        let server = super::super::testserver::TestServer::always(Vec::new()).await;
        let file = kubeconfig("one\n");
        let access =
            Access::Server { server: server.url(), ca_file: None, token: Some(Token::File(file.path().to_owned())) };
        let client = connect(access.into(), None, &Threads::current()).await.unwrap();
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
    fn user_information_is_removed_from_address() {
        let without = |text: &str| without_user(text.parse().unwrap()).to_string();
        assert_eq!(without("https://u:p@host:6443/prefix"), "https://host:6443/prefix");
        assert_eq!(without("https://[::1]:6443/"), "https://[::1]:6443/");
    }

    #[test]
    fn debug_output_has_no_password() {
        let access = Access::Server { server: "https://u:hunter2@host".to_owned(), ca_file: None, token: None };
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}

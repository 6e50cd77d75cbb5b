//! HTTP client of a running hub: address, credentials, and errors with advice.

use std::error::Error;
use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{StatusCode, Url};
use rustls::CertificateError;
use serde_json::Value;

use super::Misuse;
use informer_hub_config::{Config, HubConfig, Secret, is_loopback};
use informer_hub_dial::certificate_problem;
use informer_hub_tls::{Identity, Roots, certificates, http_config};

mod access;
mod stream;

pub(super) use self::access::Access;
#[cfg(test)]
pub(super) use self::access::Token;
pub(super) use self::stream::{Answer, Refused, Request};

/// Default address of a hub.
const DEFAULT: &str = "http://127.0.0.1:7080";

/// Configuration file that is read if neither an address nor a file is given.
const FILE: &str = "hub.toml";

/// Environment variable with the token itself. There is no option for it, because all users of the machine can see
/// options.
const TOKEN: &str = "INFORMER_HUB_TOKEN";

/// Timeout of a request.
const DEADLINE: Duration = Duration::from_secs(30);

/// Options for address and credentials of a hub.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "The hub")]
pub(super) struct HubArgs {
    /// The address of the hub; default: that of the configuration, or http://127.0.0.1:7080
    #[arg(long, global = true, env = "INFORMER_HUB_URL", alias = "server", value_name = "URL")]
    url: Option<String>,
    /// A file with a token of the hub; the variable INFORMER_HUB_TOKEN may hold the token itself
    #[arg(long, global = true, env = "INFORMER_HUB_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The CA certificates to trust, as PEM; default: those of the system
    #[arg(long, global = true, env = "INFORMER_HUB_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A client certificate, as PEM
    #[arg(long, global = true, env = "INFORMER_HUB_CLIENT_CERT_FILE", value_name = "FILE")]
    client_cert_file: Option<PathBuf>,
    /// The private key of the client certificate, as PEM
    #[arg(long, global = true, env = "INFORMER_HUB_CLIENT_KEY_FILE", value_name = "FILE")]
    client_key_file: Option<PathBuf>,
    /// The configuration of the hub, for address and token in [hub]; default: ./hub.toml, unless --url is given
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    token: Option<HeaderValue>,
    /// Text that says where the client got the address of the hub, appended to the error if the hub does not answer.
    /// Empty for an address from an option.
    origin: &'static str,
}

/// Error of a hub that does not answer: the hub or the network is down.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unanswered(String);

#[cfg(test)]
impl Unanswered {
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl HubArgs {
    /// Creates the client. Command-line options and environment variables take precedence over the configuration.
    ///
    /// # Errors
    /// If an option, or a file that it names, is not usable.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let hub = self.hub()?;
        let url = self.address(hub.as_ref())?;
        let auth = hub.as_ref().map(|hub| &hub.service.auth);
        let token = self.token(auth.map_or([None, None], |auth| [auth.token.as_ref(), auth.read_token.as_ref()]))?;
        let token = token.map(|(secret, text)| header(&text, &secret)).transpose()?;
        if token.is_some() && url.scheme() == "http" && !is_loopback(url.host_str().unwrap_or_default()) {
            note!(
                "informer-hub: sending the token to {} as plain text; use https:// if the hub has hub.tls",
                shown(&url)
            );
        }
        let origin = match (&self.url, &self.config, &hub) {
            (None, None, None) => " (the default address: no --url, no -c FILE, no ./hub.toml)",
            (None, None, Some(_)) => " (the address in ./hub.toml)",
            _ => "",
        };
        Ok(Client { http: self.http(&url)?, url, token, origin })
    }

    /// Reads the table `[hub]` of the file in `--config`; other tables are ignored. If neither `--config` nor `--url`
    /// is given, reads `./hub.toml`. `None` if there is no file to read.
    fn hub(&self) -> anyhow::Result<Option<HubConfig>> {
        if let Some(path) = &self.config {
            return Ok(Some(Config::hub_from_file(path)?));
        }
        if self.url.is_some() || !Path::new(FILE).is_file() {
            return Ok(None);
        }
        let hub = Config::hub_from_file(FILE)?;
        // The folder may be untrusted: its hub.toml must not choose another machine that gets the token.
        if !is_own(hub.listen.ip()) {
            bail!(
                "hub.listen in ./hub.toml is {}, which is not an address of this machine; give --url URL",
                hub.listen
            );
        }
        Ok(Some(hub))
    }

    fn address(&self, hub: Option<&HubConfig>) -> anyhow::Result<Url> {
        parse(&self.url.clone().or_else(|| hub.map(address)).unwrap_or_else(|| DEFAULT.to_owned()))
    }

    /// Returns the token to send, and where it is stored. Uses the first that is given: the file of `--token-file`, the
    /// environment variable, or the first readable token of `configured`. `None` if there is no token.
    fn token(&self, configured: [Option<&Secret>; 2]) -> anyhow::Result<Option<(Secret, String)>> {
        let given = self.token_file.clone().map(Secret::File);
        let variable =
            || std::env::var_os(TOKEN).is_some_and(|text| !text.is_empty()).then(|| Secret::Env(TOKEN.to_owned()));
        if let Some(secret) = given.or_else(variable) {
            let text = secret.read().with_context(|| format!("cannot read the token in {}", place(&secret)))?;
            return Ok(Some((secret, text)));
        }
        let mut failed = None;
        for secret in configured.into_iter().flatten() {
            match secret.read() {
                Ok(text) => return Ok(Some((secret.clone(), text))),
                // Users with read access often cannot read the file of the full-access token: try the next one.
                Err(error) => failed = failed.or(Some((secret, error))),
            }
        }
        match failed {
            Some((secret, error)) if self.client_cert_file.is_none() => {
                bail!("cannot read the token in {}: {error}; give --token-file FILE, or set {TOKEN}", place(secret))
            }
            _ => Ok(None),
        }
    }

    fn http(&self, url: &Url) -> anyhow::Result<reqwest::Client> {
        let roots = match &self.ca_file {
            Some(path) => {
                let roots = certificates(&read("--ca-file", path)?).unwrap_or_default();
                if roots.is_empty() {
                    bail!("--ca-file {} holds no PEM certificate", path.display());
                }
                Roots::Only(roots)
            }
            // Without TLS, no CA certificates are loaded: plain HTTP must work on a machine that has none.
            None if url.scheme() == "http" => Roots::Only(Vec::new()),
            None => Roots::SystemAnd(Vec::new()),
        };
        let identity = match (&self.client_cert_file, &self.client_key_file) {
            (Some(cert), Some(key)) => {
                let (chain, secret) = (read("--client-cert-file", cert)?, read("--client-key-file", key)?);
                let unusable = || format!("{} and {} are not a certificate and its key", cert.display(), key.display());
                Some(Identity::from_pem(&chain, &secret).ok().with_context(unusable)?)
            }
            (None, None) => None,
            (Some(_), None) => return Err(Misuse::error("--client-cert-file needs its key: --client-key-file")),
            (None, Some(_)) => {
                return Err(Misuse::error("--client-key-file needs its certificate: --client-cert-file"));
            }
        };
        let failed = "cannot set up the HTTP client; name the CAs to trust with --ca-file";
        let builder =
            reqwest::Client::builder().tls_backend_preconfigured(http_config(roots, identity).context(failed)?);
        builder.timeout(DEADLINE).redirect(reqwest::redirect::Policy::none()).build().context(failed)
    }
}

impl Client {
    /// Sends a GET request and returns the JSON answer.
    ///
    /// # Errors
    /// If there is no answer, or its status is not a success. The error text contains advice.
    pub(super) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> anyhow::Result<Value> {
        let mut url = self.at(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.ask(self.http.get(url)).await
    }

    /// Sends a POST request with a JSON body and returns the JSON answer.
    ///
    /// # Errors
    /// If there is no answer, or its status is not a success. The error text contains advice.
    pub(super) async fn post(&self, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        let request = self.http.post(self.at(path)).header(CONTENT_TYPE, "application/json").body(body.to_string());
        self.ask(request).await
    }

    /// Sends a GET request and returns the JSON answer, which must arrive within `deadline`.
    ///
    /// # Errors
    /// [`Unanswered`] after the deadline, and every error of [`Self::get`].
    pub(super) async fn get_within(&self, path: &[&str], deadline: Duration) -> anyhow::Result<Value> {
        let late = |_| Unanswered(format!("the hub at {} has not answered within {deadline:?}", self.address()));
        tokio::time::timeout(deadline, self.get(path, &[])).await.map_err(late)?
    }

    /// Returns the address of the hub without parts that may be secret.
    pub(super) fn address(&self) -> String {
        shown(&self.url)
    }

    fn unanswered(&self, error: &reqwest::Error) -> anyhow::Error {
        Unanswered(unanswered(&self.url, error) + self.origin).into()
    }

    fn at(&self, path: &[&str]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    async fn ask(&self, mut request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return Err(self.unanswered(&error.without_url())),
        };
        let status = answer.status();
        let text = match answer.text().await {
            Ok(text) => text,
            Err(error) => return Err(self.unanswered(&error.without_url())),
        };
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        match (status, answer["error"].as_str()) {
            (status, _) if status.is_success() && !answer.is_null() => Ok(answer),
            (StatusCode::UNAUTHORIZED, Some(_)) => bail!(self.unauthorized()),
            (status, Some(error)) if is_rejected(status.as_u16()) => Err(Misuse::error(error)),
            (_, Some(error)) => bail!("{error}"),
            (status, None) => {
                bail!("the server at {} answers {status} and is not a hub; check --url", shown(&self.url))
            }
        }
    }
}

/// Returns the file or environment variable that holds a secret, for error texts.
fn place(secret: &Secret) -> String {
    let variable = || format!("the variable {}", secret.variable().unwrap_or_default());
    secret.file().map_or_else(variable, |path| path.display().to_string())
}

/// Returns the `Authorization` header for a token.
fn header(text: &str, secret: &Secret) -> anyhow::Result<HeaderValue> {
    // The error of the header is dropped: it might contain the token.
    let Ok(mut header) = HeaderValue::try_from(format!("Bearer {text}")) else {
        bail!("the token in {} has characters that are not allowed in a header", place(secret))
    };
    header.set_sensitive(true);
    Ok(header)
}

/// Returns whether an address belongs to this machine. Sends nothing.
fn is_own(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the URL of a hub for clients on its own machine.
fn address(hub: &HubConfig) -> String {
    let scheme = if hub.service.tls.is_some() { "https" } else { "http" };
    let ip = match hub.listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, hub.listen.port()))
}

/// Returns whether an HTTP status code of the hub means that the request itself is wrong, which is a mistake in the
/// command line.
pub(super) fn is_rejected(code: u16) -> bool {
    matches!(code, 400 | 422)
}

fn parse(text: &str) -> anyhow::Result<Url> {
    const SHAPE: &str = "write e.g. https://hub.example.com:7080";
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else { return Err(Misuse::error(format!("--url is not an http or https address; {SHAPE}"))) };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Misuse::error("--url contains a user or password; use --token-file for a token"));
    }
    Ok(url)
}

fn read(option: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {option} {}", path.display()))
}

/// Returns an address without parts that may be secret.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Returns the error text for a request without an answer: the cause, and advice.
fn unanswered(url: &Url, error: &reqwest::Error) -> String {
    let at = shown(url);
    if let Some(problem) = causes(error).find_map(tls_problem) {
        return format!("the hub at {at}: {problem}");
    }
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if causes(error).any(|cause| cause.downcast_ref::<io::Error>().is_some_and(refused)) {
        return format!("nothing listens at {at}; start a hub, or give its address with --url or -c FILE");
    }
    if error.is_timeout() {
        return format!("the hub at {at} has not answered within {DEADLINE:?}");
    }
    let cut = |error: &hyper::Error| error.is_incomplete_message() || error.is_parse();
    let is_cut = causes(error).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(cut));
    let hint = if is_cut && url.scheme() == "http" { "; if it has hub.tls, write https://" } else { "" };
    let mut text = format!("the hub at {at} does not answer");
    for cause in causes(error) {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
    }
    text + hint
}

/// Returns an error and its causes, including those inside I/O errors.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| {
        let error: &'e (dyn Error + 'static) = *error;
        let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

fn tls_problem(error: &(dyn Error + 'static)) -> Option<String> {
    let problem = match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no trusted CA signed its certificate; name its CA with --ca-file".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another name; use one of its names in --url".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired; replace the files of hub.tls".to_owned()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS; write http:// in --url".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            format!("it refuses the client certificate ({alert:?}); see --client-cert-file")
        }
        other => certificate_problem(&other.to_string()).unwrap_or_else(|| format!("TLS fails: {other}")),
    };
    Some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_configuration_is_reachable_from_its_machine() {
        let at = |hub: &str| {
            let text = format!("[hub]\n{hub}\n[clusters.c]\nserver = \"http://127.0.0.1:1\"\n[resources.pods]\n");
            address(&Config::from_toml(&text).unwrap().hub)
        };
        let open = "auth = { allow_unauthenticated = true }";
        assert_eq!(at(""), DEFAULT);
        assert_eq!(at(&format!("listen = \"0.0.0.0:81\"\n{open}")), "http://127.0.0.1:81");
        assert_eq!(at(&format!("listen = \"[::]:81\"\n{open}")), "http://[::1]:81");
        assert_eq!(at(&format!("listen = \"10.0.0.1:81\"\n{open}")), "http://10.0.0.1:81");
    }

    #[test]
    fn a_default_address_has_an_origin() {
        let origin = |args: &HubArgs| args.client().unwrap().origin;
        assert!(origin(&HubArgs::default()).contains("no --url, no -c FILE, no ./hub.toml"));
        assert_eq!(origin(&HubArgs { url: Some(DEFAULT.to_owned()), ..HubArgs::default() }), "");
        assert!(is_own("127.0.0.2".parse().unwrap()) && is_own("::".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()), "an address reserved for documentation");
    }

    #[test]
    fn errors_and_addresses_do_not_show_secrets_of_a_url() {
        for bad in ["hub.example.com:7080", "ftp://hub", "http://", "https://u:hunter2@hub", "hunter2"] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.starts_with("--url ") && !error.contains("hunter2"), "{error}");
        }
        assert_eq!(
            shown(&parse("https://hub.example.com:7080/hunter2?key=hunter2").unwrap()),
            "https://hub.example.com:7080"
        );
        let is_here = |text: &str| is_loopback(parse(text).unwrap().host_str().unwrap());
        assert!(is_here("http://[::1]:1") && is_here("http://localhost") && !is_here("http://10.0.0.1"));
    }
}

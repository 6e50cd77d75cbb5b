//! Tests of the credential watch with generated tokens and a simulated clock.

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use informer_hub_source::Token;

const HOUR: i64 = 3600;

/// Captured log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// Captures the log of this thread until the guard is dropped.
    fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let layer = tracing_subscriber::fmt().with_writer(self.clone()).with_ansi(false).without_time();
        tracing::subscriber::set_default(layer.finish())
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn jwt(issued: i64, expires: i64) -> String {
    format!("e30.{}.c2VjcmV0", URL_SAFE_NO_PAD.encode(format!("{{\"iat\":{issued},\"exp\":{expires}}}")))
}

fn by_token(file: &Path) -> Vec<(Owner, CredentialSource)> {
    let (server, token) = ("https://x".to_owned(), Some(Token::File(file.to_owned())));
    let access = Access::Server { server, ca_file: None, token };
    vec![(Owner::Cluster("prod".to_owned()), CredentialSource::Cluster(access))]
}

#[test]
fn an_expiring_token_is_logged_once_at_each_threshold() {
    let (folder, lines, watch) = (tempfile::tempdir().unwrap(), Lines::default(), CredentialWatch::default());
    let _logging = lines.begin();
    let file = folder.path().join("token");
    std::fs::write(&file, jwt(0, 24 * HOUR)).unwrap();
    let (mut logged, owner) = (Vec::new(), Owner::Cluster("prod".to_owned()));
    for minute in 0..25 * 60 {
        watch.check(by_token(&file), time(minute * 60));
        logged.extend(lines.take().into_iter().map(|line| (minute, line)));
    }
    let [soon, imminent, ended] = &logged[..] else { panic!("{logged:#?}") };
    // The notice period begins 5 min after four fifths of the day. Three quarters of it have passed 70 min before the
    // end.
    assert_eq!((soon.0, imminent.0, ended.0), (24 * 48 + 5, 24 * 60 - 70, 24 * 60), "{logged:#?}");
    let level = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    assert_eq!([soon, imminent, ended].map(|(_, line)| level(line)), ["WARN", "WARN", "ERROR"]);
    for (_, line) in &logged {
        assert!(line.contains("cluster=\"prod\"") && line.contains("credential=\"token file\""), "{line}");
        assert!(line.contains(&file.display().to_string()) && line.contains("expires=1970-01-02T00:00:00Z"), "{line}");
        assert!(!line.contains("c2VjcmV0") && !line.contains("e30"), "a part of the token: {line}");
    }
    assert_eq!(watch.summary(&owner).unwrap().state, Expiry::Expired);

    std::fs::write(&file, jwt(25 * HOUR, 50 * HOUR)).unwrap();
    watch.check(by_token(&file), time(25 * HOUR));
    let line = lines.take().join("\n");
    assert!(line.contains("INFO") && line.contains("the credential was replaced"), "{line}");
    watch.check(Vec::new(), time(25 * HOUR));
    assert!(watch.of(&owner).is_empty() && lines.take().is_empty(), "a removed cluster has no credentials");
}

#[test]
fn a_token_replaced_in_time_is_never_logged() {
    let (folder, lines, watch) = (tempfile::tempdir().unwrap(), Lines::default(), CredentialWatch::default());
    let _logging = lines.begin();
    let file = folder.path().join("token");
    for minute in 0..600 {
        // The kubelet replaces a token of one hour after 48 minutes, up to 90 s late.
        if minute % 50 == 0 {
            std::fs::write(&file, jwt(minute * 60, minute * 60 + HOUR)).unwrap();
        }
        watch.check(by_token(&file), time(minute * 60));
        assert_eq!(lines.take(), [""; 0], "minute {minute}");
    }
}

#[test]
fn malformed_credential_files_are_tolerated() {
    let (folder, lines, watch) = (tempfile::tempdir().unwrap(), Lines::default(), CredentialWatch::default());
    let _logging = lines.begin();
    let file = folder.path().join("file");
    let context = Some("c".to_owned());
    let kubeconfig = CredentialSource::Cluster(Access::Kubeconfig { path: file.clone(), context });
    let rubbish: [&[u8]; 9] = [
        b"",
        b"\xff\xfe\x00",
        b"a.b.c",
        b"..",
        b"e30.e30.",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        b"users: [",
        b"e30.eyJleHAiOi0xZTMwOH0.x",
        b"e30.eyJleHAiOnt9fQ.x",
    ];
    for bytes in rubbish {
        std::fs::write(&file, bytes).unwrap();
        let mut all = by_token(&file);
        all.push((Owner::Port, CredentialSource::Certificate(CredentialKind::ServerCertificate, file.clone())));
        all.push((Owner::Source("s".to_owned()), kubeconfig.clone()));
        watch.check(all, time(HOUR));
        for owner in [Owner::Cluster("prod".to_owned()), Owner::Port, Owner::Source("s".to_owned())] {
            assert!(
                watch.of(&owner).iter().all(|one| one.state == Expiry::Expired),
                "{bytes:?}: {:?}",
                watch.of(&owner)
            );
        }
    }
}

#[test]
fn all_expiring_credentials_of_a_configuration_are_watched() {
    let text = "[hub.tls]\ncert_file = \"port.pem\"\nkey_file = \"port.key\"\n\
                [clusters.a]\nserver = \"https://x\"\nca_file = \"ca.pem\"\ntoken = { file = \"token\" }\n\
                [clusters.b]\nserver = \"http://127.0.0.1:1\"\n[clusters.c]\nin_cluster = true\n\
                [clusters.d]\nkubeconfig = \"k\"\ncontext = \"d\"\n\
                [cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\n\
                [cluster_sources.edge]\ntype = \"folder\"\npath = \"x\"\n[resources.pods]\n\
                [sinks.hook]\ntype = \"webhook\"\nurl = \"https://x\"\nclient_cert_file = \"hook.pem\"\n\
                client_key_file = \"hook.key\"\n[sinks.plain]\ntype = \"stdout\"\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    std::fs::write(&file, text).unwrap();
    let config = Config::from_file_alone(&file).unwrap();
    let owners: Vec<_> = credential_sources(&config).into_iter().map(|(owner, _)| format!("{owner:?}")).collect();
    assert_eq!(
        owners,
        ["Port", "Cluster(\"a\")", "Cluster(\"c\")", "Cluster(\"d\")", "Source(\"argo\")", "Sink(\"hook\")"]
    );
}

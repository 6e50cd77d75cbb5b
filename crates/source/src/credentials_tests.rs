//! Tests of validity periods, with generated certificates and tokens.

use super::CredentialKind::{CaCertificate, ClientCertificate, Exec, Token};
use super::*;

/// Returns a token in the format of Kubernetes, with a fake signature.
fn jwt(claims: &str) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

fn certificate(until: i32) -> String {
    let mut params = rcgen::CertificateParams::new(vec!["me".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
}

/// Returns the value that a test expects for a certificate: `shown`, or `None` in a build that does not parse
/// certificates.
fn parsed<T>(shown: T) -> Option<T> {
    cfg!(feature = "credential-expiry").then_some(shown)
}

fn expiry_years(found: &[Credential]) -> Vec<(CredentialKind, Option<i16>)> {
    let year = |time: Timestamp| time.to_zoned(jiff::tz::TimeZone::UTC).year();
    found.iter().map(|one| (one.kind, one.expires.map(year))).collect()
}

#[test]
fn context_has_validity_of_certificate_token_and_ca() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("me.crt"), certificate(2031)).unwrap();
    let two = STANDARD.encode(certificate(2029) + &certificate(2040));
    let token = jwt(r#"{"exp":1893456000,"iat":1577836800}"#);
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'https://x', certificate-authority-data: {two}}}}}]\n\
         users:\n- {{name: u, user: {{client-certificate: me.crt, client-key: me.key, token: {token}}}}}\n\
         - {{name: v, user: {{exec: {{command: ./plugin}}}}}}\n\
         contexts: [{{name: a, context: {{cluster: c, user: u}}}}, {{name: b, context: {{cluster: c, user: v}}}}]\n\
         current-context: a\n"
    );
    let path = folder.path().join("config");
    std::fs::write(&path, text).unwrap();
    let of = |context: Option<&str>| {
        let context = context.map(str::to_owned);
        credentials(&Access::Kubeconfig { path: path.clone(), context }).unwrap()
    };
    let found = of(None);
    assert_eq!(
        expiry_years(&found),
        [(ClientCertificate, parsed(2031)), (Token, Some(2030)), (CaCertificate, parsed(2040))],
        "one of two CAs is enough"
    );
    assert!(found[0].written.is_some() && found[0].place.ends_with("me.crt"), "{found:?}");
    assert!(!format!("{found:?}").contains(&token) && !serde_json::to_string(&found).unwrap().contains(&token));
    let found = of(Some("b"));
    assert_eq!(expiry_years(&found), [(Exec, None), (CaCertificate, parsed(2040))]);
    assert_eq!(found[0].place, folder.path().join("./plugin").display().to_string());
}

#[test]
fn chain_expires_with_its_first_certificate() {
    let mut chain = Credential::new(ClientCertificate, String::new());
    chain = chain.with_pem((certificate(2050) + &certificate(2035)).as_bytes());
    assert_eq!(expiry_years(&[chain]), [(ClientCertificate, parsed(2035))]);
}

#[test]
fn unusable_credential_has_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let access = Access::Server {
        server: "https://x".to_owned(),
        ca_file: Some(file.clone()),
        token: Some(client::Token::File(file.clone())),
    };
    let problems = |access: &Access| -> Vec<_> {
        credentials(access).unwrap().into_iter().map(|one| one.problem.unwrap_or_default()).collect()
    };
    assert!(problems(&access).iter().all(|problem| problem.starts_with("cannot be read: ")));
    std::fs::write(&file, "\n").unwrap();
    assert_eq!(problems(&access), ["is empty", parsed("holds no certificate in PEM").unwrap_or_default()]);
}

#[test]
fn token_of_an_object_rotates() {
    let user = |token: &str| {
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://x'}}}}]\nusers: [{{name: u, user: {{{token}}}}}]\n\
             contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\ncurrent-context: a\n"
        )
    };
    let rotates = |access: &Access| -> Vec<_> {
        credentials(access).unwrap().iter().map(|one| (one.kind, one.rotates)).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, user("token: a")).unwrap();
    assert_eq!(rotates(&Access::Kubeconfig { path: path.clone(), context: None }), [(Token, false)]);
    std::fs::write(&path, user("tokenFile: a")).unwrap();
    assert_eq!(rotates(&Access::Kubeconfig { path, context: None }), [(CredentialKind::TokenFile, true)]);
    let inline = Access::Inline { text: user("token: a").into(), origin: "a Secret".into() };
    assert_eq!(rotates(&inline), [(Token, true)], "what writes the Secret writes the next one");
}

#[test]
fn endless_file_is_read_up_to_a_limit() {
    let found = token_file(Path::new("/dev/zero"));
    assert_eq!((found.expires, found.problem), (None, None));
}

#[test]
fn token_that_is_not_a_jwt_has_no_dates() {
    let dates = |token: &str| {
        let found = Credential::new(Token, String::new()).with_token(token);
        (found.expires.map(Timestamp::as_second), found.problem)
    };
    assert_eq!(dates(&jwt(r#"{"exp":1893456000}"#)), (Some(1_893_456_000), None));
    for other in ["plain", "a.b.c", "a.b.c.d", &jwt("[]"), &jwt(r#"{"exp":1e300}"#)] {
        assert_eq!(dates(other), (None, None), "{other}");
    }
}

//! Check of the expiry of credentials.

use jiff::Timestamp;

use super::report::{ClusterReport, Level};
use crate::cli::print::span;
use informer_hub_types::{Credential, CredentialKind, Expiry};

/// Adds a finding for each credential that is broken, expired or expires soon.
pub(super) fn judge(report: &mut ClusterReport, now: Timestamp) {
    for one in report.credentials.clone() {
        if let Some((level, problem)) = verdict(&one, now) {
            report.find(level, format!("{} {}: {problem}", one.kind.as_str(), one.place), advice(one.kind));
        }
    }
}

/// Returns level and problem of a credential; `None` if it is fine.
pub(in crate::cli) fn verdict(one: &Credential, now: Timestamp) -> Option<(Level, String)> {
    if let Some(problem) = &one.problem {
        return Some((Level::Error, problem.clone()));
    }
    let second = |time: Timestamp| time.as_second();
    if let Some(issued) = one.issued.filter(|issued| second(*issued) > second(now) + 60) {
        return Some((Level::Error, format!("is valid only from {issued} on")));
    }
    let expires = one.expires?;
    let left = span((second(expires) - second(now)).unsigned_abs());
    match one.expiry(now) {
        Expiry::Valid => None,
        Expiry::Expired => Some((Level::Error, format!("expired {left} ago, at {expires}"))),
        Expiry::Soon | Expiry::Imminent => Some((Level::Warning, format!("expires in {left}, at {expires}"))),
    }
}

fn advice(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::ClientCertificate | CredentialKind::ServerCertificate => {
            "replace it with a newly signed certificate"
        }
        CredentialKind::CaCertificate => "get the current CA of the cluster; an expired one makes connections fail",
        CredentialKind::Token => {
            "get a new token, or use one that is renewed automatically: docs/clusters.md, credentials that last"
        }
        CredentialKind::TokenFile => {
            "check the program that writes the file; the hub reads it again by itself. If there is none, see \
             docs/clusters.md, credentials that last"
        }
        CredentialKind::Exec | CredentialKind::AuthProvider | CredentialKind::Password => "renew it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(kind: CredentialKind, issued: i64, expires: i64) -> Credential {
        let time = |seconds| Timestamp::from_second(seconds).ok();
        let place = "here".to_owned();
        Credential { issued: time(issued), expires: time(expires), ..Credential::new(kind, place) }
    }

    #[test]
    fn warnings_depend_on_the_lifetime_of_a_credential() {
        use CredentialKind::{ClientCertificate, TokenFile};
        let now = Timestamp::from_second(100 * 86_400).unwrap();
        let level = |kind, issued: i64, expires: i64| {
            let day = |hours: i64| 100 * 86_400 + hours * 3_600;
            verdict(&credential(kind, day(issued), day(expires)), now).map(|(level, _)| level)
        };
        assert_eq!(level(TokenFile, -1, 9), None, "1 h old");
        assert_eq!(level(TokenFile, -19, 1), Some(Level::Warning), "not renewed after four fifths of its lifetime");
        assert_eq!(level(ClientCertificate, -900, 15 * 24), None);
        assert_eq!(level(ClientCertificate, -900, 13 * 24), Some(Level::Warning));
        assert_eq!(level(ClientCertificate, -900, 0), Some(Level::Error), "just expired");
        assert_eq!(level(ClientCertificate, 1, 900), Some(Level::Error), "not yet valid");
    }

    #[test]
    fn a_finding_names_the_credential_and_its_expiry() {
        let mut report = ClusterReport::new("one");
        report.credentials = vec![credential(CredentialKind::Token, 0, 86_400 * 3)];
        judge(&mut report, Timestamp::from_second(86_400 * 5).unwrap());
        let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
        assert_eq!(finding.about, "clusters.one");
        assert_eq!(finding.problem, "token here: expired 2d ago, at 1970-01-04T00:00:00Z");
    }
}

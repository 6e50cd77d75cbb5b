//! Kind, location and expiry of credentials, without the secrets themselves.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

/// Notice period in seconds of a credential that is not replaced automatically: it becomes due this long before its
/// expiry. A certificate with a short lifetime becomes due later.
const NOTICE: i64 = 14 * 86_400;

/// Grace period in seconds for the automatic replacement of a token, at most a tenth of its lifetime. kubelet replaces
/// a token after four fifths of its lifetime, and checks once a minute. A token that is still in use after the grace
/// period counts as due.
const ROTATION: i64 = 5 * 60;

/// Kind of credential used to connect to a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialKind {
    /// Client certificate presented to the apiserver.
    ClientCertificate,
    /// CA that the apiserver's certificate is verified against.
    CaCertificate,
    /// Certificate of the hub's own HTTPS port.
    ServerCertificate,
    /// Bearer token that is read once, and not again when it changes.
    Token,
    /// Bearer token in a file, which is re-read when it changes.
    TokenFile,
    /// Exec plugin, which returns credentials with their expiry.
    Exec,
    /// Legacy `auth-provider` of a kubeconfig, such as `oidc`.
    AuthProvider,
    /// User name and password.
    Password,
}

impl CredentialKind {
    /// Returns the kind as words for tables, findings and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientCertificate => "client certificate",
            Self::CaCertificate => "CA",
            Self::ServerCertificate => "server certificate",
            Self::Token => "token",
            Self::TokenFile => "token file",
            Self::Exec => "command",
            Self::AuthProvider => "provider",
            Self::Password => "password",
        }
    }

    fn is_certificate(self) -> bool {
        matches!(self, Self::ClientCertificate | Self::CaCertificate | Self::ServerCertificate)
    }
}

/// One credential of a cluster, with the dates that can be read from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Credential {
    /// Kind of the credential, such as a token or a certificate.
    pub kind: CredentialKind,
    /// Location: a file, an environment variable or a user of a kubeconfig.
    pub place: String,
    /// Path, if the credential is a file.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Start of validity (`notBefore`, `iat`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
    /// Expiry (`notAfter`, `exp`); `None` if it never expires or the date cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Modification time of the credential's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    /// Whether something outside the hub replaces the credential before it expires, such as kubelet (token files) or a
    /// source of clusters.
    pub rotates: bool,
    /// Why the credential is unusable; `None` if no problem is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How close a credential is to its expiry.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expiry {
    /// The credential is not due for replacement, or its expiry is unknown.
    #[default]
    Valid,
    /// The credential is due for replacement.
    Soon,
    /// The credential is due, and at most a quarter of its notice period (the time between due and expired) is left.
    Imminent,
    /// The credential has expired.
    Expired,
}

impl Expiry {
    /// Returns whether the credential is due for replacement or expired.
    #[must_use]
    pub fn is_due(self) -> bool {
        self > Self::Valid
    }
}

impl Credential {
    /// Creates a credential without dates. Sets `rotates` for a token file only.
    #[must_use]
    pub fn new(kind: CredentialKind, place: String) -> Self {
        let rotates = kind == CredentialKind::TokenFile;
        Self { kind, place, file: None, issued: None, expires: None, written: None, rotates, problem: None }
    }

    /// Returns how close the credential is to its expiry.
    ///
    /// - A rotating credential is short-lived by design and replaced after four fifths of its lifetime (kubelet's
    ///   rule). It is due shortly after that.
    /// - A certificate is due two weeks before its expiry, or with three tenths of its lifetime left, whichever is
    ///   later.
    /// - Any other token is due two weeks before its expiry, however short its lifetime, since nothing replaces it.
    #[must_use]
    pub fn expiry(&self, now: Timestamp) -> Expiry {
        let Some(expires) = self.expires.map(Timestamp::as_second) else { return Expiry::Valid };
        // Timestamps in seconds are far from the limits of `i64`.
        let (left, notice) = (expires - now.as_second(), self.notice(expires));
        match left {
            ..=0 => Expiry::Expired,
            left if left <= notice / 4 => Expiry::Imminent,
            left if left <= notice => Expiry::Soon,
            _ => Expiry::Valid,
        }
    }

    /// Returns how many seconds before its expiry the credential becomes due.
    fn notice(&self, expires: i64) -> i64 {
        let life = self.issued.or(self.written).map(|issued| expires - issued.as_second()).filter(|life| *life > 0);
        match life {
            Some(life) if self.rotates => life / 5 - ROTATION.min(life / 10),
            None if self.rotates => 0,
            Some(life) if self.kind.is_certificate() => NOTICE.min(life / 10 * 3),
            _ => NOTICE,
        }
    }
}

/// A credential with an expiry, as shown in the status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CredentialStatus {
    /// Kind of the credential, such as a token or a certificate.
    pub kind: CredentialKind,
    /// Location: a file, an environment variable or a user of a kubeconfig.
    pub place: String,
    /// Time at which the credential expires.
    pub expires: Timestamp,
    /// How close the expiry is.
    pub state: Expiry,
}

impl CredentialStatus {
    /// Returns the status of a credential; `None` if its expiry is unknown.
    #[must_use]
    pub fn of(one: &Credential, now: Timestamp) -> Option<Self> {
        let (kind, place, state) = (one.kind, one.place.clone(), one.expiry(now));
        Some(Self { kind, place, expires: one.expires?, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    /// Returns the expiry state, `seconds` after issue, of a credential with a lifetime of `life` seconds.
    fn after(seconds: i64, kind: CredentialKind, rotates: bool, life: i64) -> Expiry {
        let time = |seconds| Timestamp::from_second(seconds).unwrap();
        let dates =
            Credential { issued: Some(time(0)), expires: Some(time(life)), ..Credential::new(kind, String::new()) };
        Credential { rotates, ..dates }.expiry(time(seconds))
    }

    #[test]
    fn rotating_token_is_due_when_its_rotation_is_overdue() {
        let file = |seconds, life| after(seconds, CredentialKind::TokenFile, true, life);
        // kubelet replaces a one-hour token after 48 minutes.
        assert_eq!([49, 52, 54, 59, 60].map(|minute| file(minute * 60, HOUR)), {
            [Expiry::Valid, Expiry::Valid, Expiry::Soon, Expiry::Imminent, Expiry::Expired]
        });
        // The shortest lifetime that Kubernetes issues.
        assert_eq!([480, 530, 541].map(|second| file(second, 600)), [Expiry::Valid, Expiry::Valid, Expiry::Soon]);
        // A one-day token written by hand becomes due hours ahead.
        assert_eq!([19 * HOUR, 20 * HOUR].map(|second| file(second, DAY)), [Expiry::Valid, Expiry::Soon]);
    }

    #[test]
    fn credential_without_rotation_is_due_two_weeks_ahead() {
        let token = |life| after(0, CredentialKind::Token, false, life);
        assert_eq!([DAY, 10 * DAY, 15 * DAY].map(token), [Expiry::Imminent, Expiry::Soon, Expiry::Valid]);
        let certificate = |day: i64| after(day * DAY, CredentialKind::ClientCertificate, false, 365 * DAY);
        assert_eq!([350, 352, 363, 366].map(certificate), {
            [Expiry::Valid, Expiry::Soon, Expiry::Imminent, Expiry::Expired]
        });
        // A one-day certificate is renewed daily, so it must not be due all day.
        let short = |hour: i64| after(hour * HOUR, CredentialKind::ClientCertificate, false, DAY);
        assert_eq!([0, 16, 18].map(short), [Expiry::Valid, Expiry::Valid, Expiry::Soon]);
    }

    #[test]
    fn expiry_accepts_any_combination_of_dates() {
        let ends = [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX];
        for (issued, expires, now) in ends.iter().flat_map(|a| ends.iter().flat_map(move |b| ends.map(|c| (a, b, c)))) {
            let one = Credential::new(CredentialKind::TokenFile, String::new());
            let one = Credential { issued: Some(*issued), expires: Some(*expires), ..one };
            for rotates in [true, false] {
                let found = Credential { rotates, ..one.clone() }.expiry(now);
                assert_eq!(found == Expiry::Expired, *expires <= now, "{issued} {expires} {now}");
            }
        }
        assert_eq!(Credential::new(CredentialKind::Exec, String::new()).expiry(Timestamp::MAX), Expiry::Valid);
    }
}

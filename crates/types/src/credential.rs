//! Credentials and how long they last: dates only, nothing secret.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

/// How long before its end a credential that no one replaces is warned of.
const NOTICE: i64 = 14 * 86_400;

/// How long what rotates a token may take, once four fifths of its life are over: kubelet looks once a minute.
const ROTATION: i64 = 5 * 60;

/// What a cluster is reached with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialKind {
    /// A certificate that the apiserver is shown.
    ClientCertificate,
    /// The CA that the apiserver's certificate is checked against.
    CaCertificate,
    /// The certificate of the hub's own port.
    ServerCertificate,
    /// A bearer token that is read once.
    Token,
    /// A bearer token in a file, which is read again as it changes.
    TokenFile,
    /// A command that gives credentials, and says itself how long they are good for.
    Exec,
    /// A provider that kube has built in (OIDC).
    AuthProvider,
    /// A user and a password.
    Password,
}

impl CredentialKind {
    /// In words, for tables, findings and logs.
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

/// One of the things that a cluster is reached with, and its dates as far as they can be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Credential {
    /// What it is.
    pub kind: CredentialKind,
    /// Where it stands: a file, a variable, a user of a kubeconfig.
    pub place: String,
    /// The file, if it is one.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// From when on it is good (`notBefore`, `iat`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
    /// When it ends (`notAfter`, `exp`); unset: never, or nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When its file was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    /// Whether something outside the hub replaces it in time: what writes a token file, or a source of clusters.
    pub rotates: bool,
    /// Why it cannot be what it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How near the end of a credential is.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expiry {
    /// Far away, or unknown.
    #[default]
    Valid,
    /// It is time to replace it.
    Soon,
    /// Three quarters of the notice have passed too.
    Imminent,
    /// It has ended.
    Expired,
}

impl Expiry {
    /// Whether somebody has to do something.
    #[must_use]
    pub fn is_due(self) -> bool {
        self > Self::Valid
    }
}

impl Credential {
    /// Nothing is known of it yet.
    #[must_use]
    pub fn new(kind: CredentialKind, place: String) -> Self {
        let rotates = kind == CredentialKind::TokenFile;
        Self { kind, place, file: None, issued: None, expires: None, written: None, rotates, problem: None }
    }

    /// How near its end is.
    ///
    /// What rotates is short-lived by design, and is replaced when four fifths of its life are over (kubelet's rule): it is
    /// due once that, and a moment more, has passed. Certificates are due two weeks before they end, or when three tenths of
    /// their life are left, if that is less. Other tokens are replaced by no one, so they are due two weeks before their end
    /// however short they live.
    #[must_use]
    pub fn expiry(&self, now: Timestamp) -> Expiry {
        let Some(expires) = self.expires.map(Timestamp::as_second) else { return Expiry::Valid };
        // Seconds of a timestamp are far from the ends of the number.
        let (left, notice) = (expires - now.as_second(), self.notice(expires));
        match left {
            ..=0 => Expiry::Expired,
            left if left <= notice / 4 => Expiry::Imminent,
            left if left <= notice => Expiry::Soon,
            _ => Expiry::Valid,
        }
    }

    /// Seconds before its end from which on it is due.
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

/// A credential with an end, as the status shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CredentialStatus {
    /// What it is.
    pub kind: CredentialKind,
    /// Where it stands: a file, a variable, a user of a kubeconfig.
    pub place: String,
    /// When it ends.
    pub expires: Timestamp,
    /// How near that is.
    pub state: Expiry,
}

impl CredentialStatus {
    /// Of a credential; `None` where no end is known.
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

    /// One that was issued at zero and lives so long, after so many seconds.
    fn after(seconds: i64, kind: CredentialKind, rotates: bool, life: i64) -> Expiry {
        let time = |seconds| Timestamp::from_second(seconds).unwrap();
        let dates =
            Credential { issued: Some(time(0)), expires: Some(time(life)), ..Credential::new(kind, String::new()) };
        Credential { rotates, ..dates }.expiry(time(seconds))
    }

    #[test]
    fn a_rotating_token_is_due_when_its_rotation_is_overdue() {
        let file = |seconds, life| after(seconds, CredentialKind::TokenFile, true, life);
        // kubelet replaces a token of an hour after 48 minutes.
        assert_eq!([49, 52, 54, 59, 60].map(|minute| file(minute * 60, HOUR)), {
            [Expiry::Valid, Expiry::Valid, Expiry::Soon, Expiry::Imminent, Expiry::Expired]
        });
        // The shortest that Kubernetes gives out.
        assert_eq!([480, 530, 541].map(|second| file(second, 600)), [Expiry::Valid, Expiry::Valid, Expiry::Soon]);
        // One of a day, written by hand: hours ahead.
        assert_eq!([19 * HOUR, 20 * HOUR].map(|second| file(second, DAY)), [Expiry::Valid, Expiry::Soon]);
    }

    #[test]
    fn what_no_one_replaces_is_due_two_weeks_ahead() {
        let token = |life| after(0, CredentialKind::Token, false, life);
        assert_eq!([DAY, 10 * DAY, 15 * DAY].map(token), [Expiry::Imminent, Expiry::Soon, Expiry::Valid]);
        let certificate = |day: i64| after(day * DAY, CredentialKind::ClientCertificate, false, 365 * DAY);
        assert_eq!([350, 352, 363, 366].map(certificate), {
            [Expiry::Valid, Expiry::Soon, Expiry::Imminent, Expiry::Expired]
        });
        // One of a day is renewed each day, which is no reason to warn all day.
        let short = |hour: i64| after(hour * HOUR, CredentialKind::ClientCertificate, false, DAY);
        assert_eq!([0, 16, 18].map(short), [Expiry::Valid, Expiry::Valid, Expiry::Soon]);
    }

    #[test]
    fn dates_that_make_no_sense_break_nothing() {
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

//! Names in client certificates, by which readers are identified.

use smol_str::SmolStr;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Names in a client certificate, as kube-apiserver reads them. The TLS connection has verified the certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientCertificate {
    /// Common name (CN), which is the user name; empty if there is none.
    pub common_name: SmolStr,
    /// Organizations (O), which are the groups.
    pub organizations: Vec<SmolStr>,
}

impl ClientCertificate {
    /// Reads the names from a certificate in DER. If there are several common names, the last one counts. If the
    /// certificate cannot be decoded, all names are empty.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::default() };
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or_default();
        let organizations = subject.iter_organization().filter_map(|name| name.as_str().ok());
        Self {
            common_name: common_name.into(),
            organizations: organizations.filter(|name| !name.is_empty()).map(SmolStr::new).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_subject() {
        let key = rcgen::KeyPair::generate().unwrap();
        let der = |names: &[(rcgen::DnType, &str)]| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, name) in names {
                params.distinguished_name.push(kind.clone(), *name);
            }
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let read = ClientCertificate::from_der(&der(&[
            (rcgen::DnType::OrganizationName, "sre"),
            (rcgen::DnType::CommonName, "jane"),
        ]));
        assert_eq!((read.common_name.as_str(), &read.organizations[..]), ("jane", &[SmolStr::new("sre")][..]));
        assert_eq!(ClientCertificate::from_der(&der(&[])), ClientCertificate::default());
        assert_eq!(ClientCertificate::from_der(b"no certificate"), ClientCertificate::default());
    }
}

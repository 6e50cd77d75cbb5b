//! Environment of credential plugins: an allow-list, so that plugins do not get the hub's secrets.
//!
//! docs/clusters.md lists the variables for users. A test compares that list with this file.

use std::ffi::OsString;

use informer_hub_types::is_secret_variable;

/// Names of variables that plugins inherit: paths, locale, time zone, proxies, TLS roots, the pod's own API server.
pub(super) const NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "TMPDIR",
    "TMP",
    "TEMP",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    "KUBECONFIG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "SSH_AUTH_SOCK",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "USE_GKE_GCLOUD_AUTH_PLUGIN",
];

/// Prefixes of variables that plugins inherit: locale, user directories, TLS roots, clouds.
pub(super) const PREFIXES: &[&str] = &[
    "LC_",
    "XDG_",
    "SSL_CERT_",
    "AWS_",
    "AZURE_",
    "AAD_",
    "ARM_",
    "MSI_",
    "IDENTITY_",
    "GOOGLE_",
    "GCE_",
    "GCLOUD_",
    "CLOUDSDK_",
    "OCI_",
    "ALIBABA_CLOUD_",
    "ALICLOUD_",
    "DIGITALOCEAN_",
    "IBMCLOUD_",
    "OS_",
];

/// Returns the variables of the hub that plugins inherit.
pub(super) fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on))
}

/// Returns whether plugins inherit a variable. They never inherit one that the configuration uses as a secret.
fn is_passed_on(name: &str) -> bool {
    let is_listed = NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    is_listed && !name.starts_with("INFORMER_HUB_") && !is_secret_variable(name)
}

/// Returns whether the name of a variable or option suggests that it holds a secret.
pub(super) fn is_confidential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["secret", "token", "password", "passwd", "key", "credential", "assertion"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::mark_secret_variable;

    #[test]
    fn plugin_environment_has_no_secret_of_the_hub() {
        for name in ["PATH", "HOME", "LC_ALL", "https_proxy", "AWS_PROFILE", "CLOUDSDK_CONFIG", "SSL_CERT_FILE"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in ["INFORMER_HUB_TOKEN", "SIGNING_KEY", "RUST_LOG", "NOTIFY_SOCKET", "OTEL_EXPORTER_OTLP_HEADERS", ""]
        {
            assert!(!is_passed_on(name), "{name}");
        }
        assert!(is_passed_on("AWS_WEBHOOK_KEY_OF_A_TEST"));
        mark_secret_variable("AWS_WEBHOOK_KEY_OF_A_TEST");
        assert!(!is_passed_on("AWS_WEBHOOK_KEY_OF_A_TEST"), "the configuration uses it as a secret");
    }

    #[test]
    fn plugin_environment_is_the_documented_one() {
        let page = include_str!("../../../../docs/clusters.md");
        let section = page.split("## Credential plugins").nth(1).expect("docs/clusters.md has the section");
        let section = section.split("\n## ").next().unwrap();
        for name in NAMES {
            assert!(section.contains(&format!("`{name}`")), "{name} is missing in docs/clusters.md");
        }
        for prefix in PREFIXES {
            assert!(section.contains(&format!("`{prefix}*`")), "{prefix} is missing in docs/clusters.md");
        }
    }
}

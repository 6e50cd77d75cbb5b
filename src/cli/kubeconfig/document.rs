//! The kubeconfig as a document, with the keys in the order in which kubectl writes them.

use anyhow::bail;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::context::{Context, FLEET};
use crate::cli::client::Access;

/// Name of the user entry, and prefix of the names of cluster entries. When kubeconfigs are merged, no other file must
/// have entries of these names.
const OWN: &str = "informer-hub";

/// Returns the kubeconfig. Its current context is the context for all clusters.
///
/// # Errors
/// If the token is not in a file and is not to be embedded.
pub(in crate::cli) fn document(
    access: &Access,
    contexts: &[Context],
    prefix: &str,
    embed_token: bool,
) -> anyhow::Result<Value> {
    let user_name = format!("{prefix}{OWN}");
    let name = |context: &Context| format!("{prefix}{}", context.name);
    let cluster_name = |context: &Context| format!("{OWN}/{}", name(context));
    let cluster = |context: &Context| json!({ "name": cluster_name(context), "cluster": cluster(access, context) });
    let entry = |context: &Context| {
        let of = json!({ "cluster": cluster_name(context), "user": user_name });
        json!({ "name": name(context), "context": of })
    };
    Ok(json!({
        "apiVersion": "v1",
        "clusters": contexts.iter().map(cluster).collect::<Vec<_>>(),
        "contexts": contexts.iter().map(entry).collect::<Vec<_>>(),
        "current-context": format!("{prefix}{FLEET}"),
        "kind": "Config",
        "users": [{ "name": user_name, "user": user(access, embed_token)? }],
    }))
}

fn cluster(access: &Access, context: &Context) -> Value {
    let mut url = access.url.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(&context.root);
    }
    let mut cluster = json!({ "server": url.as_str() });
    if let Some(ca) = &access.ca {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(ca));
    }
    cluster
}

fn user(access: &Access, embed_token: bool) -> anyhow::Result<Value> {
    let mut user = json!({});
    match &access.token {
        None => {}
        Some(token) if embed_token => user["token"] = json!(token.text),
        Some(token) => match &token.file {
            Ok(file) => user["tokenFile"] = json!(file),
            Err(place) => bail!("the token is in {place}, not in a file; give --token-file FILE, or --embed-token"),
        },
    }
    if let Some((certificate, key)) = &access.certificate {
        user["client-certificate"] = json!(certificate);
        user["client-key"] = json!(key);
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use kube::config::Kubeconfig;

    use super::super::context::contexts;
    use super::*;
    use crate::cli::client::Token;
    use crate::cli::print::yaml;
    use informer_hub_types::ClusterName;

    fn access(url: &str) -> Access {
        Access { url: url.parse().unwrap(), ca: None, token: None, certificate: None }
    }

    fn text(access: &Access, prefix: &str, embed: bool) -> String {
        let selections = ["west=region in (us,ca)".parse().unwrap(), "named=example.com/tier=a".parse().unwrap()];
        let contexts = contexts(&[ClusterName::new("prod-eu").unwrap()], &selections).unwrap();
        yaml(&document(access, &contexts, prefix, embed).unwrap()).unwrap()
    }

    #[test]
    fn kubeconfig_without_credentials_is_exactly_this() {
        let contexts = contexts(&[ClusterName::new("eu").unwrap()], &[]).unwrap();
        let document = document(&access("http://127.0.0.1:7080"), &contexts[..1], "", false).unwrap();
        let wanted = "apiVersion: v1\nclusters:\n- cluster:\n    server: http://127.0.0.1:7080/clusters/*\n  name: \
                      informer-hub/fleet\ncontexts:\n- context:\n    cluster: informer-hub/fleet\n    user: \
                      informer-hub\n  name: fleet\ncurrent-context: fleet\nkind: Config\nusers:\n- name: \
                      informer-hub\n  user: {}\n";
        assert_eq!(yaml(&document).unwrap(), wanted);
    }

    #[test]
    fn kube_reads_every_context_with_its_server_and_user() {
        let token = Token { text: "hunter2".to_owned(), file: Ok(PathBuf::from("/etc/hub/token")) };
        let certificate = Some((PathBuf::from("/c.pem"), PathBuf::from("/k.pem")));
        let access = Access {
            ca: Some(b"pem".to_vec()),
            token: Some(token),
            certificate,
            ..access("https://hub.example.com/base/")
        };
        let text = text(&access, "hub-", false);
        assert!(!text.contains("hunter2"), "{text}");
        let read = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("hub-fleet"));
        let mut servers = Vec::new();
        for context in &read.contexts {
            let named = context.context.as_ref().unwrap();
            assert_eq!(named.user.as_deref(), Some("hub-informer-hub"));
            let cluster = read.clusters.iter().find(|it| it.name == named.cluster).unwrap().cluster.as_ref().unwrap();
            assert_eq!(cluster.certificate_authority_data.as_deref(), Some("cGVt"));
            servers.push((context.name.as_str(), cluster.server.as_deref().unwrap()));
        }
        assert_eq!(
            servers,
            [
                ("hub-fleet", "https://hub.example.com/base/clusters/*"),
                ("hub-fleet-unique", "https://hub.example.com/base/unique/*"),
                ("hub-west", "https://hub.example.com/base/clusters/region%20in%20(ca,us)"),
                ("hub-named", "https://hub.example.com/base/clusters/example.com%2Ftier=a"),
                ("hub-prod-eu", "https://hub.example.com/base/clusters/prod-eu"),
            ]
        );
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.token_file.as_deref(), Some("/etc/hub/token"));
        assert!(user.token.is_none());
        assert_eq!(user.client_certificate.as_deref(), Some("/c.pem"));
        assert_eq!(user.client_key.as_deref(), Some("/k.pem"));
    }

    #[test]
    fn token_is_embedded_only_on_request() {
        let token = Token { text: "hunter2".to_owned(), file: Err("the variable T".to_owned()) };
        let access = Access { token: Some(token), ..access("https://hub") };
        assert!(!format!("{access:?}").contains("hunter2"));
        assert!(text(&access, "", true).contains("token: hunter2"));
        let error = document(&access, &[], "", false).unwrap_err().to_string();
        assert_eq!(error, "the token is in the variable T, not in a file; give --token-file FILE, or --embed-token");
    }
}

//! HTTP port of the demo, through which clients can read the clusters after the end of all faults.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, ensure};
use tokio::net::TcpListener;

use super::temp_file::TempFile;
use crate::cli::client::Access;
use crate::cli::kubeconfig;
use crate::cli::print::yaml;
use informer_hub_types::ClusterName;

/// Address if `--listen` is not given.
const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7080);

/// Opens the port. Without a given address, another port is used if the default is taken.
///
/// # Errors
/// If the given address is taken, or if other machines can reach it: the demo has no authentication.
pub(super) async fn bind(given: Option<SocketAddr>) -> anyhow::Result<TcpListener> {
    let address = given.unwrap_or(DEFAULT);
    ensure!(address.ip().is_loopback(), "--listen {address} is not on loopback, and the demo has no authentication");
    match TcpListener::bind(address).await {
        Err(error) if given.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {
            note!("informer-hub: {address} is in use; the demo takes a free port");
            let free = SocketAddr::new(address.ip(), 0);
            TcpListener::bind(free).await.with_context(|| format!("cannot listen on {free}"))
        }
        bound => bound.with_context(|| format!("cannot listen on {address}; give another with --listen")),
    }
}

/// Writes the kubeconfig of the demo.
pub(super) fn kubeconfig(address: SocketAddr, clusters: &[ClusterName]) -> anyhow::Result<TempFile> {
    let url = format!("http://{address}").parse().context("the address is not part of a URL")?;
    let access = Access { url, ca: None, token: None, certificate: None };
    let contexts = kubeconfig::contexts(clusters, &["prod=tier=prod".parse().map_err(anyhow::Error::msg)?])?;
    TempFile::create(".kubeconfig", &yaml(&kubeconfig::document(&access, &contexts, "", false)?)?)
}

/// Returns a text for the user: the address of the hub, and commands to try. Its lines have at most 80 columns.
pub(super) fn invitation(address: SocketAddr, kubeconfig: &TempFile, first: &ClusterName) -> String {
    let path = kubeconfig.path().display();
    format!(
        "\nThe clusters now change without faults. Programs on this machine can read them\n\
         at http://{address} until Ctrl-C. Try in another terminal:\n  \
         export KUBECONFIG={path}\n  \
         kubectl get pods -A                     # all clusters\n  \
         kubectl get pods -A --watch\n  \
         kubectl --context {first} get nodes   # one cluster\n  \
         kubectl --context prod get widgets -A   # clusters with the label tier=prod\n  \
         curl 'http://{address}/clusters/*/api/v1/pods?limit=2'\n  \
         export INFORMER_HUB_URL=http://{address}\n  \
         informer-hub get pods -n shop           # the same without kubectl\n  \
         informer-hub query 'status.phase = Failed count by cluster'\n  \
         informer-hub watch pods,nodes           # every change, and what it is\n  \
         informer-hub status"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn default_port_in_use_is_replaced_by_a_free_one_and_a_given_one_is_an_error() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(Some(address)).await.unwrap_err().to_string();
        assert_eq!(error, format!("cannot listen on {address}; give another with --listen"));
        let error = bind(Some("0.0.0.0:0".parse().unwrap())).await.unwrap_err().to_string();
        assert!(error.contains("is not on loopback"), "{error}");
        // The default may be free or taken on this machine; both give a port.
        assert!(bind(None).await.is_ok() && bind(None).await.is_ok());
    }

    #[test]
    fn invitation_names_an_existing_kubeconfig_with_the_contexts_that_it_uses() {
        let name = ClusterName::new("cluster-1").unwrap();
        let address = "127.0.0.1:54321".parse().unwrap();
        let file = kubeconfig(address, std::slice::from_ref(&name)).unwrap();
        let read = kube::config::Kubeconfig::read_from(file.path()).unwrap();
        let contexts: Vec<_> = read.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!(contexts, ["fleet", "fleet-unique", "prod", "cluster-1"]);
        let text = invitation(address, &file, &name);
        assert!(text.contains("--context cluster-1 ") && text.contains("--context prod "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains("KUBECONFIG=")), "{text}");
    }
}

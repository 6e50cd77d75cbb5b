//! Discovery: the resources of the selected clusters.

use anyhow::{Context, bail};
use serde_json::Value;

use crate::cli::client::{Client, Refused, Request};
use informer_hub_apiclient::{DISCOVERY, Resources};
use informer_hub_types::{ClusterName, first_names, nearest_name};

/// Maximum bytes of a discovery document.
const LONGEST: usize = 32 << 20;

/// Requests the resources that the hub serves below `root`, the two path segments that select clusters.
///
/// # Errors
/// If the hub does not answer, has no such cluster, or does not serve objects.
pub(in crate::cli) async fn resources(client: &Client, root: [&str; 2]) -> anyhow::Result<Resources> {
    let document = |last: &'static str| {
        let request = Request { path: vec![root[0], root[1], last], accept: DISCOVERY, ..Request::default() };
        async move { client.whole(&request, LONGEST).await }
    };
    let documents = tokio::try_join!(document("api"), document("apis"));
    match documents {
        Ok(((core, _), (named, _))) => {
            let read = Resources::parse([&core[..], &named]);
            read.with_context(|| format!("the server at {} sends no discovery document", client.address()))
        }
        Err(error) => {
            let refused = error.downcast_ref::<Refused>();
            if refused.is_some_and(|refused| refused.refusal.code == 404) {
                known_cluster(client, root[1]).await?;
                bail!(
                    "the hub at {} does not serve objects; write enabled = true in [hub.read_api] of its \
                     configuration: {error:#}",
                    client.address()
                );
            }
            Err(error)
        }
    }
}

/// Verifies that the hub has a cluster named `written`. Accepts any text that cannot be a cluster name, such as a label
/// selector.
async fn known_cluster(client: &Client, written: &str) -> anyhow::Result<()> {
    if ClusterName::new(written).is_err() {
        return Ok(());
    }
    let status = client.get(&["v1", "status"], &[]).await?;
    let names: Vec<&str> =
        status["clusters"].as_array().into_iter().flatten().filter_map(|it: &Value| it["name"].as_str()).collect();
    if names.contains(&written) {
        return Ok(());
    }
    let nearest = nearest_name(written, names.iter().copied(), 3);
    let hint = nearest.map_or_else(|| "it has: ".to_owned(), |nearest| format!("did you mean {nearest:?}? It has: "));
    bail!("the hub has no cluster {written:?}; {hint}{}", first_names(&names))
}

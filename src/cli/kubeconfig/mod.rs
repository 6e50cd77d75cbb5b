//! `informer-hub kubeconfig`: prints a kubeconfig for the Kubernetes API that a hub serves.

mod context;
mod document;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use serde_json::Value;

use self::context::Selection;
pub(super) use self::context::contexts;
pub(super) use self::document::document;
use super::client::{Access, Client, HubArgs};
use super::print::{out, yaml};
use super::{interruptible, runtime};
use informer_hub_types::{ClusterLabels, ClusterName, printable};

/// Arguments of `kubeconfig`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub kubeconfig > fleet.kubeconfig\n  kubectl --kubeconfig fleet.kubeconfig get \
        pods -A\n  kubectl --kubeconfig fleet.kubeconfig --context prod-eu get deployments\n  informer-hub kubeconfig \
        --selection prod=tier=prod --selection 'west=region in (us,ca)'\n\nThe current context is the fleet: all \
        clusters at once."
)]
pub(super) struct Args {
    /// Write contexts for these clusters and do not ask the hub; default: all clusters that it has now
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    clusters: Vec<ClusterName>,
    /// Also a context for the clusters that a label selector matches; may be given several times
    #[arg(long = "selection", value_name = "NAME=SELECTOR")]
    selections: Vec<Selection>,
    /// A prefix of the name of each context, to merge the output with other kubeconfigs
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Copy the token into the output; default: name the file of the token
    #[arg(long)]
    embed_token: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let access = args.hub.access()?;
    let clusters = match &args.clusters[..] {
        [] => {
            let client = args.hub.client()?;
            let clusters = interruptible(&runtime()?, clusters(&client))?;
            warn_of_empty_selections(&args.selections, &clusters);
            clusters.into_keys().collect()
        }
        given => given.to_vec(),
    };
    let contexts = contexts(&clusters, &args.selections)?;
    warn_of_plain_http(&access);
    out(&yaml(&document(&access, &contexts, &args.prefix, args.embed_token)?)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the hub for its clusters and their labels.
async fn clusters(client: &Client) -> anyhow::Result<BTreeMap<ClusterName, ClusterLabels>> {
    let status = client.get(&["v1", "status"], &[]).await?;
    let cluster = |cluster: &Value| {
        let name = cluster["name"].as_str().context("the hub reports a cluster without a name")?;
        let labels = serde_json::from_value(cluster["labels"].clone()).unwrap_or_default();
        anyhow::Ok((ClusterName::new(name)?, labels))
    };
    status["clusters"].as_array().into_iter().flatten().map(cluster).collect()
}

fn warn_of_empty_selections(selections: &[Selection], clusters: &BTreeMap<ClusterName, ClusterLabels>) {
    for selection in selections {
        if !clusters.values().any(|labels| selection.matches(labels)) {
            note!("informer-hub: --selection {}: no cluster of the hub matches now", printable(selection.name()));
        }
    }
}

/// Warns if the hub's address is plain HTTP: kubectl and other client-go programs then send no credentials.
fn warn_of_plain_http(access: &Access) {
    if access.url.scheme() == "http" && (access.token.is_some() || access.certificate.is_some()) {
        note!(
            "informer-hub: kubectl sends no credentials to an http:// address, so this hub refuses it; set [hub.tls] and \
             give --url https://…"
        );
    }
}

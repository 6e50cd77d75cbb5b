//! Tests of leases: compare-and-set as kube's client sees it.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client, Config};

use super::*;
use informer_hub_types::Gvr;

fn leases(cluster: &SimCluster) -> Api<Lease> {
    Api::namespaced(Client::try_from(Config::new(cluster.url().parse().unwrap())).unwrap(), "hub")
}

fn lease(holder: &str) -> Lease {
    let text =
        format!(r#"{{"metadata":{{"name":"one","annotations":{{"a":"b"}}}},"spec":{{"holderIdentity":"{holder}"}}}}"#);
    serde_json::from_str(&text).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_one_of_two_writes_of_a_version_succeeds() {
    let cluster = cluster();
    let (leases, params) = (leases(&cluster), PostParams::default());
    assert_eq!(code(within(leases.get("one")).await), 404);
    assert_eq!(code(within(leases.replace("one", &params, &lease("a"))).await), 404);
    let created = within(leases.create(&params, &lease("a"))).await.unwrap();
    assert_eq!(code(within(leases.create(&params, &lease("b"))).await), 409);
    let mut second = lease("b");
    second.metadata.resource_version.clone_from(&created.metadata.resource_version);
    let replaced = within(leases.replace("one", &params, &second)).await.unwrap();
    assert_ne!(replaced.metadata.resource_version, created.metadata.resource_version);
    assert_eq!(code(within(leases.replace("one", &params, &second)).await), 409);
    assert_eq!(within(leases.get("one")).await.unwrap().spec, second.spec);
    assert_eq!(cluster.lease("hub", "one").unwrap()["spec"]["holderIdentity"], "b");
    assert!(cluster.lease("other", "one").is_none());
    cluster.delete_lease("hub", "one");
    assert_eq!(code(within(leases.replace("one", &params, &second)).await), 404);
    cluster.forbid(&Gvr::new("coordination.k8s.io", "v1", "leases"), true);
    assert_eq!(code(within(leases.get("one")).await), 403);
    assert_eq!(cluster.stats().leases, 9);
}

#[tokio::test]
async fn delayed_write_is_applied_before_its_answer() {
    let cluster = cluster();
    cluster.delay_leases(Duration::from_secs(3600));
    let api = leases(&cluster);
    let writing = tokio::spawn(async move { api.create(&PostParams::default(), &lease("a")).await });
    eventually("the lease is written", || cluster.lease("hub", "one").is_some()).await;
    assert!(!writing.is_finished());
    cluster.delay_leases(Duration::ZERO);
    cluster.heal();
    assert!(within(writing).await.unwrap().is_ok());
}

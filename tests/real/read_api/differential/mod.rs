//! Random requests, answered by kube-apiserver and by the hub's root of that cluster.
//!
//! The answers must be equal, except for the documented differences ([`accepted`]).
//!
//! # How it works
//! 1. The apiserver gets random objects ([`super::objects`]), then the hub starts, then the objects change
//!    ([`changes`]).
//! 2. When the hub has seen the last change, nothing changes any more.
//! 3. A seed determines the requests ([`request`]); each is sent to both at the same time.
//! 4. The answers are parsed ([`answer`]) and compared ([`compare`]). A difference counts if it persists, since ages
//!    pass.
//!
//! `INFORMER_HUB_SEED` replays a run, `READ_API_REQUESTS` sets the number of requests.

mod accepted;
mod answer;
mod changes;
mod compare;
mod compare_tests;
mod documents;
mod request;
mod run;
mod vocabulary;

use informer_hub_types::clock;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::endpoint::Endpoint;
use super::hub::HubProcess;
use super::objects;
use super::resources::RESOURCES;
use crate::bed::RealCluster;
use request::{Generator, Request};

/// Default number of requests.
const REQUESTS: usize = 2_000;

/// Number of requests by which the comparison itself is checked.
const SELF_CHECK: usize = 150;

fn count() -> usize {
    std::env::var("READ_API_REQUESTS").map_or(REQUESTS, |text| text.parse().expect("READ_API_REQUESTS is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_answers_like_the_apiserver() {
    let mut random = StdRng::seed_from_u64(crate::read_api::seed());
    let began = clock::now();
    let cluster = RealCluster::start("differential").await;
    let apiserver = Endpoint::apiserver(&cluster).await;
    objects::create_all(apiserver.client(), &mut random).await;
    println!("objects created after {:?}", began.elapsed());

    let resources: Vec<_> = RESOURCES.iter().map(super::resources::Resource::config_name).collect();
    let hub = HubProcess::start(&[(cluster.name(), cluster.kubeconfig())], &resources).await;
    let root = hub.cluster(&cluster);
    println!("hub ready after {:?}", began.elapsed());
    let known = changes::make(&apiserver, &mut random).await;
    changes::await_all(&root, &known).await;
    println!("changes seen after {:?}", began.elapsed());

    let requests: Vec<Request> = {
        let mut generator = Generator::new(&mut random, &known);
        (0..count()).map(|_| generator.next()).collect()
    };
    let itself = run::compare(&apiserver, &apiserver, &requests[..requests.len().min(SELF_CHECK)]).await;
    assert!(itself.explained.is_empty(), "{itself}");
    itself.verify();
    let report = run::compare(&apiserver, &root, &requests).await;
    println!("compared after {:?}: {report}", began.elapsed());
    report.verify();
    documents::compare(&apiserver, &root).await;
}

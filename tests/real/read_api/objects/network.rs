//! Services, their endpoints, and ingresses.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::{NAMESPACES, Seed, metadata, pick};

/// Number of objects of each kind.
const COUNT: usize = 6;

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for number in 0..COUNT {
        seeds.extend([
            service(random, number),
            endpoints(random, number),
            endpoint_slice(random, number),
            ingress(random, number),
            network_policy(random, number),
            ingress_class(random, number),
        ]);
    }
    seeds
}

fn service(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let metadata = metadata(random, Some(namespace), &format!("web-{number}"));
    let object =
        |spec: Value| Seed::new(json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec }));
    let http = json!({ "name": "http", "port": 80, "targetPort": 8080 });
    let dns = json!({ "name": "dns", "port": 53, "protocol": "UDP" });
    match number {
        0 => object(json!({ "type": "ExternalName", "externalName": "db.example.com" })),
        1 => object(json!({ "clusterIP": "None", "selector": { "app": "web" } })),
        2 => object(json!({ "type": "NodePort", "ports": [http, dns], "selector": { "app": "web", "tier": "a" } })),
        3 => object(json!({ "type": "LoadBalancer", "ports": [http] })),
        4 => {
            object(json!({ "type": "LoadBalancer", "ports": [http], "selector": { "app": "b" } })).with_status(json!({
                "loadBalancer": { "ingress": [
                    { "ip": "203.0.113.7" }, { "hostname": "a-very-long-name-of-a-load-balancer.example.com" },
                ] },
            }))
        }
        _ => object(json!({ "ports": [dns], "externalIPs": ["198.51.100.1", "198.51.100.2"] })),
    }
}

fn endpoints(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let addresses: Vec<_> = (0..number).map(|host| json!({ "ip": format!("10.1.0.{}", host + 1) })).collect();
    let subset = match number {
        0 => json!([]),
        1 => json!([{ "notReadyAddresses": addresses, "ports": [{ "port": 80 }] }]),
        2 => json!([{ "addresses": addresses }]),
        _ => json!([{ "addresses": addresses, "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 443 }] }]),
    };
    let metadata = metadata(random, Some(namespace), &format!("ends-{number}"));
    Seed::new(json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subset }))
}

fn endpoint_slice(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let ends: Vec<_> = (0..number).map(|host| json!({ "addresses": [format!("10.1.0.{}", host + 1)] })).collect();
    let ports: Vec<_> = (0..number).map(|port| json!({ "name": format!("p{port}"), "port": 80 + port })).collect();
    let metadata = metadata(random, Some(namespace), &format!("slice-{number}"));
    Seed::new(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": ends, "ports": ports,
    }))
}

fn ingress(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    let hosts = ["a.example.com", "b.example.com", "c.example.com", "d.example.com"];
    let rules: Vec<_> =
        hosts[..number.min(4)].iter().map(|host| json!({ "host": host, "http": { "paths": [path] } })).collect();
    let mut spec = json!({ "rules": rules, "defaultBackend": backend });
    if random.random_bool(0.5) {
        spec["tls"] = json!([{ "hosts": ["a.example.com"], "secretName": "tls" }]);
    }
    if random.random_bool(0.5) {
        spec["ingressClassName"] = json!("class-0");
    }
    let metadata = metadata(random, Some(namespace), &format!("front-{number}"));
    let seed = Seed::new(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec,
    }));
    if random.random_bool(0.5) {
        return seed;
    }
    seed.with_status(
        json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.9" }, { "hostname": "lb.example.com" }] } }),
    )
}

fn network_policy(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let selectors = [
        json!({}),
        json!({ "matchLabels": { "b": "2", "a": "1" } }),
        json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["y", "x"] }] }),
        json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }], "matchLabels": { "a": "1" } }),
    ];
    let metadata = metadata(random, Some(namespace), &format!("policy-{number}"));
    Seed::new(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata,
        "spec": { "podSelector": selectors[number % selectors.len()], "policyTypes": ["Ingress"] },
    }))
}

fn ingress_class(random: &mut StdRng, number: usize) -> Seed {
    let mut spec = json!({ "controller": "example.com/controller" });
    if number.is_multiple_of(2) {
        spec["parameters"] = json!({ "apiGroup": "example.com", "kind": "Params", "name": "p", "scope": "Cluster" });
    }
    let metadata = metadata(random, None, &format!("class-{number}"));
    Seed::new(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": metadata, "spec": spec,
    }))
}

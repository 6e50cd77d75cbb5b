//! Invented Services, EndpointSlices and Events.

use super::names::{App, Metadata, joined};
use super::pods::Written;
use super::random::Random;

pub(crate) fn service(random: &mut Random, app: &App) -> (String, Written) {
    let annotations = joined(&[
        random.maybe(40, |_| {
            format!(
                r#""meta.helm.sh/release-name":"{}","meta.helm.sh/release-namespace":"{}""#,
                app.name, app.namespace
            )
        }),
        random.maybe(15, |_| r#""prometheus.io/port":"9090","prometheus.io/scrape":"true""#.to_owned()),
        random.maybe(10, |_| r#""service.beta.kubernetes.io/aws-load-balancer-type":"nlb""#.to_owned()),
    ]);
    let (metadata, uid, version) = Metadata {
        name: &app.name,
        generate_name: None,
        namespace: Some(app.namespace),
        has_generation: false,
        labels: &app.labels,
        annotations: &annotations,
        owner: None,
    }
    .write(random);
    let is_balanced = random.chance(12);
    let address = if random.chance(15) { "None".to_owned() } else { random.address() };
    let port = |random: &mut Random, name: &str| {
        let (port, target) = (
            random.pick(&["80", "443", "8080", "9090", "5432", "6379"]),
            random.pick(&["http", "8080", "https", "metrics"]),
        );
        let target = if target.starts_with('8') { target.to_owned() } else { format!(r#""{target}""#) };
        let node = if is_balanced { format!(r#","nodePort":{}"#, 30_000 + random.below(2767)) } else { String::new() };
        format!(r#"{{"name":"{name}","protocol":"TCP","port":{port},"targetPort":{target}{node}}}"#)
    };
    let more = random.maybe(30, |random| format!(",{}", port(random, "metrics")));
    let ports = port(random, "http") + &more;
    let (kind, tail, status) = if is_balanced {
        let host = format!("a{}-{}.elb.eu-west-1.amazonaws.com", random.hex(32), random.below(2_000_000_000));
        (
            "LoadBalancer",
            r#","externalTrafficPolicy":"Cluster","allocateLoadBalancerNodePorts":true"#,
            format!(r#"{{"loadBalancer":{{"ingress":[{{"hostname":"{host}"}}]}}}}"#),
        )
    } else {
        ("ClusterIP", "", r#"{"loadBalancer":{}}"#.to_owned())
    };
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Service",{metadata},"spec":{{"ports":[{ports}],"selector":{{{}}},"clusterIP":"{address}","clusterIPs":["{address}"],"type":"{kind}","sessionAffinity":"None"{tail},"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster"}},"status":{status}}}"#,
        app.labels
    );
    (json, Written { namespace: Some(app.namespace.to_owned()), name: app.name.clone(), uid, version })
}

pub(crate) fn endpoint_slice(random: &mut Random, app: &App) -> (String, Written) {
    let suffix = random.suffix(5);
    let name = format!("{}-{suffix}", app.name);
    let labels = joined(&[
        app.labels.clone(),
        format!(
            r#""endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"{}""#,
            app.name
        ),
    ]);
    let annotations = format!(r#""endpoints.kubernetes.io/last-change-trigger-time":"{}""#, random.time());
    let (metadata, uid, version) = Metadata {
        name: &name,
        generate_name: Some(format!("{}-", app.name)),
        namespace: Some(app.namespace),
        has_generation: true,
        labels: &labels,
        annotations: &annotations,
        owner: Some(("v1", "Service", &app.name)),
    }
    .write(random);
    let hash = random.suffix(9);
    let endpoint = |random: &mut Random| {
        format!(
            r#"{{"addresses":["{}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"targetRef":{{"kind":"Pod","namespace":"{}","name":"{}-{hash}-{}","uid":"{}"}},"nodeName":"{}","zone":"eu-west-1{}"}}"#,
            random.address(),
            app.namespace,
            app.name,
            random.suffix(5),
            random.uid(),
            random.node(),
            random.pick(&["a", "b", "c"]),
        )
    };
    let endpoints: Vec<_> = (0..=random.below(4)).map(|_| endpoint(random)).collect();
    let port = random.pick(&["8080", "80", "443", "9090"]);
    let json = format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",{metadata},"addressType":"IPv4","endpoints":[{}],"ports":[{{"name":"http","protocol":"TCP","port":{port}}}]}}"#,
        endpoints.join(",")
    );
    (json, Written { namespace: Some(app.namespace.to_owned()), name, uid, version })
}

pub(crate) fn event(random: &mut Random, app: &App) -> (String, Written) {
    let pod = format!("{}-{}-{}", app.name, random.suffix(9), random.suffix(5));
    let name = format!("{pod}.{}", random.hex(16));
    let (metadata, uid, version) = Metadata {
        name: &name,
        generate_name: None,
        namespace: Some(app.namespace),
        has_generation: false,
        labels: "",
        annotations: "",
        owner: None,
    }
    .write(random);
    let (node, image, time) = (random.node(), &app.image, random.time());
    let (kind, reason, source, message) = match random.below(9) {
        0 => ("Normal", "Scheduled", "default-scheduler", format!("Successfully assigned {}/{pod} to {node}", app.namespace)),
        1 => ("Normal", "Pulling", "kubelet", format!(r#"Pulling image \"{image}\""#)),
        2 => (
            "Normal",
            "Pulled",
            "kubelet",
            format!(
                r#"Successfully pulled image \"{image}\" in {}ms ({}ms including waiting). Image size: {} bytes."#,
                random.below(9000),
                random.below(9000),
                random.below(900_000_000)
            ),
        ),
        3 => ("Normal", "Created", "kubelet", format!("Created container: {}", app.name)),
        4 => ("Normal", "Started", "kubelet", format!("Started container {}", app.name)),
        5 => ("Normal", "Killing", "kubelet", format!("Stopping container {}", app.name)),
        6 => (
            "Warning",
            "Unhealthy",
            "kubelet",
            format!("Readiness probe failed: Get \\\"http://{}:8080/healthz\\\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)", random.address()),
        ),
        7 => (
            "Warning",
            "BackOff",
            "kubelet",
            format!("Back-off restarting failed container {} in pod {pod}_{}({})", app.name, app.namespace, random.uid()),
        ),
        _ => (
            "Warning",
            "FailedScheduling",
            "default-scheduler",
            "0/12 nodes are available: 3 Insufficient cpu, 9 node(s) had untolerated taint(s). preemption: 0/12 nodes are available: 12 Preemption is not helpful for scheduling.".to_owned(),
        ),
    };
    let host = if source == "kubelet" { format!(r#","host":"{node}""#) } else { String::new() };
    let reporter = if source == "kubelet" { node.as_str() } else { "" };
    let path = if reason == "Scheduled" {
        String::new()
    } else {
        format!(r#","fieldPath":"spec.containers{{{}}}""#, app.name)
    };
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Event",{metadata},"involvedObject":{{"kind":"Pod","namespace":"{}","name":"{pod}","uid":"{}","apiVersion":"v1","resourceVersion":"{version}"{path}}},"reason":"{reason}","message":"{message}","source":{{"component":"{source}"{host}}},"firstTimestamp":"{time}","lastTimestamp":"{time}","count":{},"type":"{kind}","eventTime":null,"reportingComponent":"{source}","reportingInstance":"{reporter}"}}"#,
        app.namespace,
        random.uid(),
        1 + random.below(9),
    );
    (json, Written { namespace: Some(app.namespace.to_owned()), name, uid, version })
}

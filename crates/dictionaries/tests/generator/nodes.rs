//! Invented nodes.

use super::names::{App, Metadata};
use super::pods::Written;
use super::random::Random;

pub(crate) fn node(random: &mut Random, _: &App) -> (String, Written) {
    let (name, zone) = (random.node(), random.pick(&["eu-west-1a", "eu-west-1b", "eu-west-1c"]));
    let (instance, cpu) =
        (random.pick(&["m5.xlarge", "m5.2xlarge", "c6i.4xlarge", "e2-standard-8"]), random.pick(&["4", "8", "16"]));
    let labels = format!(
        r#""beta.kubernetes.io/arch":"amd64","beta.kubernetes.io/instance-type":"{instance}","beta.kubernetes.io/os":"linux","failure-domain.beta.kubernetes.io/region":"eu-west-1","failure-domain.beta.kubernetes.io/zone":"{zone}","kubernetes.io/arch":"amd64","kubernetes.io/hostname":"{name}","kubernetes.io/os":"linux","node-role.kubernetes.io/worker":"","node.kubernetes.io/instance-type":"{instance}","topology.kubernetes.io/region":"eu-west-1","topology.kubernetes.io/zone":"{zone}""#
    );
    let annotations = format!(
        r#""csi.volume.kubernetes.io/nodeid":"{{\"ebs.csi.aws.com\":\"i-{}\"}}","node.alpha.kubernetes.io/ttl":"0","volumes.kubernetes.io/controller-managed-attach-detach":"true""#,
        random.hex(17)
    );
    let (metadata, uid, version) = Metadata {
        name: &name,
        generate_name: None,
        namespace: None,
        has_generation: false,
        labels: &labels,
        annotations: &annotations,
        owner: None,
    }
    .write(random);
    let taints =
        random.maybe(15, |_| r#","taints":[{"key":"dedicated","value":"gpu","effect":"NoSchedule"}]"#.to_owned());
    let (beat, since, cidr) = (random.time(), random.time(), format!("10.244.{}.0/24", random.below(256)));
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        format!(
            r#"{{"type":"{kind}","status":"{status}","lastHeartbeatTime":"{beat}","lastTransitionTime":"{since}","reason":"{reason}","message":"{message}"}}"#
        )
    };
    let conditions = [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .join(",");
    let image = |random: &mut Random| {
        let app = App::new(random);
        let repository = app.image.split(':').next().unwrap_or_default().to_owned();
        format!(
            r#"{{"names":["{repository}@sha256:{}","{}"],"sizeBytes":{}}}"#,
            random.hex(64),
            app.image,
            random.below(900_000_000)
        )
    };
    let images: Vec<_> = (0..20).map(|_| image(random)).collect();
    let memory = 16_000_000 + random.below(48_000_000);
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Node",{metadata},"spec":{{"podCIDR":"{cidr}","podCIDRs":["{cidr}"],"providerID":"aws:///{zone}/i-{}"{taints}}},"status":{{"capacity":{{"cpu":"{cpu}","ephemeral-storage":"104845292Ki","hugepages-1Gi":"0","hugepages-2Mi":"0","memory":"{memory}Ki","pods":"110"}},"allocatable":{{"cpu":"{cpu}","ephemeral-storage":"95551679124","hugepages-1Gi":"0","hugepages-2Mi":"0","memory":"{}Ki","pods":"110"}},"conditions":[{conditions}],"addresses":[{{"type":"InternalIP","address":"{}"}},{{"type":"Hostname","address":"{name}"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":10250}}}},"nodeInfo":{{"machineID":"{}","systemUUID":"{}","bootID":"{}","kernelVersion":"6.1.{}-generic","osImage":"{}","containerRuntimeVersion":"containerd://2.0.{}","kubeletVersion":"v1.{}.{}","kubeProxyVersion":"","operatingSystem":"linux","architecture":"amd64"}},"images":[{}],"runtimeHandlers":[{{"name":"","features":{{"recursiveReadOnlyMounts":true,"userNamespaces":true}}}},{{"name":"runc","features":{{"recursiveReadOnlyMounts":true,"userNamespaces":true}}}}],"features":{{"supplementalGroupsPolicy":true}}}}}}"#,
        random.hex(17),
        memory - 1_000_000,
        random.address(),
        random.hex(32),
        random.uid(),
        random.uid(),
        random.below(100),
        random.pick(&[
            "Ubuntu 24.04.1 LTS",
            "Amazon Linux 2023",
            "Container-Optimized OS from Google",
            "Bottlerocket OS 1.30"
        ]),
        random.below(9),
        32 + random.below(5),
        random.below(9),
        images.join(","),
    );
    (json, Written { namespace: None, name, uid, version })
}

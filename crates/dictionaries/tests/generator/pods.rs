//! Invented pods, and the pod templates of workloads.

use super::names::{App, Metadata, joined};
use super::random::Random;

/// Returns a pod whose members are in the order in which an apiserver writes them.
pub(crate) fn pod(random: &mut Random, app: &App) -> (String, Written) {
    let kind = random.below(10);
    let (hash, suffix) = (random.suffix(9), random.suffix(5));
    let (name, generate_name, own, owner) = match kind {
        0..=5 => {
            let set = format!("{}-{hash}", app.name);
            let own = format!(r#""pod-template-hash":"{hash}""#);
            (format!("{set}-{suffix}"), Some(format!("{set}-")), own, ("apps/v1", "ReplicaSet", set))
        }
        6 => {
            let name = format!("{}-{}", app.name, random.below(5));
            let own = format!(
                r#""apps.kubernetes.io/pod-index":"{}","controller-revision-hash":"{}-{hash}","statefulset.kubernetes.io/pod-name":"{name}""#,
                random.below(5),
                app.name
            );
            (name, Some(format!("{}-", app.name)), own, ("apps/v1", "StatefulSet", app.name.clone()))
        }
        7 | 8 => {
            let own =
                format!(r#""controller-revision-hash":"{hash}","pod-template-generation":"{}""#, 1 + random.below(9));
            let name = format!("{}-{suffix}", app.name);
            (name, Some(format!("{}-", app.name)), own, ("apps/v1", "DaemonSet", app.name.clone()))
        }
        _ => {
            let (job, uid) = (format!("{}-{}", app.name, 29_000_000 + random.below(900_000)), random.uid());
            let own = format!(
                r#""batch.kubernetes.io/controller-uid":"{uid}","batch.kubernetes.io/job-name":"{job}","controller-uid":"{uid}","job-name":"{job}""#
            );
            let name = format!("{job}-{suffix}");
            (name, Some(format!("{job}-")), own, ("batch/v1", "Job", job))
        }
    };
    let annotations = pod_annotations(random);
    let labels = joined(&[app.labels.clone(), own]);
    let (metadata, uid, version) = Metadata {
        name: &name,
        generate_name,
        namespace: Some(app.namespace),
        has_generation: random.chance(60),
        labels: &labels,
        annotations: &annotations,
        owner: Some((owner.0, owner.1, &owner.2)),
    }
    .write(random);
    let is_job = kind == 9;
    let (token, node) = (random.suffix(5), random.node());
    let containers: Vec<_> = (0..=(random.below(10) / 7)).map(|at| container(random, app, at, &token)).collect();
    let init = random.maybe(20, |random| format!(r#""initContainers":[{}],"#, container(random, app, 9, &token)));
    let spec = format!(
        r#"{{"volumes":[{}],{init}"containers":[{}],{}"nodeName":"{node}",{}}}"#,
        volumes(random, app, &token),
        containers.join(","),
        spec_middle(random, app, is_job),
        spec_end(random, kind == 7 || kind == 8),
    );
    let status = status(random, app, containers.len(), is_job);
    let json = format!(r#"{{"apiVersion":"v1","kind":"Pod",{metadata},"spec":{spec},"status":{status}}}"#);
    (json, Written { namespace: Some(app.namespace.to_owned()), name, uid, version })
}

/// Identity of a generated object.
pub(crate) struct Written {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
}

pub(crate) fn pod_annotations(random: &mut Random) -> String {
    joined(&[
        random.maybe(15, |random| {
            let address = random.address();
            format!(r#""cni.projectcalico.org/containerID":"{}","cni.projectcalico.org/podIP":"{address}/32","cni.projectcalico.org/podIPs":"{address}/32""#, random.hex(64))
        }),
        random.maybe(25, |random| format!(r#""checksum/config":"{}""#, random.hex(64))),
        random.maybe(10, |_| r#""cluster-autoscaler.kubernetes.io/safe-to-evict":"true""#.to_owned()),
        random.maybe(15, |random| format!(r#""kubectl.kubernetes.io/restartedAt":"{}""#, random.time())),
        random.maybe(30, |random| {
            let port = random.pick(&["8080", "9090", "9100", "9153", "10254"]);
            format!(r#""prometheus.io/path":"/metrics","prometheus.io/port":"{port}","prometheus.io/scrape":"true""#)
        }),
    ])
}

pub(crate) fn volumes(random: &mut Random, app: &App, token: &str) -> String {
    let name = &app.name;
    joined(&[
        random
            .maybe(40, |_| format!(r#"{{"name":"config","configMap":{{"name":"{name}-config","defaultMode":420}}}}"#)),
        random.maybe(25, |_| format!(r#"{{"name":"tls","secret":{{"secretName":"{name}-tls","defaultMode":420}}}}"#)),
        random.maybe(30, |_| r#"{"name":"tmp","emptyDir":{}}"#.to_owned()),
        random.maybe(15, |_| format!(r#"{{"name":"data","persistentVolumeClaim":{{"claimName":"data-{name}-0"}}}}"#)),
        random.maybe(8, |_| r#"{"name":"host","hostPath":{"path":"/var/lib","type":"DirectoryOrCreate"}}"#.to_owned()),
        format!(
            r#"{{"name":"kube-api-access-{token}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace","fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],"defaultMode":420}}}}"#
        ),
    ])
}

const ENV: [&str; 14] = [
    r#"{"name":"LOG_LEVEL","value":"info"}"#,
    r#"{"name":"LOG_FORMAT","value":"json"}"#,
    r#"{"name":"PORT","value":"8080"}"#,
    r#"{"name":"ENVIRONMENT","value":"production"}"#,
    r#"{"name":"TZ","value":"UTC"}"#,
    r#"{"name":"JAVA_OPTS","value":"-Xms512m -Xmx1024m -XX:+UseG1GC"}"#,
    r#"{"name":"GOMAXPROCS","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}}"#,
    r#"{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}"#,
    r#"{"name":"POD_NAMESPACE","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}"#,
    r#"{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}"#,
    r#"{"name":"NODE_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"spec.nodeName"}}}"#,
    r#"{"name":"HOST_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.hostIP"}}}"#,
    r#"{"name":"OTEL_EXPORTER_OTLP_ENDPOINT","value":"http://otel-collector.monitoring.svc.cluster.local:4317"}"#,
    r#"{"name":"OTEL_RESOURCE_ATTRIBUTES","value":"service.namespace=production"}"#,
];

fn env(random: &mut Random, app: &App) -> String {
    let mut env: Vec<String> = ENV.iter().filter(|_| random.chance(25)).map(|env| (*env).to_owned()).collect();
    for key in ["DATABASE_URL", "DB_PASSWORD", "API_KEY", "REDIS_PASSWORD"] {
        if random.chance(15) {
            let (name, word) = (&app.name, key.to_lowercase().replace('_', "-"));
            env.push(format!(
                r#"{{"name":"{key}","valueFrom":{{"secretKeyRef":{{"name":"{name}-credentials","key":"{word}"}}}}}}"#
            ));
        }
    }
    if env.is_empty() { String::new() } else { format!(r#""env":[{}],"#, env.join(",")) }
}

fn probe(random: &mut Random, key: &str, port: &str) -> String {
    let path = random.pick(&["/healthz", "/health", "/readyz", "/livez", "/ready", "/actuator/health/readiness"]);
    let how = match random.below(4) {
        0 => format!(r#""tcpSocket":{{"port":{port}}}"#),
        1 => r#""exec":{"command":["/bin/sh","-c","exit 0"]}"#.to_owned(),
        _ => format!(r#""httpGet":{{"path":"{path}","port":{port},"scheme":"HTTP"}}"#),
    };
    let delay =
        random.maybe(60, |random| format!(r#""initialDelaySeconds":{},"#, random.pick(&["5", "10", "15", "30"])));
    let (timeout, period) = (random.pick(&["1", "3", "5"]), random.pick(&["10", "5", "15", "20", "30"]));
    format!(
        r#""{key}":{{{how},{delay}"timeoutSeconds":{timeout},"periodSeconds":{period},"successThreshold":1,"failureThreshold":{}}},"#,
        random.pick(&["3", "5", "10"])
    )
}

pub(crate) fn container(random: &mut Random, app: &App, at: u64, token: &str) -> String {
    let port = random.pick(&["8080", "80", "443", "9090", "3000", "8443", "5432", "6379"]);
    let name =
        if at == 0 { &app.name } else { random.pick(&["istio-proxy", "sidecar", "init", "exporter", "migrate"]) };
    let ports = random.maybe(80, |random| {
        let more = random.maybe(30, |_| r#",{"name":"metrics","containerPort":9102,"protocol":"TCP"}"#.to_owned());
        let named = random.pick(&["http", "https", "grpc", "metrics", "web"]);
        format!(r#""ports":[{{"name":"{named}","containerPort":{port},"protocol":"TCP"}}{more}],"#)
    });
    let args = random.maybe(35, |random| {
        let level = random.pick(&["info", "debug", "warn"]);
        format!(r#""args":["--config=/etc/config/config.yaml","--log-level={level}","--listen=:{port}"],"#)
    });
    let resources = match random.below(6) {
        0 => "{}".to_owned(),
        1 => format!(r#"{{"requests":{{"cpu":"{}","memory":"{}"}}}}"#, cpu(random), memory(random)),
        _ => format!(
            r#"{{"limits":{{"cpu":"{}","memory":"{}"}},"requests":{{"cpu":"{}","memory":"{}"}}}}"#,
            cpu(random),
            memory(random),
            cpu(random),
            memory(random)
        ),
    };
    let mounts = joined(&[
        random.maybe(40, |_| r#"{"name":"config","readOnly":true,"mountPath":"/etc/config"}"#.to_owned()),
        random.maybe(30, |_| r#"{"name":"tmp","mountPath":"/tmp"}"#.to_owned()),
        random.maybe(15, |_| r#"{"name":"data","mountPath":"/data"}"#.to_owned()),
        random.maybe(20, |_| r#"{"name":"tls","readOnly":true,"mountPath":"/etc/tls"}"#.to_owned()),
        format!(
            r#"{{"name":"kube-api-access-{token}","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}"#
        ),
    ]);
    let probes = random.maybe(70, |random| probe(random, "livenessProbe", port))
        + &random.maybe(75, |random| probe(random, "readinessProbe", port))
        + &random.maybe(10, |random| probe(random, "startupProbe", port));
    let context = random.maybe(55, |random| {
        let user = random.maybe(40, |random| format!(r#""runAsUser":{},"#, random.pick(&["1000", "65532", "65534", "101"])));
        format!(
            r#","securityContext":{{"capabilities":{{"drop":["ALL"]}},{user}"runAsNonRoot":true,"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false,"seccompProfile":{{"type":"RuntimeDefault"}}}}"#
        )
    });
    let pull = random.pick(&["IfNotPresent", "IfNotPresent", "Always"]);
    format!(
        r#"{{"name":"{name}","image":"{}",{args}{ports}{}"resources":{resources},"volumeMounts":[{mounts}],{probes}"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"{pull}"{context}}}"#,
        app.image,
        env(random, app),
    )
}

fn cpu(random: &mut Random) -> &'static str {
    random.pick(&["10m", "50m", "100m", "200m", "250m", "500m", "1", "2"])
}

fn memory(random: &mut Random) -> &'static str {
    random.pick(&["32Mi", "64Mi", "128Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"])
}

pub(crate) fn spec_middle(random: &mut Random, app: &App, is_job: bool) -> String {
    let restart = if is_job { "Never" } else { "Always" };
    let grace = random.pick(&["30", "30", "60", "10", "0"]);
    let dns = random.pick(&["ClusterFirst", "ClusterFirst", "ClusterFirstWithHostNet", "Default"]);
    let selector = random.maybe(20, |random| {
        random
            .pick(&[
                r#""nodeSelector":{"kubernetes.io/os":"linux"},"#,
                r#""nodeSelector":{"node-role.kubernetes.io/worker":""},"#,
                r#""nodeSelector":{"kubernetes.io/arch":"amd64","kubernetes.io/os":"linux"},"#,
            ])
            .to_owned()
    });
    let account = if random.chance(40) { "default" } else { &app.name };
    format!(
        r#""restartPolicy":"{restart}","terminationGracePeriodSeconds":{grace},"dnsPolicy":"{dns}",{selector}"serviceAccountName":"{account}","serviceAccount":"{account}","#
    )
}

pub(crate) fn spec_end(random: &mut Random, is_daemon: bool) -> String {
    let context = random.pick(&[
        "{}",
        r#"{"fsGroup":1000}"#,
        r#"{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}"#,
    ]);
    let secrets = random.maybe(15, |_| r#""imagePullSecrets":[{"name":"registry-credentials"}],"#.to_owned());
    let affinity = random.maybe(20, |_| {
        r#""affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"podAffinityTerm":{"labelSelector":{"matchLabels":{"app.kubernetes.io/name":"web"}},"topologyKey":"kubernetes.io/hostname"}}]}},"#.to_owned()
    });
    let daemon = r#",{"key":"node.kubernetes.io/disk-pressure","operator":"Exists","effect":"NoSchedule"},{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"},{"key":"node.kubernetes.io/pid-pressure","operator":"Exists","effect":"NoSchedule"},{"key":"node.kubernetes.io/unschedulable","operator":"Exists","effect":"NoSchedule"}"#;
    let (seconds, more) = if is_daemon { ("", daemon) } else { (r#","tolerationSeconds":300"#, "") };
    let class = random.maybe(15, |random| {
        format!(
            r#""priorityClassName":"{}","#,
            random.pick(&["system-cluster-critical", "system-node-critical", "high"])
        )
    });
    let priority = random.pick(&["0", "0", "0", "2000000000", "2000001000"]);
    let spread = random.maybe(15, |_| {
        r#","topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app":"web"}}}]"#.to_owned()
    });
    format!(
        r#""securityContext":{context},{secrets}{affinity}"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"{seconds}}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute"{seconds}}}{more}],{class}"priority":{priority},"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"{spread}"#
    )
}

fn status(random: &mut Random, app: &App, containers: usize, is_job: bool) -> String {
    let (time, host, address) = (random.time(), random.address(), random.address());
    let is_ready = !is_job && random.chance(92);
    let condition = |random: &mut Random, kind: &str, holds: bool| {
        let (word, observed) =
            (if holds { "True" } else { "False" }, random.maybe(50, |_| r#""observedGeneration":1,"#.to_owned()));
        let why = match (holds, is_job) {
            (true, _) => "",
            (false, true) => r#","reason":"PodCompleted""#,
            (false, false) => r#","reason":"ContainersNotReady","message":"containers with unready status: [web]""#,
        };
        format!(
            r#"{{"type":"{kind}",{observed}"status":"{word}","lastProbeTime":null,"lastTransitionTime":"{time}"{why}}}"#
        )
    };
    let conditions = [
        condition(random, "PodReadyToStartContainers", !is_job),
        condition(random, "Initialized", true),
        condition(random, "Ready", is_ready),
        condition(random, "ContainersReady", is_ready),
        condition(random, "PodScheduled", true),
    ]
    .join(",");
    let statuses: Vec<_> = (0..containers).map(|_| container_status(random, app, &time, (is_ready, is_job))).collect();
    let generation = random.maybe(50, |_| r#""observedGeneration":1,"#.to_owned());
    let phase = if is_job { "Succeeded" } else { "Running" };
    let class = random.pick(&["Burstable", "Burstable", "BestEffort", "Guaranteed"]);
    format!(
        r#"{{{generation}"phase":"{phase}","conditions":[{conditions}],"hostIP":"{host}","hostIPs":[{{"ip":"{host}"}}],"podIP":"{address}","podIPs":[{{"ip":"{address}"}}],"startTime":"{time}","containerStatuses":[{}],"qosClass":"{class}"}}"#,
        statuses.join(",")
    )
}

fn container_status(random: &mut Random, app: &App, time: &str, (is_ready, is_job): (bool, bool)) -> String {
    let (id, image) = (random.hex(64), random.hex(64));
    let ended = |random: &mut Random, code: &str, reason: &str| {
        format!(
            r#"{{"terminated":{{"exitCode":{code},"reason":"{reason}","startedAt":"{time}","finishedAt":"{time}","containerID":"containerd://{}"}}}}"#,
            random.hex(64)
        )
    };
    let state = match (is_ready, is_job) {
        (_, true) => ended(random, "0", "Completed"),
        (true, _) => format!(r#"{{"running":{{"startedAt":"{time}"}}}}"#),
        (false, _) => format!(
            r#"{{"waiting":{{"reason":"CrashLoopBackOff","message":"back-off 5m0s restarting failed container={} pod={}_{}({})"}}}}"#,
            app.name,
            app.name,
            app.namespace,
            random.uid()
        ),
    };
    let (restarts, last) = match random.below(8) {
        0 => (1 + random.below(30), ended(random, "137", "OOMKilled")),
        1 => (1 + random.below(9), ended(random, "1", "Error")),
        _ => (0, "{}".to_owned()),
    };
    let repository = app.image.split(':').next().unwrap_or_default();
    format!(
        r#"{{"name":"{}","state":{state},"lastState":{last},"ready":{is_ready},"restartCount":{restarts},"image":"{}","imageID":"{repository}@sha256:{image}","containerID":"containerd://{id}","started":{},"volumeMounts":[{{"name":"kube-api-access-{}","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true,"recursiveReadOnly":"Disabled"}}]}}"#,
        app.name,
        app.image,
        !is_job,
        random.suffix(5)
    )
}

//! The table of ways out.

use super::hub::Positions;

/// Value in `data` of a Secret, before base64.
const DATA: &str = "mark-data";
/// Value in `stringData` of a Secret.
const STRING: &str = "mark-string";
/// Value in kubectl's copy of a Secret.
const APPLIED: &str = "mark-applied";
/// Value at a path that the sinks redact.
const REDACTED: &str = "mark-redacted";

/// All markers. The last two are at a path that `drop` removes and at one that `keep` does not list, so they must not
/// appear anywhere.
pub(super) const MARKERS: [&str; 6] = [DATA, STRING, APPLIED, REDACTED, "mark-dropped", "mark-unkept"];

const SECRET: &[&str] = &[DATA, STRING, APPLIED];

/// Markers of the Secret and of the pod that owns it, in one answer.
const SECRET_AND_OWNER: &[&str] = &[DATA, STRING, APPLIED, REDACTED];

/// Operations that show no objects.
pub(super) const OPERATIONS_WITHOUT_OBJECTS: [&str; 3] =
    ["POST /v1/reload", "POST /v1/sinks/{sink}/dead-letters/replay", "POST /v1/sinks/{sink}/dead-letters/purge"];

/// Commands that ask no running hub about objects.
pub(super) const COMMANDS_WITHOUT_OBJECTS: [&str; 12] = [
    "run",
    "agent",
    "fleet",
    "check",
    "rbac",
    "import-kubeconfig",
    "config",
    "completions",
    "man",
    "demo",
    "state",
    "help",
];

/// Sinks that write the same serialized events as the file.
pub(super) const SINKS_AS_FILE: [&str; 2] = ["nats", "stdout"];

/// How a way is taken.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Get {
        path: String,
        accept: &'static str,
        last_event: Option<String>,
    },
    Post {
        path: &'static str,
        accept: &'static str,
        body: String,
    },
    /// A command that ends.
    Command(Vec<&'static str>),
    /// A command that is ended after a line that contains this text.
    Until(Vec<&'static str>, &'static str),
    /// Every dead letter of the sink that is refused.
    Letters,
}

/// A way out, and the markers on it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) way: String,
    pub(super) ask: Ask,
    /// Markers for every reader.
    pub(super) public: &'static [&'static str],
    /// Further markers for readers with the right to Secrets.
    pub(super) private: &'static [&'static str],
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PROTOBUF_METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Roots of the Kubernetes API.
pub(super) const ROOTS: [&str; 4] = ["/clusters/c", "/clusters/*", "/clusters/tier=prod", "/unique/*"];

/// A form at the Kubernetes roots: name, `Accept`, options, whether watches have it, and the markers of a pod and of a
/// Secret in it. A table has metadata by default, and thereby annotations.
type Form = (&'static str, &'static str, &'static str, bool, &'static [&'static str], &'static [&'static str]);

const FORMS: [Form; 8] = [
    ("json", "application/json", "", true, &[REDACTED], SECRET),
    ("yaml", "application/yaml", "", false, &[REDACTED], SECRET),
    ("table", TABLE, "", true, &[REDACTED], &[APPLIED]),
    ("table of objects", TABLE, "&includeObject=Object", true, &[REDACTED], SECRET),
    ("table of cells", TABLE, "&includeObject=None", true, &[], &[]),
    ("metadata", METADATA_LIST, "", true, &[REDACTED], &[APPLIED]),
    ("protobuf", "application/vnd.kubernetes.protobuf", "", true, &[REDACTED], SECRET),
    ("protobuf of metadata", PROTOBUF_METADATA_LIST, "", true, &[REDACTED], &[APPLIED]),
];

/// Group path and name of the object, by resource.
pub(super) const OBJECTS: [(&str, &str, &str); 3] =
    [("secrets", "api/v1", "vault"), ("pods", "api/v1", "web"), ("widgets", "apis/example.com/v1", "w")];

pub(super) fn rows(positions: &Positions) -> Vec<Row> {
    let mut rows = Vec::new();
    kubernetes(positions, &mut rows);
    queries(&mut rows);
    events(positions, &mut rows);
    operators(&mut rows);
    commands(&mut rows);
    rows
}

fn get(way: impl Into<String>, path: impl Into<String>, accept: &'static str) -> Row {
    let ask = Ask::Get { path: path.into(), accept, last_event: None };
    Row { way: way.into(), ask, public: &[], private: &[] }
}

fn kubernetes(positions: &Positions, rows: &mut Vec<Row>) {
    for root in ROOTS {
        for (resource, group, name) in OBJECTS {
            let list = format!("{root}/{group}/namespaces/shop/{resource}");
            let name = if root.starts_with("/unique") { format!("c:{name}") } else { name.to_owned() };
            let from = &positions.versions[&(root.to_owned(), resource)];
            for (form, accept, options, is_watched, of_pod, of_secret) in FORMS {
                let one = match accept {
                    METADATA_LIST => METADATA,
                    PROTOBUF_METADATA_LIST => PROTOBUF_METADATA,
                    _ => accept,
                };
                let mut ways = vec![
                    ("list", format!("{list}?x{options}"), accept),
                    ("get", format!("{list}/{name}?x{options}"), one),
                ];
                if is_watched {
                    let watch = format!("{list}?watch=1&timeoutSeconds=1&resourceVersion={from}{options}");
                    ways.push(("watch", watch, one));
                }
                for (verb, path, accept) in ways {
                    let row = get(
                        format!("{verb} {root} {resource} {form}"),
                        path.replace("?x&", "?").replace("?x", ""),
                        accept,
                    );
                    rows.push(match resource {
                        "secrets" => Row { private: of_secret, ..row },
                        "pods" => Row { public: of_pod, ..row },
                        _ => row,
                    });
                }
            }
        }
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"))
}

const VALUES: &str = "select data, stringData, metadata.annotations";

fn queries(rows: &mut Vec<Row>) {
    let forms = ["application/json", "application/x-ndjson", "text/csv", "text/plain"];
    for form in forms {
        let has_objects = matches!(form, "application/json" | "application/x-ndjson");
        let objects = if has_objects { SECRET } else { &[] };
        for (query, private) in [
            ("", objects),
            (VALUES, SECRET),
            ("distinct data.k", &[DATA]),
            ("count by stringData.s", &[STRING]),
            ("order by data.k select data.k", &[DATA]),
            ("data.k prefix bWFy count", &[]),
        ] {
            let path = format!("/v1/query?resource=secrets&q={}", encoded(query));
            rows.push(Row { private, ..get(format!("GET /v1/query {form} {query:?}"), path, form) });
            let body = serde_json::json!({ "resource": "secrets", "q": query }).to_string();
            let ask = Ask::Post { path: "/v1/query", accept: form, body };
            rows.push(Row { way: format!("POST /v1/query {form} {query:?}"), ask, public: &[], private });
        }
        let explain = format!("/v1/query?resource=secrets&explain=true&q={}", encoded("data.k contains bWFy"));
        rows.push(get(format!("GET /v1/query {form} explain"), explain, form));
        let pods = "/v1/query?resource=pods&q=select%20spec.hostname,%20spec.subdomain";
        rows.push(Row { public: &[REDACTED], ..get(format!("GET /v1/query {form} of pods"), pods, form) });
        let widgets = "/v1/query?resource=widgets&q=select%20spec.shown,%20spec.gone";
        rows.push(get(format!("GET /v1/query {form} of widgets"), widgets, form));
    }
}

/// Adds the rows of `/v1/events`, where values of Secrets are redacted even for readers with the right to them.
fn events(positions: &Positions, rows: &mut Vec<Row>) {
    for form in ["text/event-stream", "application/x-ndjson"] {
        for (resource, public) in [("secrets", &[][..]), ("pods", &[REDACTED]), ("widgets", &[])] {
            let path = format!("/v1/events?resource={resource}&changed=true&timeout=1ms");
            let replay = format!("{path}&initial=replay");
            rows.push(Row { public, ..get(format!("GET /v1/events {form} replay of {resource}"), replay, form) });
            let resumed = Ask::Get { path, accept: form, last_event: Some(positions.events[resource].clone()) };
            rows.push(Row { way: format!("GET /v1/events {form} of {resource}"), ask: resumed, public, private: &[] });
        }
        let all = "/v1/events?resource=*&initial=replay&timeout=1ms";
        rows.push(Row { public: &[REDACTED], ..get(format!("GET /v1/events {form} of all"), all, form) });
        let filter = format!(
            "/v1/events?resource=secrets&initial=replay&timeout=1ms&filter={}",
            encoded("object.data.k.startsWith('bWFy') || object.data.none.none == 1")
        );
        rows.push(get(format!("GET /v1/events {form} by a filter"), filter, form));
    }
}

fn operators(rows: &mut Vec<Row>) {
    let json = "application/json";
    let object = |name: &str| format!("/v1/objects/c/{name}");
    let way = "GET /v1/objects/{cluster}/{resource}/{namespace}/{name} application/json";
    rows.push(Row {
        private: SECRET_AND_OWNER,
        ..get(format!("{way} of a Secret"), object("secrets/shop/vault"), json)
    });
    rows.push(Row {
        private: SECRET_AND_OWNER,
        ..get(format!("{way} of its dependent"), object("pods/shop/client"), json)
    });
    rows.push(Row { public: &[REDACTED], ..get(format!("{way} of its owner"), object("pods/shop/web"), json) });
    rows.push(get(format!("{way} of a widget"), object("widgets/shop/w"), json));
    let way = "GET /v1/objects/{cluster}/{resource}/{name} application/json";
    rows.push(get(way, object("nodes/node-0"), json));
    for path in ["/v1/status", "/v1/openapi.json"] {
        rows.push(get(format!("GET {path} {json}"), path, json));
    }
    for path in ["/readyz", "/livez", "/metrics"] {
        rows.push(get(format!("GET {path}"), path, "*/*"));
    }
    rows.push(get("GET /v1/sinks/{sink}/dead-letters application/json", "/v1/sinks/refused/dead-letters", json));
    let way = "GET /v1/sinks/{sink}/dead-letters/{number} application/json".to_owned();
    rows.push(Row { way, ask: Ask::Letters, public: &[], private: &[] });
}

fn commands(rows: &mut Vec<Row>) {
    let mut add = |words: &[&'static str], public, private| {
        let way = format!("informer-hub {}", words.join(" "));
        rows.push(Row { way, ask: Ask::Command(words.to_vec()), public, private });
    };
    for (output, of_pod, of_secret) in [
        ("table", &[][..], &[][..]),
        ("wide", &[], &[]),
        ("name", &[], &[]),
        ("csv", &[], &[]),
        ("json", &[REDACTED], SECRET),
        ("yaml", &[REDACTED], SECRET),
        ("jsonpath={.items[*]}", &[REDACTED], SECRET),
    ] {
        add(&["get", "secrets", "-n", "shop", "-o", output], &[], of_secret);
        add(&["get", "pods", "-n", "shop", "-o", output], of_pod, &[]);
        add(&["get", "widgets", "-n", "shop", "-o", output], &[], &[]);
    }
    add(&["get", "secret/vault", "-n", "shop", "-o", "json"], &[], SECRET);
    for output in ["table", "csv", "json"] {
        add(&["query", "-r", "secrets", VALUES, "-o", output], &[], SECRET);
    }
    add(&["query", "-r", "secrets", "data.k contains bWFy", "--explain"], &[], &[]);
    for output in ["text", "json"] {
        let (public, private): (&[_], &[_]) =
            if output == "json" { (&[REDACTED], SECRET_AND_OWNER) } else { (&[], &[]) };
        add(&["tree", "pod/client", "-n", "shop", "-o", output], &[], private);
        add(&["tree", "pod/web", "-n", "shop", "-o", output], public, &[]);
    }
    for command in ["status", "clusters", "resources", "sinks", "kubeconfig"] {
        add(&[command], &[], &[]);
    }
    add(&["status", "-o", "json"], &[], &[]);
    add(&["dead-letters", "list", "refused", "-o", "json"], &[], &[]);
    add(&["complete", "--", "get", "secrets", ""], &[], &[]);
    let mut until = |words: &[&'static str], end, public| {
        let way = format!("informer-hub {}", words.join(" "));
        rows.push(Row { way, ask: Ask::Until(words.to_vec(), end), public, private: &[] });
    };
    until(&["watch", "secrets", "--initial", "-o", "json"], "stream.synced", &[]);
    until(&["watch", "pods", "--initial", "-o", "json"], "stream.synced", &[REDACTED]);
    until(&["watch", "secrets", "-n", "shop", "--initial"], "vault", &[]);
    until(&["get", "secrets", "-n", "shop", "-w"], "vault", &[]);
}

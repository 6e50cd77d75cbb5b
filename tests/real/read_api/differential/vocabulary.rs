//! Values of parameters and headers that the generated requests choose from.

/// Label selectors, the last ones malformed.
pub(super) const LABELS: &[&str] = &[
    "app=web",
    "app==api",
    "app!=web",
    "app",
    "!tier",
    "tier",
    "tier=",
    "app in (web, cart)",
    "app notin (web),tier",
    "app in (web,),tier=back",
    "example.com/version",
    "example.com/version>1",
    "example.com/version<10",
    "example.com/version in (1,2)",
    "app=web,app=api",
    "kubernetes.io/metadata.name=shop",
    " app = web , tier != back ",
    "",
    ",",
    "app=web,",
    "app=a=b",
    "app in web",
    "app in (web",
    "app in ()",
    "in (web)",
    "=web",
    "app web",
    "-app=web",
    "app=-web",
    "app=we b",
    "app>a",
    "app>1,",
    "!",
    "!app=web",
    "a/b/c=d",
    "app===web",
    "a-name-with-more-than-sixty-three-characters-which-is-too-long-for-a-label=x",
    "app=a-value-with-more-than-sixty-three-characters-which-is-too-long-for-a-label",
];

/// Field selectors that are malformed or name unknown fields.
pub(super) const BAD_FIELDS: &[&str] = &[
    "spec.unknown=1",
    "metadata.labels=a",
    "metadata.name",
    "=web-1",
    "metadata.name=a=b",
    "metadata.name===a",
    "metadata.name in (a)",
    "!metadata.name",
    ",",
    "",
    "metadata.name=a,",
    "metadata.name=a\\,b",
    "metadata.name=a\\b",
    "metadata.uid=1",
];

/// Resource version that no server reaches.
pub(super) const FUTURE: &str = "900000000000000";

/// Resource versions that no object has.
pub(super) const VERSIONS: &[&str] =
    &["", "0", "0", "0", "1", FUTURE, "abc", "-1", "1.5", "00", "18446744073709551616"];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// `Accept` headers for tables; the first is kubectl's.
pub(super) const TABLES: &[&str] = &[
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    TABLE,
    TABLE,
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.2,application/yaml;q=0.1",
];

/// `Accept` headers for other forms of objects. The first two are for lists.
pub(super) const FORMS: &[&str] = &[
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "application/yaml;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
];

/// `Accept` headers for encodings, some of them not acceptable.
pub(super) const ACCEPTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "*/*",
    "application/*",
    "",
    "application/yaml;q=0.5,application/json;q=0.9",
    "application/json;q=0.1,application/yaml",
    "application/json;q=0,application/yaml",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "application/json; charset=utf-8",
    "application/json;stream=watch",
    "application/json;pretty=1",
    "application/json;pretty=0",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;q=0.1,application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch,application/json;q=0.5",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/cbor",
    "text/html",
    "text/plain, application/json",
    "nonsense",
    ";;;",
    "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
    "application/json;as=Nonsense;g=meta.k8s.io;v=v1,application/yaml",
    "application/json;as=Table",
    "application/json;v=v1;g=meta.k8s.io",
    "application/json;profile=nonsense",
];

/// Paths that belong to no resource.
pub(super) const LOST_PATHS: &[&str] = &[
    "/api/v1/nothings",
    "/api/v1/namespaces/default/nothings",
    "/api/v1/namespaces/default/nothings/web-1",
    "/api/v2/pods",
    "/apis/apps/v2/deployments",
    "/apis/none.example.com/v1/things",
    "/apis/none.example.com",
    "/apis/apps/v1beta1",
    "/api/v3",
    "/api/v1/namespaces/default/nodes",
    "/api/v1/namespaces/default/pods/web-1/nothing",
    "/nothing",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/no-such-namespace",
];

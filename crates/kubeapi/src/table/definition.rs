//! Table columns of CustomResourceDefinitions.

use serde::Deserialize;

use super::Row;
use super::fields::{Condition, List, Meta, Text, is_true, join};
use super::kind::{Kind, NAME, boolean, cells, date, decode, text, wide};

pub(super) const CUSTOM_RESOURCE_DEFINITIONS: Kind = Kind {
    columns: &[
        NAME,
        text("Scope", "Whether objects are in namespaces"),
        text("Versions", "Versions that are served"),
        date("Created At", "Time when the object was created"),
        wide("Group", "API group of the objects"),
        wide("Kind", "Kind of the objects"),
        wide("ShortNames", "Short names of the resource"),
        boolean("Established", "Whether the resource is served").only_wide(),
    ],
    print: definition,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Definition<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: Spec<'j>,
    #[serde(borrow)]
    status: Status<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec<'j> {
    #[serde(borrow)]
    group: Text<'j>,
    #[serde(borrow)]
    scope: Text<'j>,
    #[serde(borrow)]
    names: Names<'j>,
    #[serde(borrow)]
    versions: List<Version<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Names<'j> {
    #[serde(borrow)]
    kind: Text<'j>,
    #[serde(borrow)]
    short_names: List<Text<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Version<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    served: bool,
    storage: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status<'j> {
    #[serde(borrow)]
    conditions: List<Condition<'j>>,
}

fn definition(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let Definition { metadata, spec, status } = decode(json)?;
    let served = spec.versions.iter().filter(|version| version.served);
    let mut versions: Vec<_> =
        served.map(|version| format!("{}{}", version.name, if version.storage { "(storage)" } else { "" })).collect();
    versions.sort_unstable();
    cells![
        &metadata.name,
        &spec.scope,
        join(versions, ","),
        metadata.creation_timestamp.utc(),
        &spec.group,
        &spec.names.kind,
        join(spec.names.short_names.iter().map(|name| &**name), ","),
        is_true(&status.conditions, "Established"),
    ]
}

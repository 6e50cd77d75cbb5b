//! Parser of request paths: clusters, and the resource or document below them.

use informer_hub_types::{ClusterName, LabelSelector};
use smol_str::SmolStr;

use crate::Status;
use crate::percent::decode_segment;
use crate::quote::Quoted;

/// Maximum length of a request path below `/clusters` or `/unique`, in bytes.
const MAX_PATH: usize = 16 << 10;
/// Longest name of a namespace or an object, in bytes.
const MAX_NAME: usize = 253;
/// Longest name of an object below `/unique`, in bytes: cluster, colon and name.
const MAX_UNIQUE_NAME: usize = 63 + 1 + MAX_NAME;
/// Longest group, version, resource or subresource, in bytes.
const MAX_WORD: usize = 253;

/// Clusters that a path addresses, and the form of the objects' names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Root {
    /// `/clusters/<name>`: one cluster, whose objects keep the `resourceVersion` that it gave them.
    Cluster(ClusterName),
    /// `/clusters/*` (an empty selector) and `/clusters/<label selector>`: objects keep their names.
    Fleet(LabelSelector),
    /// `/unique/*` and `/unique/<label selector>`: the name of an object is `<cluster>:<name>`.
    Unique(LabelSelector),
}

/// A document that is not a resource, such as a discovery document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// `/version`.
    Version,
    /// `/livez`, `/readyz`, `/healthz`.
    Health,
    /// `/api`: the versions of the core group, or aggregated discovery.
    CoreVersions,
    /// `/apis`: all groups except the core group, or aggregated discovery.
    Groups,
    /// `/apis/<group>`.
    Group(SmolStr),
    /// `/api/v1` and `/apis/<group>/<version>`.
    Resources {
        /// API group; empty for the core group.
        group: SmolStr,
        /// API version, such as `v1`.
        version: SmolStr,
    },
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3` and paths below it. Holds the path below it, such as `api/v1`; empty for the index.
    OpenApiV3(SmolStr),
}

/// Path of a resource or of one of its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourcePath {
    /// API group; empty for the core group.
    pub group: SmolStr,
    /// API version, such as `v1`.
    pub version: SmolStr,
    /// Plural name of the resource.
    pub resource: SmolStr,
    /// Namespace; `None` if the path names none.
    pub namespace: Option<SmolStr>,
    /// Name of the object; `None` if the path names only the resource.
    pub name: Option<SmolStr>,
    /// Subresource, such as `status`; `None` if the path names none.
    pub subresource: Option<SmolStr>,
    /// Whether the deprecated `watch/` follows the API version, as in `/api/v1/watch/pods`.
    pub is_watch: bool,
}

/// Document or resource that a path names below its root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A document.
    Document(Document),
    /// A resource or one of its objects.
    Resource(ResourcePath),
}

/// Parses the path of a request, still percent-encoded. `None` if it is not below `/clusters` or `/unique`.
///
/// A slash at the end is ignored. In `/clusters/<text>`, a text of letters, digits, `.`, `_` and `-` names a
/// cluster; any other text is a label selector.
///
/// # Errors
/// [`Status`] of code 400 or 404 if the path below `/clusters` or `/unique` is invalid.
pub fn parse_path(path: &str) -> Result<Option<(Root, Target)>, Status> {
    let (is_unique, below) = match (path.strip_prefix("/clusters"), path.strip_prefix("/unique")) {
        (Some(below), _) => (false, below),
        (_, Some(below)) => (true, below),
        (None, None) => return Ok(None),
    };
    if !below.is_empty() && !below.starts_with('/') {
        return Ok(None);
    }
    if path.len() > MAX_PATH {
        return Err(Status::bad_request(format!(
            "the path of the request has {} bytes: at most {MAX_PATH} are allowed",
            path.len()
        )));
    }
    let below = below.strip_prefix('/').unwrap_or(below);
    let (clusters, below) = split_root(below);
    let root = parse_root(clusters, is_unique)?;
    let segments = below.strip_suffix('/').unwrap_or(below).split('/').map(decode_segment);
    let segments = segments.collect::<Result<Vec<_>, _>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(Status::path_not_found());
    }
    let target = parse_target(&segments, &root)?;
    Ok(Some((root, target)))
}

/// Splits the cluster name or selector from the path below it. A selector may contain an unescaped slash
/// (`example.com/tier=prod`), since client-go turns `%2F` in the server's address into `/`.
fn split_root(path: &str) -> (&str, &str) {
    const BELOW: [&str; 7] = ["api", "apis", "version", "openapi", "livez", "readyz", "healthz"];
    let first = path.split_once('/').unwrap_or((path, ""));
    let ends = path.match_indices('/').map(|(at, _)| at);
    let mut splits = ends.map(|at| (&path[..at], &path[at + 1..]));
    let is_below = |rest: &str| BELOW.contains(&rest.split('/').next().unwrap_or_default());
    let whole = splits.find(|(_, rest)| is_below(rest)).filter(|(clusters, _)| has_operator(clusters));
    whole.unwrap_or(first)
}

/// Returns whether a text, percent-encoded or not, has a character that occurs in selectors but never in cluster names.
fn has_operator(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'=' | b'!' | b',' | b'(' | b'<' | b'>' | b'%'))
}

fn parse_root(clusters: &str, is_unique: bool) -> Result<Root, Status> {
    let text = decode_segment(clusters)?;
    if text.trim().is_empty() {
        return Err(Status::path_not_found());
    }
    let select = if is_unique { Root::Unique } else { Root::Fleet };
    if text == "*" {
        return Ok(select(LabelSelector::everything()));
    }
    if !is_unique {
        if let Ok(name) = ClusterName::new(&text) {
            return Ok(Root::Cluster(name));
        }
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
            return Err(Status::cluster_not_found(&text));
        }
    }
    let selector = text.parse().map_err(|error| Status::bad_request(format!("unable to select clusters: {error}")))?;
    Ok(select(selector))
}

fn parse_target(segments: &[&str], root: &Root) -> Result<Target, Status> {
    let document = match *segments {
        ["version"] => Document::Version,
        ["livez" | "readyz" | "healthz"] => Document::Health,
        ["api"] => Document::CoreVersions,
        ["apis"] => Document::Groups,
        ["apis", group] => Document::Group(word(group)?),
        ["api", version] => Document::Resources { group: SmolStr::default(), version: word(version)? },
        ["apis", group, version] => Document::Resources { group: word(group)?, version: word(version)? },
        ["openapi", "v2"] => Document::OpenApiV2,
        ["openapi", "v3"] => Document::OpenApiV3(SmolStr::default()),
        ["openapi", "v3", ref below @ ..] => {
            for part in below {
                word(part)?;
            }
            Document::OpenApiV3(below.join("/").into())
        }
        ["api", version, ref below @ ..] => return parse_resource("", version, below, root).map(Target::Resource),
        ["apis", group, version, ref below @ ..] => {
            return parse_resource(group, version, below, root).map(Target::Resource);
        }
        _ => return Err(Status::path_not_found()),
    };
    Ok(Target::Document(document))
}

fn parse_resource(group: &str, version: &str, below: &[&str], root: &Root) -> Result<ResourcePath, Status> {
    let (is_watch, below) = match below {
        ["watch", below @ ..] => (true, below),
        _ => (false, below),
    };
    // As in kube-apiserver, `namespaces/<name>/status` and `/finalize` are the namespace's own subresources.
    let (namespace, below) = match *below {
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize", ..] => (None, below),
        ["namespaces", namespace, ref below @ ..] => (Some(namespace), below),
        _ => (None, below),
    };
    let (resource, name, subresource) = match *below {
        [resource] => (resource, None, None),
        [resource, name] => (resource, Some(name), None),
        [resource, name, subresource] => (resource, Some(name), Some(subresource)),
        _ => return Err(Status::path_not_found()),
    };
    let longest = if matches!(root, Root::Unique(_)) { MAX_UNIQUE_NAME } else { MAX_NAME };
    let not_found = |name: &str| Status::object_not_found(group, resource, name);
    let namespace_not_found = |name: &str| Status::object_not_found("", "namespaces", name);
    Ok(ResourcePath {
        group: if group.is_empty() { SmolStr::default() } else { word(group)? },
        version: word(version)?,
        resource: word(resource)?,
        namespace: namespace.map(|name| object_name(name, "Namespace", MAX_NAME, namespace_not_found)).transpose()?,
        name: name.map(|name| object_name(name, "Name", longest, not_found)).transpose()?,
        subresource: subresource.map(word).transpose()?,
        is_watch,
    })
}

/// Checks the name of a group, version, resource or subresource. An invalid name gets the error of an unknown path
/// (404).
fn word(text: &str) -> Result<SmolStr, Status> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_word = text.len() <= MAX_WORD && text != "." && text != ".." && text.bytes().all(legal);
    if is_word { Ok(text.into()) } else { Err(Status::path_not_found()) }
}

/// Checks the name of a namespace or an object. Like kube-apiserver, refuses `.`, `..`, and names with `/` or `%`. For
/// a name longer than `longest` bytes, which no object can have, returns the error that `not_found` creates.
fn object_name(
    text: &str,
    parameter: &str,
    longest: usize,
    not_found: impl Fn(&str) -> Status,
) -> Result<SmolStr, Status> {
    let mut problems = Vec::new();
    if matches!(text, "." | "..") {
        problems.push(format!("may not be '{text}'"));
    }
    let parts = ["/", "%"].into_iter().filter(|part| text.contains(part));
    problems.extend(parts.map(|part| format!("may not contain '{part}'")));
    if !problems.is_empty() {
        let (text, problems) = (Quoted(text), problems.join(";"));
        return Err(Status::bad_request(format!("{parameter} parameter invalid: {text}: {problems}")));
    }
    if text.len() > longest { Err(not_found(text)) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests;

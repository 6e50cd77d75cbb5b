//! Tests of the import, with a kubeconfig that has every known fault.

use super::*;
use informer_hub_config::{ClusterAccess, Config};
use informer_hub_types::printable::hostile;

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: plain
clusters:
- {name: c, cluster: {server: 'https://user:hunter2@api.example.com:6443/hunter2'}}
- {name: open, cluster: {server: 'https://open', insecure-skip-tls-verify: true, certificate-authority: gone.crt}}
- {name: nowhere, cluster: {}}
users:
- {name: token, user: {token: hunter2}}
- {name: key, user: {client-certificate: gone.crt, client-key: gone.key}}
- {name: relative, user: {exec: {command: ./bin/login, interactiveMode: Always}}}
- {name: bare, user: {exec: {command: no-such-command-anywhere}}}
- {name: old, user: {auth-provider: {name: azure}}}
contexts:
- {name: plain, context: {cluster: c, user: token, namespace: shop}}
- {name: 'a/\"b\"', context: {cluster: open, user: key}}
- {name: relative, context: {cluster: c, user: relative}}
- {name: bare, context: {cluster: nowhere, user: bare}}
- {name: lost, context: {cluster: gone, user: gone}}
- {name: old, context: {cluster: c, user: old}}
- {name: a-b, context: {cluster: c, user: token}}
";

fn gathered(folder: &Path) -> Vec<(PathBuf, ContextSummary)> {
    let file = folder.join("config");
    std::fs::write(&file, KUBECONFIG).unwrap();
    gather(&[file]).unwrap()
}

#[test]
fn the_output_is_a_valid_configuration_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let text = toml(&gathered(folder.path()), true);
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("# api.example.com:6443, as \"token\" (token); its namespace shop does not limit"), "{text}");
    let config = Config::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let file = folder.path().join("config");
    let access = |context: &str| ClusterAccess::kubeconfig(&file, Some(context.to_owned()));
    let found: Vec<_> = config.clusters.iter().map(|it| (it.name.as_str(), it.access.clone())).collect();
    let expected = [
        ("a--b", "a/\"b\""),
        ("a-b", "a-b"),
        ("bare", "bare"),
        ("lost", "lost"),
        ("old", "old"),
        ("plain", "plain"),
        ("relative", "relative"),
    ];
    assert_eq!(found, expected.map(|(name, context)| (name, access(context))));
    assert!(Config::from_toml(&toml(&gathered(folder.path()), false)).is_err(), "without resources it is incomplete");
}

#[test]
fn unusable_contexts_have_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let all = gathered(folder.path());
    let of = |context: &str| {
        let found = &all.iter().find(|(_, found)| found.context == context).unwrap().1;
        found.warnings.join("\n")
    };
    assert_eq!(of("plain"), "");
    let warned = of("a/\"b\"");
    for word in ["insecure-skip-tls-verify", "client certificate ", "client key ", "CA ", "gone.crt: cannot be read"] {
        assert!(warned.contains(word), "{word}: {warned}");
    }
    let command = folder.path().join("./bin/login");
    assert!(of("relative").contains(&format!("{}: there is no such file", command.display())), "{}", of("relative"));
    assert!(of("relative").contains("needs a terminal"));
    assert!(of("bare").contains("no-such-command-anywhere: not on the PATH"), "{}", of("bare"));
    assert!(of("bare").contains("no usable address"), "{}", of("bare"));
    assert!(of("lost").contains("no cluster \"gone\"") && of("lost").contains("no user \"gone\""));
    assert!(of("old").contains("auth-provider azure: not supported"));
}

#[test]
fn a_context_in_two_files_is_taken_from_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let with = |server: &str| {
        format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\ncontexts: [{{name: x, context: {{cluster: c}}}}]\n"
        )
    };
    std::fs::write(&one, with("https://one")).unwrap();
    std::fs::write(&two, with("https://two")).unwrap();
    let all = gather(&[folder.path().join("none"), one.clone(), two]).unwrap();
    let [(file, found)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((file, found.server.as_deref()), (&one, Some("one")));
    assert!(gather(&[folder.path().join("none")]).is_err(), "a single file must exist");
}

#[test]
fn a_comment_stays_one_line() {
    let evil = ContextSummary {
        context: "x\n[hub]".to_owned(),
        server: None,
        user: Some("u\nlisten = 1".to_owned()),
        credentials: String::new(),
        namespace: Some("\n[sinks.x]".to_owned()),
        warnings: vec!["a\nb".to_owned()],
    };
    let text = toml(&[(PathBuf::from("/k\n[hub]"), evil)], true);
    let document: toml_edit::DocumentMut = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(document.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["clusters", "resources"]);
    assert_eq!(document["clusters"]["x--hub"]["context"].as_str(), Some("x\n[hub]"));
}

#[test]
fn imported_contexts_are_escaped_without_changing_their_value() {
    let found = ContextSummary {
        context: hostile::TEXT.to_owned(),
        server: Some(hostile::TEXT.to_owned()),
        user: Some(hostile::TEXT.to_owned()),
        credentials: hostile::TEXT.to_owned(),
        namespace: Some(hostile::TEXT.to_owned()),
        warnings: vec![hostile::TEXT.to_owned()],
    };
    let own = toml(&[], false).matches('\n').count();
    let text = toml(&[(PathBuf::from("/k"), found)], false);
    hostile::assert_harmless("import-kubeconfig", &text, own + 8);
    let document: toml_edit::DocumentMut = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (_, cluster) = document["clusters"].as_table().unwrap().iter().next().unwrap();
    assert_eq!(cluster["context"].as_str(), Some(hostile::TEXT));
}

//! Tests of the effective configuration: values, origins, and hidden secrets.

use std::fs;

use super::*;

fn shown(text: &str, environment: &[(&str, &str)]) -> Vec<Setting> {
    let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    settings_of(text, None, &environment).unwrap_or_else(|errors| panic!("{errors}"))
}

fn line(settings: &[Setting], key: &str) -> String {
    let all = settings.iter().filter(|setting| setting.key == key).cloned().collect::<Vec<_>>();
    let [one] = &all[..] else { panic!("{key} is there {} times", all.len()) };
    settings_as_toml(std::slice::from_ref(one)).lines().last().unwrap_or_default().to_owned()
}

const CONFIG: &str = "[hub]\ncheckpoint = \"1s\"\n[clusters.\"a.b\"]\nserver = \"https://a\"\nlabels = { tier = \"x\" }\n\
                      [resources.pods]\nkeep = [\"spec\"]\n[sinks.audit]\ntype = \"webhook\"\n\
                      url = \"https://chat/hooks/hunter2\"\nsigning_secret = { env = \"KEY\" }\n\
                      headers = { x-team = \"a\" }\nretry = { give_up_after = \"1m\" }\n";

#[test]
fn settings_have_their_origin() {
    let environment = [
        ("INFORMER_HUB_HUB__MEMORY_LIMIT", "1GiB"),
        ("INFORMER_HUB_CLUSTERS__A_B__LABELS", "{zone = \"1\"}"),
        ("KEY", "k"),
    ];
    let all = shown(CONFIG, &environment);
    let is = |key: &str, wanted: &str| assert_eq!(line(&all, key), wanted);
    is("hub.checkpoint", "checkpoint = \"1s\"  # line 2");
    is("hub.listen", "listen = \"127.0.0.1:7080\"  # default");
    is("hub.memory_limit", "memory_limit = \"1GiB\"  # environment INFORMER_HUB_HUB__MEMORY_LIMIT");
    is("clusters.\"a.b\".labels.zone", "zone = \"1\"  # environment INFORMER_HUB_CLUSTERS__A_B__LABELS");
    is("clusters.\"a.b\".labels.tier", "tier = \"x\"  # line 5");
    is("resources.pods.keep", "keep = [\"spec\"]  # line 7");
    is("sinks.audit.signing_secret.env", "env = \"KEY\"  # line 11");
    is("sinks.audit.timeout", "timeout = \"10s\"  # default");
    is("sinks.audit.retry.max", "max = \"1m\"  # default");
    is("sinks.audit.match.events", "events = [\"added\", \"updated\", \"deleted\"]  # default");
    let absent = ["resources.pods.drop", "sinks.audit.content_type", "sinks.audit.on_filter_error", "hub.state_dir"];
    assert!(!all.iter().any(|it| absent.contains(&it.key.as_str())), "{all:?}");
}

#[test]
fn secret_settings_are_hidden() {
    let environment = [("KEY", "hunter2"), ("INFORMER_HUB_SINKS__AUDIT__HEADERS__X_TEAM", "hunter2")];
    let all = shown(CONFIG, &environment);
    assert_eq!(line(&all, "sinks.audit.url"), "# url = \"https://chat/…\"  # line 10, hidden");
    let header = line(&all, "sinks.audit.headers.x-team");
    assert!(header.starts_with("# x-team = \"…\"  # environment ") && header.ends_with(", hidden"), "{header}");
    let first = "# 2 values may be secret and are hidden: their lines are comments\n";
    assert!(settings_as_toml(&all).starts_with(first), "the first line counts hidden values");
    assert!(!settings_as_toml(&all).contains("hunter2") && !serde_json::to_string(&all).unwrap().contains("hunter2"));
    for (url, wanted) in [
        ("https://a", "https://a"),
        ("https://a/", "https://a/"),
        ("https://a?b", "https://a/…"),
        ("https://a/k8s/events-v1", "https://a/…"),
        ("https://a/hook#b", "https://a/…"),
        ("https://a/services/T0/B0/XXXXXXXXXXXX", "https://a/…"),
        ("https://a/hooks/qwertyuiopasdfghjklzxcv", "https://a/…"),
        ("https://audit.example.com:8443/k8s/events/audit-log", "https://audit.example.com:8443/k8s/events/audit-log"),
    ] {
        assert_eq!(without_key(url, false), wanted);
    }
    assert_eq!(
        without_key("https://a/events", true),
        "https://a/…",
        "the environment is the place of secret addresses"
    );
    let servers = CONFIG.replace("webhook", "nats").replace("https://chat/hooks/hunter2", "nats://a, nats://b/");
    let of_webhooks = |line: &&str| line.contains("signing") || line.contains("headers");
    let servers: Vec<_> = servers.lines().filter(|line| !of_webhooks(line)).collect();
    let all = shown(&servers.join("\n"), &[]);
    assert_eq!(line(&all, "sinks.audit.url"), "url = \"nats://a, nats://b/\"  # line 10");
}

/// Ensures that each default that is shown equals the parser's default.
#[test]
fn shown_settings_read_back_as_the_same_configuration() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "prod-us-ca.pem",
        "prod-us-token",
        "config",
        "hub-cert.pem",
        "hub-key.pem",
        "operators-ca.pem",
        "hub-read-token",
        "login-ca.pem",
        "dashboard-token",
    ] {
        fs::write(folder.path().join(name), "content").unwrap();
    }
    let sample = include_str!("../../../config/hub.toml").replace("~/.kube/config", "config");
    let environment: Environment = [("AUDIT_SECRET", "s"), ("AUDIT_API_KEY", "k"), ("API_TOKEN", "t")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    let file = folder.path().join("hub.toml");
    for text in [sample.as_str(), CONFIG.replace("/hooks/hunter2", "").replace("KEY", "AUDIT_SECRET").as_str()] {
        let settings = settings_of(text, Some(&file), &environment).unwrap_or_else(|errors| panic!("{errors}"));
        let load = |text: &str| {
            let source = Source {
                file: Some(&file),
                text,
                environment: Some(&environment),
                probes: None,
                check_references: true,
            };
            resolve::resolve(&source).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
        };
        let (first, again) = (load(text), load(&settings_as_toml(&settings)));
        assert_eq!(format!("{first:#?}"), format!("{again:#?}"));
        assert!(settings.iter().filter(|it| it.origin == SettingOrigin::Default).count() > 15);
    }
}

#[test]
fn invalid_configuration_returns_its_mistakes() {
    let errors = settings_of("[hub]\nlisten = 1\n", None, &Environment::new()).unwrap_err();
    assert!(errors.mistakes().len() >= 3, "{errors}");
}

//! Tests of `[ha]`.

use std::time::Duration;

use super::*;

const REST: &str = "[clusters.mgmt]\nserver = \"https://mgmt\"\n[resources.pods]\n";

#[test]
fn election_has_defaults_besides_the_namespace() {
    let config = Config::from_toml(&format!("[ha]\nlease = {{ namespace = \"hub\" }}\n{REST}")).unwrap();
    let ha = config.ha.unwrap();
    assert_eq!((&*ha.lease.namespace, &*ha.lease.name, ha.lease.cluster), ("hub", "informer-hub", None));
    assert_eq!([ha.lease_duration, ha.renew_deadline, ha.retry_period].map(|time| time.as_secs()), [10, 7, 2]);
    let text = format!(
        "[ha]\nidentity = \"a\"\nlease_duration = \"4s\"\nrenew_deadline = \"3s\"\nretry_period = \"900ms\"\n\
         [ha.lease]\ncluster = \"mgmt\"\nnamespace = \"hub\"\nname = \"one\"\n{REST}"
    );
    let ha = Config::from_toml(&text).unwrap().ha.unwrap();
    assert_eq!(ha.retry_period, Duration::from_millis(900));
    assert_eq!((ha.identity.as_deref(), ha.lease.cluster.unwrap().as_str()), (Some("a"), "mgmt"));
    assert!(Config::from_toml(REST).unwrap().ha.is_none());
}

#[test]
fn mistakes_of_the_election_are_reported() {
    for (lines, problem) in [
        ("[ha]\n", "has no lease"),
        ("[ha.lease]\n", "has no namespace"),
        ("[ha]\nlease = 3\n", "expected a table"),
        ("[ha.lease]\nnamespace = \"Hub\"\n", "\"Hub\" is not a namespace"),
        ("[ha.lease]\nnamespace = \"a\"\nname = \"../b\"\n", "\"../b\" is not a name"),
        (
            "[ha.lease]\nnamespace = \"a\"\ncluster = \"mgnt\"\n",
            "there is no cluster \"mgnt\" in [clusters]; did you mean \"mgmt\"?",
        ),
        ("[ha]\nlease_duration = \"1h\"\n[ha.lease]\nnamespace = \"a\"\n", "is out of range"),
        (
            "[ha]\nrenew_deadline = \"10s\"\n[ha.lease]\nnamespace = \"a\"\n",
            "10s is longer than nine tenths of lease_duration, which is 10s",
        ),
        (
            "[ha]\nretry_period = \"4s\"\n[ha.lease]\nnamespace = \"a\"\n",
            "4s is longer than half of renew_deadline, which is 7s",
        ),
    ] {
        let text = format!("{lines}{REST}");
        let error = Config::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        crate::schema::tests::refuses(&text, problem);
    }
}

//! Tests of completion from a running hub.

use std::process::{Command, Stdio};

use crate::client::{Fleet, command, outcome};

fn found(fleet: &Fleet, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let found = fleet.run(&[&["complete", "--"], &words[..]].concat());
    assert_eq!((found.code, found.err.as_str()), (0, ""), "{line}");
    found.out.lines().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_names_namespaces_and_clusters_are_completed() {
    let fleet = Fleet::start("").await;
    for (line, expected) in [
        ("get ", "all nodes pods widgets"),
        ("get po", "pods"),
        ("get pods,n", "pods,nodes"),
        ("get pods we", "web-0 web-10 web-9"),
        ("get pods -n web --clusters prod-us ", "web-0"),
        ("get pod/pay", "pod/payments-api-7d9c5b8f64-x7q2k pod/payments-api-7d9c5b8f64-zl2mw"),
        ("get pods -n ", "checkout kube-system web"),
        ("query -r n", "nodes"),
        ("get pods --clusters ", "dev prod-eu prod-us tier=dev tier=prod"),
        ("get pods --clusters tier = p", "tier=prod"),
        ("status --cluster prod-e", "prod-eu"),
        ("get pods -o j", "json jsonpath="),
        ("get pods x\"; rm", ""),
        ("run -c ", ""),
    ] {
        assert_eq!(found(&fleet, line), expected, "{line}");
    }
    let down = outcome(command(&["complete", "--", "get", "pods", "--url", "http://127.0.0.1:1", ""]));
    assert_eq!((down.code, down.out.as_str(), down.err.as_str()), (0, "", ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bash_completes_from_the_hub_and_without_it_from_the_script() {
    let fleet = Fleet::start("").await;
    let script = outcome(command(&["completions", "bash"])).out;
    let program = env!("CARGO_BIN_EXE_informer-hub");
    let complete = |words: &[&str], url: &str| {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let text = format!(
            "{script}\nCOMP_WORDS=('{program}' {}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _informer_hub_all '{program}' \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            quoted.join(" ")
        );
        let mut shell = Command::new("bash");
        shell.args(["--norc", "-c", &text]).env("INFORMER_HUB_URL", url).stderr(Stdio::inherit());
        let output = shell.output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete(&["get", "pods", "-n", "we"], &fleet.url), "web");
    assert_eq!(complete(&["get", "pods", "--clusters", "tier", "=", "d"], &fleet.url), "dev");
    assert_eq!(complete(&["get", "--sort"], &fleet.url), "--sort-by");
    assert_eq!(complete(&["stat"], &fleet.url), "status state");
    assert_eq!(complete(&["get", "--field"], "http://127.0.0.1:1"), "--field-selector");
}

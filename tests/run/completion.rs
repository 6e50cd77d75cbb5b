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

/// Returns the path of a shell, or says that the test is skipped. `.ci/run` installs the shells.
fn shell(name: &str) -> Option<std::path::PathBuf> {
    let folders = std::env::split_paths(&std::env::var_os("PATH")?).collect::<Vec<_>>();
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// Returns `PATH` with the folder of the program first.
fn path_with_program() -> std::ffi::OsString {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_informer-hub")).parent().unwrap().to_owned();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&rest))).unwrap()
}

/// Writes the script of a shell to a file.
fn script_of(fleet: &Fleet, shell: &str, file: &str) -> std::path::PathBuf {
    let script = outcome(command(&["completions", shell]));
    let path = fleet.hub.path().join(file);
    std::fs::write(&path, script.out).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fish_completes_from_the_hub_and_without_it_from_the_script() {
    let Some(fish) = shell("fish") else { return };
    let fleet = Fleet::start("").await;
    let script = script_of(&fleet, "fish", "informer-hub.fish");
    let complete = |line: &str, url: &str| {
        let mut command = Command::new(&fish);
        let text = format!("source {}; complete -C 'informer-hub {line}'", script.display());
        command.args(["--no-config", "-c", &text]).env("INFORMER_HUB_URL", url).env("PATH", path_with_program());
        let output = command.env("HOME", fleet.hub.path()).stderr(Stdio::inherit()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    for (line, expected) in [
        ("get po", "pods"),
        ("get pods we", "web-0 web-9 web-10"),
        ("get pods -n we", "web"),
        ("get pods --namespace we", "web"),
        ("query -r no", "nodes"),
        ("get pods --clusters prod-e", "prod-eu"),
        ("tree pods web-1", "web-10"),
    ] {
        assert_eq!(complete(line, &fleet.url), expected, "{line}");
    }
    assert_eq!(complete("stat", &fleet.url), "state status");
    for url in [fleet.url.as_str(), "http://127.0.0.1:1"] {
        assert_eq!(complete("get --field", url), "--field-selector");
    }
    assert_eq!(complete("get pods -n we", "http://127.0.0.1:1"), "");
}

/// Completes a line in an interactive zsh and prints the line as it is then, in angle brackets.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "PROMPT=; RPROMPT=; autoload -Uz compinit; compinit -u -D; source $1"
zpty -w inner "finish() { print -r -- \"<\$BUFFER>\"; exit }; zle -N finish; bindkey '^X' finish; print READY''NOW"
zpty -r inner out '*READYNOW*'
zpty -n -w inner "$2"$'\t\x18'
zpty -r inner out '*\<*\>*'
out="${out##*$'\n'}"
print -r -- "$out"
zpty -d inner
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zsh_completes_from_the_hub_and_without_it_from_the_script() {
    let Some(zsh) = shell("zsh") else { return };
    let fleet = Fleet::start("").await;
    let script = script_of(&fleet, "zsh", "_informer-hub");
    let driver = fleet.hub.path().join("driver.zsh");
    std::fs::write(&driver, ZSH).unwrap();
    let complete = |line: &str, url: &str| {
        let mut command = Command::new(&zsh);
        command.arg("-f").arg(&driver).arg(&script).arg(format!("informer-hub {line}"));
        command.env("INFORMER_HUB_URL", url).env("PATH", path_with_program()).env("TERM", "dumb");
        let output = command.env("HOME", fleet.hub.path()).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let completed = text.rsplit("<informer-hub ").next().unwrap_or_default();
        completed.split('>').next().unwrap().trim_end_matches(['=', ' ']).to_owned()
    };
    for (line, expected) in [
        ("get po", "get pods"),
        ("get pods -n we", "get pods -n web"),
        ("query -r no", "query -r nodes"),
        ("get pods web-1", "get pods web-10"),
        ("get pods --clusters prod-e", "get pods --clusters prod-eu"),
        ("statu", "status"),
    ] {
        assert_eq!(complete(line, &fleet.url), expected, "{line}");
    }
    assert_eq!(complete("get --field", "http://127.0.0.1:1"), "get --field-selector");
}

//! Consistency tests of `deploy/` that need no external tools. Tests with helm and an apiserver: `tests/real/deploy`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use informer_hub_config::ByteSize;
use serde_json::{Value, json};

fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn read(below: &str) -> String {
    fs::read_to_string(path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
}

/// Returns the value after `key` on the first line that begins with it.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(key));
    rest.unwrap_or_else(|| panic!("no {key:?}")).trim().trim_matches('"')
}

#[test]
fn versions_in_deploy_match_the_crate() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read("deploy/helm/informer-hub/Chart.yaml");
    assert_eq!(value(&chart, "version:"), version);
    assert_eq!(value(&chart, "appVersion:"), version);
    assert_eq!(value(&read("deploy/kustomize/base/kustomization.yaml"), "newTag:"), version);
    assert_eq!(value(&read("deploy/Containerfile"), "ARG VERSION="), version);
    for file in ["docs/install.md", "deploy/Containerfile"] {
        let text = read(file);
        for after in text.split("informer-hub:").skip(1) {
            let tag: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            assert!(tag.is_empty() || tag.trim_end_matches('.') == version, "{file} has informer-hub:{tag}");
        }
    }
}

#[test]
fn prometheus_rule_object_has_the_rules_of_the_rules_file() {
    let file = "deploy/monitoring/prometheusrule.yaml";
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/informer-hub.rules.yaml")).unwrap();
    let object: Value = serde_saphyr::from_str(&read(file)).unwrap();
    assert!(
        object["spec"] == rules,
        "{file} is out of date: below `spec:` are the lines of informer-hub.rules.yaml, with two spaces before each"
    );
}

/// Returns the hub's schema as the chart's values need it for `config`: without keys that the chart sets itself,
/// and without requirements that the chart's defaults meet.
fn schema_of_config() -> Value {
    let mut schema: Value = serde_json::from_str(&read("config/schema.json")).unwrap();
    let top = schema.as_object_mut().unwrap();
    top.remove("$schema");
    top.remove("required");
    // Without configured clusters, the chart adds the cluster that it runs in.
    top.remove("anyOf");
    for table in ["clusters", "resources"] {
        schema["properties"][table].as_object_mut().unwrap().remove("minProperties");
    }
    // The chart's own `ha` writes the table.
    assert!(schema["properties"].as_object_mut().unwrap().remove("ha").is_some());
    // The chart's default is an empty table.
    assert!(schema["properties"]["fleet"].as_object_mut().unwrap().remove("required").is_some());
    for key in ["listen", "state_dir", "tls", "auth"] {
        let removed = schema["properties"]["hub"]["properties"].as_object_mut().unwrap().remove(key);
        assert!(removed.is_some(), "there is no hub.{key}");
    }
    schema
}

/// Compares the two schemas. `make chart-schema` sets the variable that makes it write the file.
#[test]
fn chart_schema_matches_the_configuration_schema() {
    let file = "deploy/helm/informer-hub/values.schema.json";
    let mut schema: Value = serde_json::from_str(&read(file)).unwrap();
    if std::env::var_os("UPDATE_CHART_SCHEMA").is_some() {
        schema["properties"]["config"] = schema_of_config();
        fs::write(path(file), serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
    }
    assert!(schema["properties"]["config"] == schema_of_config(), "{file} is out of date; run: make chart-schema");
    // Go's regular expressions have no look-around, so helm would refuse every value.
    let text = schema.to_string();
    assert!(!["(?=", "(?!", "(?<"].iter().any(|look| text.contains(look)), "the schema has a look-around expression");
}

#[test]
fn chart_checksum_leaves_out_exactly_the_keys_applied_at_runtime() {
    let changing = read("docs/changing.md");
    let row = changing
        .lines()
        .find(|line| line.contains("takes effect at once"))
        .expect("the row of keys applied at runtime");
    let named: BTreeSet<_> = row.split('`').filter_map(|word| word.strip_prefix("hub.")).collect();
    let template = read("deploy/helm/informer-hub/templates/statefulset.yaml");
    let checksum = template.lines().find(|line| line.contains("checksum/hub:")).expect("a checksum annotation");
    let (_, left_out) = checksum.split_once(".hub ").expect("a checksum of the hub table");
    let left_out: BTreeSet<_> = left_out.split('"').skip(1).step_by(2).collect();
    assert_eq!(left_out, named);
}

#[test]
fn chart_schema_covers_each_value_and_accepts_the_defaults() {
    let schema: Value = serde_json::from_str(&read("deploy/helm/informer-hub/values.schema.json")).unwrap();
    let values: Value = serde_saphyr::from_str(&read("deploy/helm/informer-hub/values.yaml")).unwrap();
    let known = schema["properties"].as_object().unwrap();
    let missing: Vec<_> = values.as_object().unwrap().keys().filter(|key| !known.contains_key(*key)).collect();
    assert!(missing.is_empty(), "values.schema.json lacks {missing:?}");
    let undocumented: Vec<_> = known.keys().filter(|key| *key != "global" && values.get(key).is_none()).collect();
    assert!(undocumented.is_empty(), "values.yaml lacks {undocumented:?}");
    assert_eq!(schema["additionalProperties"], json!(false));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<_> = validator.iter_errors(&values).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "invalid defaults: {wrong:?}");
}

#[test]
fn chart_resource_list_matches_the_built_in_resources() {
    let source = read("crates/types/src/built_in.rs");
    let (_, list) = source.split_once("const BUILT_IN").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    // Of the string literals, those with several words or with `=` list resource names.
    let texts = list.split('"').skip(1).step_by(2).filter(|text| text.contains([' ', '=']));
    let plurals: BTreeSet<_> = texts
        .flat_map(str::split_whitespace)
        .filter(|word| *word != "\\")
        .map(|word| word.split('=').next().unwrap().to_owned())
        .collect();
    let file: Value = serde_saphyr::from_str(&read("deploy/helm/informer-hub/files/resources.yaml")).unwrap();
    let groups = file["resources"].as_array().unwrap().iter();
    let known: BTreeSet<_> = groups.flat_map(|group| group["names"].as_object().unwrap().keys().cloned()).collect();
    assert!(plurals.len() > 50 && plurals == known, "{:?}", plurals.symmetric_difference(&known));
}

/// Returns the rows of a document's table whose header line begins with `head`, as cells.
fn table(text: &str, head: &str) -> Vec<Vec<String>> {
    let lines =
        text.lines().skip_while(|line| !line.starts_with(head)).skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace(',', "")).collect()).collect()
}

#[test]
fn documented_sizes_follow_from_the_measured_costs() {
    const MIB: u64 = 1 << 20;
    for text in ["docs/install.md", "deploy/helm/informer-hub/README.md"] {
        let rows = table(&read(text), "| clusters |");
        assert!(rows.len() >= 4, "{text}: {rows:?}");
        for row in rows {
            let number = |at: usize| row[at].parse::<u64>().unwrap_or_else(|error| panic!("{text}: {row:?}: {error}"));
            let (clusters, resources, objects) = (number(0), number(1), number(2));
            // 60 MiB for the program, 28 KiB an informer, 1,250 bytes an object, plus a quarter. The hub's memory limit
            // is nine tenths of the container's limit.
            let resident = 60 * MIB + clusters * resources * 28 * 1024 + objects * 1_250;
            let needed = resident / 4 * 5 / 9 * 10;
            let given: ByteSize = row[3].parse().unwrap();
            assert!(given.0 >= needed && given.0 < needed * 2, "{text}: {row:?}: {} MiB are needed", needed / MIB);
        }
    }
}

/// Returns the instructions of the Containerfile, one line each.
fn instructions() -> Vec<String> {
    let text = read("deploy/Containerfile").replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn container_ignore_files_admit_exactly_the_copied_paths() {
    let ignored = read(".containerignore");
    assert_eq!(ignored, read("deploy/Containerfile.dockerignore"), "docker and podman read different files");
    let admitted: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let mut copied = Vec::new();
    for instruction in instructions() {
        let Some(arguments) = instruction.strip_prefix("COPY ").filter(|rest| !rest.contains("--from=")) else {
            continue;
        };
        let words: Vec<_> = arguments.split(' ').collect();
        copied.extend(words[..words.len() - 1].iter().map(|word| (*word).to_owned()));
    }
    copied.sort();
    assert_eq!(copied, admitted, "the image copies exactly the admitted paths");
    assert!(copied.iter().all(|file| path(file).exists()), "{copied:?}");
}

fn copy_all(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn image_build_copies_a_complete_package() {
    let stage = instructions();
    let script = stage.iter().find(|it| it.contains("cargo build")).expect("a step runs cargo build");
    let script = &script[script.find("sed ").expect("the step drops the tests from the manifest")..];
    let (script, _) = script.split_once(" && install").expect("the step installs the binary");
    assert!(script.ends_with("cargo build --profile dist --locked --package informer-hub"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    for file in ["Cargo.toml", "Cargo.lock", "crates", "src"] {
        copy_all(&path(file), &folder.path().join(file));
    }
    // Replaces the build by commands that work offline, because crates of other platforms may not have been fetched.
    let asked = "\"$CARGO\" tree --offline --locked >/dev/null && \"$CARGO\" metadata --no-deps --format-version 1";
    let script = script.replace("cargo build --profile dist --locked --package informer-hub", asked);
    let output =
        Command::new("sh").arg("-c").arg(&script).env("CARGO", env!("CARGO")).current_dir(folder.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = metadata["packages"].as_array().unwrap().iter().find(|it| it["name"] == "informer-hub").unwrap();
    let targets: Vec<_> = own["targets"].as_array().unwrap().iter().map(|it| it["kind"][0].as_str().unwrap()).collect();
    assert_eq!(targets, ["lib", "bin"]);
}

#[test]
fn image_rust_version_meets_the_minimum() {
    let image = read("deploy/Containerfile");
    let tag = value(&image, "ARG RUST_IMAGE=rust:").split('-').next().unwrap().to_owned();
    let numbers = |text: &str| text.split('.').map(|it| it.parse::<u32>().unwrap()).collect::<Vec<_>>();
    assert!(numbers(&tag) >= numbers(env!("CARGO_PKG_RUST_VERSION")), "{tag}");
}

/// Writes the systemd unit to a temporary folder, with a program that exists.
fn unit() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("informer-hub.service");
    fs::write(&file, read("deploy/systemd/informer-hub.service").replace("/usr/local/bin/informer-hub", "/bin/true"))
        .unwrap();
    (folder, file)
}

fn systemd_analyze(arguments: &[&str]) -> Option<(bool, String)> {
    let (_folder, file) = unit();
    let Ok(output) = Command::new("systemd-analyze").args(arguments).arg(&file).output() else {
        println!("skipped: systemd-analyze is not installed");
        return None;
    };
    let messages = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&messages).into_owned()))
}

#[test]
fn systemd_unit_passes_systemd_analyze_verify() {
    if let Some((passed, messages)) = systemd_analyze(&["verify", "--man=no"]) {
        assert!(passed && messages.is_empty(), "{messages}");
    }
}

#[test]
fn systemd_unit_exposure_is_below_the_threshold() {
    // The exposure level in tenths. An unhardened service has 96.
    if let Some((passed, messages)) = systemd_analyze(&["security", "--offline=true", "--threshold=12"]) {
        assert!(passed, "{messages}");
    }
}

#[test]
fn systemd_unit_uses_valid_arguments_exit_codes_and_variables() {
    let unit = read("deploy/systemd/informer-hub.service");
    let call: Vec<_> = value(&unit, "ExecStart=").split(' ').skip(1).map(str::to_owned).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    fs::write(&file, "colour = \"red\"\n").unwrap();
    let call = call.iter().map(|word| word.replace("/etc/informer-hub/hub.toml", &file.display().to_string()));
    let output = Command::new(env!("CARGO_BIN_EXE_informer-hub")).args(call).output().unwrap();
    let code = output.status.code().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("colour"),
        "the program did not read the file: {output:?}"
    );
    assert_eq!(
        value(&unit, "RestartPreventExitStatus="),
        code.to_string(),
        "systemd must not restart on a configuration error"
    );
    let variables: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("Environment=")).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    fs::write(&file, "[clusters.a]\nin_cluster = true\n[resources.pods]\n").unwrap();
    let state = folder.path().display().to_string();
    let given =
        variables.iter().map(|it| it.split_once('=').unwrap()).map(|(name, value)| (name, value.replace("%S", &state)));
    let output = command.args(["config", "show", "-c"]).arg(&file).envs(given).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    for variable in &variables {
        assert!(
            shown.contains(variable.split_once('=').unwrap().0),
            "{variable} is not a configuration variable: {shown}"
        );
    }
    let limit: ByteSize =
        variables.iter().find_map(|it| it.strip_prefix("INFORMER_HUB_HUB__MEMORY_LIMIT=")).unwrap().parse().unwrap();
    let allowed: u64 = value(&unit, "MemoryMax=").strip_suffix('M').unwrap().parse().unwrap();
    assert!(limit.0 <= allowed * (1 << 20) / 10 * 9, "the hub's limit exceeds nine tenths of MemoryMax");
}

//! Tests of resources: names, patterns, scopes and indices.

use super::*;

#[test]
fn resource_names_are_checked() {
    only(&BASE.replace("pods", "Pods"), 4, "resources.Pods: \"Pods\" is not a resource: write it as kubectl does");
    only_in_resource("resource = \"a b\"\n", 1, "resources.pods.resource: \"a b\" is not a resource");
    let named = BASE.replace("[resources.pods]", "[resources.\"My Pods\"]\nresource = \"pods\"");
    assert_eq!(problems(&named), Vec::<String>::new());
}

#[test]
fn patterns_are_checked() {
    let ours = |lines: &str| format!("{BASE}[resources.ours]\nresource = \"*.example.com\"\n{lines}");
    let good = ours("exclude = [\"gears\", \"*.*.b.example.com\"]\nlimit = 7\n[resources.\"*.*.example.com\"]\n");
    let config = Config::from_toml(&good).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let patterns: Vec<_> = config.resources.iter().filter_map(|it| it.resource.pattern()).collect();
    let told: Vec<_> = patterns.iter().map(|it| (it.to_string(), it.exclude.len(), it.limit.get())).collect();
    assert_eq!(told, [("*.*.example.com".to_owned(), 0, 50), ("*.example.com".to_owned(), 2, 7)]);
    let line = 7;
    only(&ours("exclude = [\"*\"]\n"), line, "exclude[0]: excludes all of *.example.com");
    only(&ours("exclude = [\"gears.v1.example.com\"]\n"), line, "exclude[0]: has a version");
    only(&ours("exclude = [\"a b\"]\n"), line, "exclude[0]: \"a b\" is not a resource");
    only(&ours("exclude = [\"*.\"]\n"), line, "exclude[0]: \"*.\" is not a pattern: write \"*.example.com\"");
    only(&ours("limit = 0\n"), line, "limit: expected a whole number from 1 to 1000, found 0");
    let again = ours("[resources.again]\nresource = \"*.example.com\"\n");
    only(&again, 5, "has the same pattern *.example.com for cluster one as resources.again");
    only_in_resource("exclude = [\"a\"]\n", 1, "exclude: requires a pattern such as");
    only_in_resource("limit = 3\n", 1, "limit: requires a pattern such as");
    only(&BASE.replace("pods", "\"**\""), 4, "\"**\" is not a pattern");
}

#[test]
fn short_name_is_the_same_resource() {
    let text = format!("{BASE}keep = [\"spec\"]\n[resources.po]\n");
    only(&text, 4, "watches the same objects as resources.po");
}

#[test]
fn resource_scopes_are_checked() {
    only_in_resource("namespaces = []\n", 1, "is empty; remove the key to select all namespaces");
    only_in_resource("namespaces = [\"a\", \"b\", \"a\"]\n", 1, "namespaces[2]: \"a\" is in the list twice");
    only_in_resource("namespaces = [\n\"a\",\n\"B\"]\n", 3, "namespaces[1]: \"B\" is not a namespace");
    only_in_resource("namespaces = \"a\"\n", 1, "expected a list such as [\"a\", \"b\"], found a text");
    only_in_resource("namespaces = [1]\n", 1, "namespaces[0]: expected a text in quotes, found a number");
    only_in_resource("label_selector = \"a=b c\"\n", 1, "expected a comma or the end, found \"c\" at position 5");
    only_in_resource("label_selector = \"\"\n", 1, "is empty; write a value or remove the key");
    only_in_resource("field_selector = \"status.phase\"\n", 1, "has no operator; write path=value");
}

#[test]
fn resource_values_are_checked() {
    only_in_resource("resync = \"999ms\"\n", 1, "999ms is out of range: from 1s to 7d");
    only_in_resource("resync = \"10\"\n", 1, "\"10\" is not a duration: write a whole number and a unit");
    only_in_resource("drop = [\"spec\"]\nkeep = [\"spec\"]\n", 2, "keep and drop exclude each other");
    only_in_resource("drop = [\"metadata.uid\"]\n", 1, "identifies the object and cannot be dropped");
    only_in_resource("metadata_only = true\nindexes = { a = \"spec.b\" }\n", 2, "indexes.a: ");
    only_in_resource("metadata_only = true\nkeep = [\"spec\"]\n", 2, "is not in metadata, and metadata_only");
    only_in_resource("indexes = { \"a b\" = \"spec.b\" }\n", 1, "indexes.\"a b\": is not a valid index name");
    only_in_resource("indexes = { a = 1 }\n", 1, "indexes.a: expected a text in quotes, found a number");
    only_in_resource("namespace = \"a\"\n", 1, "unknown key; did you mean \"namespaces\"?");
}

#[test]
fn entries_must_not_keep_different_parts_of_the_same_objects() {
    let second = |lines: &str| format!("{BASE}[resources.again]\nresource = \"pods\"\n{lines}");
    // Tables are read in the order of their names, so `again` is first. The mistake is reported at the later entry and
    // names both.
    only(&second("drop = []\n"), 4, "resources.pods: watches the same objects as resources.again in cluster one");
    only(&second("metadata_only = true\n"), 4, "watches the same objects as resources.again");
    only(&second("drop = []\nnamespaces = [\"a\"]\n"), 4, "watches the same objects as resources.again");
    for fine in ["", "resync = \"10m\"\n", "drop = []\nlabel_selector = \"a\"\n"] {
        assert_eq!(problems(&second(fine)), Vec::<String>::new(), "{fine}");
    }
    let apart = "[clusters.two]\nserver = \"https://two\"\nlabels = { tier = \"dev\" }\n";
    let text = second("drop = []\nclusters = { tier = \"dev\" }\n")
        .replace("[resources.pods]", "[resources.pods]\nclusters = { tier = \"prod\" }");
    assert_eq!(problems(&format!("{apart}{text}")), Vec::<String>::new());
}

#[test]
fn index_name_has_one_path_per_resource() {
    let two = |one: &str, other: &str| {
        let text = BASE.replace("[resources.pods]", &format!("[resources.pods]\nindexes = {{ {one} }}"));
        format!("{text}[resources.again]\nresource = \"pods\"\nlabel_selector = \"a\"\nindexes = {{ {other} }}\n")
    };
    let found = problems(&two("a = \"spec.x\"", "a = \"spec.y\""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("resources.pods.indexes.a: differs from resources.again.indexes.a"), "{found:?}");
    assert_eq!(problems(&two("a = \"spec.x\"", "a = \"spec.x\", b = \"spec.y\"")), Vec::<String>::new());
}

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Template;

fn pods() -> Value {
    json!({
        "kind": "List",
        "items": [
            { "metadata": { "name": "a", "labels": { "app.kubernetes.io/name": "web", "tier": "x" } },
              "spec": { "containers": [{ "name": "c1", "image": "i1" }, { "name": "c2", "image": "i2" }] },
              "status": { "phase": "Running", "restarts": 3, "ready": true } },
            { "metadata": { "name": "b" }, "spec": { "containers": [{ "name": "c3", "image": "i3" }] },
              "status": { "phase": "Failed", "restarts": 12, "ready": false } },
        ],
    })
}

fn render(template: &str) -> String {
    let mut out = String::new();
    let template: Template = template.parse().unwrap_or_else(|error| panic!("{template}: {error}"));
    template.render(&pods(), &mut out).unwrap();
    out
}

#[test]
fn templates_of_daily_use_print_as_kubectl_prints_them() {
    let cases = [
        ("{.items[*].metadata.name}", "a b"),
        ("{range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{\"\\n\"}{end}", "a\tRunning\nb\tFailed\n"),
        ("{.items[0].metadata.name}", "a"),
        ("{.items[-1:].metadata.name} {.items[-1].metadata.name}", "b b"),
        ("{.items[0:2].metadata.name}", "a b"),
        ("{.items[::2].metadata.name}", "a"),
        ("{.items[0,1].status.restarts}", "3 12"),
        ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "web"),
        ("{.items[0].metadata.labels.app\\.kubernetes\\.io/name}", "web"),
        ("{.items[0].metadata['name','labels']}", "a {\"app.kubernetes.io/name\":\"web\",\"tier\":\"x\"}"),
        ("{.items[?(@.status.phase==\"Failed\")].metadata.name}", "b"),
        ("{.items[?(@.status.phase!='Failed')].metadata.name}", "a"),
        ("{.items[?(@.status.restarts > 5)].metadata.name}", "b"),
        ("{.items[?(@.status.restarts<=3)].metadata.name}", "a"),
        ("{.items[?(@.status.ready==true)].metadata.name}", "a"),
        ("{.items[?(@.metadata.labels)].metadata.name}", "a"),
        ("{..image}", "i1 i2 i3"),
        ("{.items[*].spec.containers[*].name}", "c1 c2 c3"),
        ("{range .items[*]}[{range .spec.containers[*]}{.name},{end}]{end}", "[c1,c2,][c3,]"),
        ("{$.kind} {@.kind} {.nothing}{.items[9]}.", "List List ."),
        ("{range .items[*]}{$.kind}/{.metadata.name} {end}", "List/a List/b "),
        ("{.items[0].status.*}", "Running true 3"),
        ("{ .kind }{'it\\'s'}", "Listit's"),
    ];
    for (template, wanted) in cases {
        assert_eq!(render(template), wanted, "{template}");
    }
}

#[test]
fn errors_have_a_position() {
    let cases = [
        ("metadata.name", "a template has paths in braces, such as {.metadata.name} at position 1"),
        ("{.a", "expected }, found the end at position 4"),
        ("{.a b}", "expected }, found 'b' at position 5"),
        ("{range .items[*]}x", "{range} without {end} at position 1"),
        ("x{end}", "{end} without {range} at position 2"),
        ("{.a[}", "expected a number, *, a quoted name or ?(…) at position 5"),
        ("{.a['x}", "the quotation does not end at position 5"),
        ("{.a[?(@.b=c)]}", "expected an operator or ), found '=' at position 10"),
        ("{.a[?(@.b==c)]}", "expected @.path, a number, true, false or a quoted text at position 12"),
        (
            "{.a[?(@.b==1 && @.c)]}",
            "a filter has one condition; write another filter [?(…)] for the next condition at position 14",
        ),
        ("{.a[1:2:0]}", "the step of a slice must be greater than 0 at position 10"),
        ("{a}", "expected a path such as .metadata.name at position 2"),
        ("{.a.}", "expected the name of a field at position 5"),
    ];
    for (template, wanted) in cases {
        assert_eq!(template.parse::<Template>().unwrap_err().to_string(), wanted, "{template}");
    }
    let nested = "{range .a}".repeat(20) + &"{end}".repeat(20);
    assert!(nested.parse::<Template>().unwrap_err().problem.contains("nested ranges"));
    let filters = format!("{{.a{}", "[?(@".repeat(20));
    assert!(filters.parse::<Template>().unwrap_err().problem.contains("nested filters"));
}

#[test]
fn only_a_range_over_items_is_printed_item_by_item() {
    let of = |template: &str| template.parse::<Template>().unwrap().of_items();
    let body = of("{range .items[*]}{.metadata.name},{end}").unwrap();
    let mut out = String::new();
    for item in pods()["items"].as_array().unwrap() {
        body.render(item, &mut out).unwrap();
    }
    assert_eq!(out, "a,b,");
    assert!(of("{.items[*].metadata.name}").is_none() && of("{range .items[*]}{$.kind}{end}").is_none());
    assert!(of("{range .items[?(@.a==1)]}x{end}").is_none() && of("{range .items[*]}x{end}y").is_none());
    assert!(of("{range .items[*]}{.a[?(@.b==$.c)]}{end}").is_none());
}

#[test]
fn sort_paths_need_neither_braces_nor_dot() {
    for text in ["metadata.name", ".metadata.name", "{.metadata.name}"] {
        let path = Template::path(text).unwrap();
        assert_eq!(path.first(&pods()["items"][1]), Some(&json!("b")), "{text}");
    }
    assert!(Template::path("{.a}{.b}").is_err());
    for (text, at) in [("a b", 3), (".a b", 4), ("{.a b}", 5), ("{a b}", 4), ("é b", 3)] {
        assert_eq!(Template::path(text).unwrap_err().at, at, "{text}");
    }
}

#[test]
fn descent_is_bounded() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!({ "a": deep, "b": [1, 2, 3] });
    }
    let template: Template = "{..*..*..*..*..*..*}".parse().unwrap();
    assert!(template.render(&deep, &mut String::new()).is_err());
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]
    #[test]
    fn no_text_panics(text in "[{}a\\[\\]\\.\\*\\?\\(\\)@\\$=<>\"'\\\\ :,0-9-]{0,40}") {
        if let Ok(template) = text.parse::<Template>() {
            let _ = template.render(&pods(), &mut String::new());
        }
        let _ = Template::path(&text);
    }
}

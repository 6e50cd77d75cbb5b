//! Tests of content negotiation: the headers that clients send, and kube-apiserver's order of clauses.

use proptest::prelude::*;

use super::*;

const LIST: &[Form] = &[Form::Table, Form::MetadataList];
const GET: &[Form] = &[Form::Table, Form::Metadata];
const ROOT: &[Form] = &[Form::AggregatedDiscovery];

/// Returns the encoding and the form that are chosen for an `Accept` header if the answer is no watch and protobuf is
/// not offered. `None` if no clause is acceptable.
fn chosen(header: &str, offered: &[Form]) -> Option<(Media, Form)> {
    negotiate(Some(header), offered, Protobuf::Never, false).ok().map(|accepted| (accepted.media, accepted.form))
}

#[test]
fn answers_are_json_unless_something_else_is_asked_for() {
    let json = Ok(Accepted { media: Media::Json, form: Form::Object, pretty: false });
    assert_eq!(negotiate(None, LIST, Protobuf::Never, false), json);
    for header in ["", "*/*", "*", "application/*", "application/json", "text/html,*/*;q=0.8", "application/json;q=0"] {
        assert_eq!(negotiate(Some(header), LIST, Protobuf::Never, false), json, "{header}");
        assert_eq!(negotiate(Some(header), LIST, Protobuf::Never, true), json, "{header}");
    }
    assert_eq!(negotiate(Some("application/json;stream=watch"), LIST, Protobuf::Never, true), json);
}

#[test]
fn clauses_are_tried_by_quality_and_wildcards_last() {
    for (header, media) in [
        ("application/yaml", Media::Yaml),
        ("application/yaml, application/json", Media::Yaml),
        ("application/yaml;q=0.5, application/json", Media::Json),
        ("application/json;q=0.2,application/yaml;q=0.3", Media::Yaml),
        ("*/*,application/yaml;q=0.1", Media::Yaml),
        ("application/*;q=1,application/yaml;q=0.1", Media::Yaml),
        ("application/yaml;q=x,application/json;q=0.1", Media::Json),
        ("*/*;q=0.1,application/*;q=0.2,text/plain", Media::Json),
        ("application/yaml;q=,application/json;q=0.9", Media::Yaml),
        (" application/yaml ; q=0.5 , application/json ;q=0.4", Media::Yaml),
        ("application/yaml/x,application/json;q=0.1", Media::Json),
    ] {
        assert_eq!(chosen(header, &[]), Some((media, Form::Object)), "{header}");
    }
}

#[test]
fn forms_are_chosen_as_clients_ask_for_them() {
    // kubectl get, then the list and the watch of client-go's metadata client.
    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                           application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                            application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    assert_eq!(chosen(KUBECTL, LIST), Some((Media::Json, Form::Table)));
    assert_eq!(
        chosen("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", GET),
        Some((Media::Json, Form::Table))
    );
    assert_eq!(chosen("application/yaml;as=Table;v=v1;g=meta.k8s.io", GET), Some((Media::Yaml, Form::Table)));
    assert_eq!(chosen(METADATA_LIST, LIST), Some((Media::Json, Form::MetadataList)));
    assert_eq!(chosen(METADATA, GET), Some((Media::Json, Form::Metadata)));
    let watch = negotiate(Some(METADATA), &[Form::Table, Form::Metadata], Protobuf::Never, true).unwrap();
    assert_eq!((watch.form, watch.content_type()), (Form::Metadata, "application/json"));
}

#[test]
fn forms_that_are_not_offered_are_skipped() {
    let object = Some((Media::Json, Form::Object));
    for header in [
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=Table,application/json",
        "application/json;v=v1,application/json",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "application/json;sv=v2,application/json",
        "application/json;stream=foo,application/json",
        "application/yaml;stream=watch,application/json",
        "application/vnd.kubernetes.protobuf,application/json",
    ] {
        assert_eq!(chosen(header, LIST), object, "{header}");
    }
    assert_eq!(chosen("application/json;sv=v1;foo=bar", LIST), object);
}

#[test]
fn nothing_acceptable_is_406_with_the_media_types_that_are() {
    let refused = Status::not_acceptable(&["application/json", "application/yaml"]);
    for header in [
        "application/vnd.kubernetes.protobuf",
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Foo;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        "text/html",
        "application",
        "application/",
        "/",
        " ",
        ",",
    ] {
        assert_eq!(negotiate(Some(header), LIST, Protobuf::Never, false), Err(refused.clone()), "{header}");
        assert_eq!(negotiate(Some(header), LIST, Protobuf::Never, true), Err(refused.clone()), "{header}");
    }
    assert_eq!(refused.code, 406);
    assert_eq!(refused.message, "only the following media types are accepted: application/json, application/yaml");
}

#[test]
fn watch_in_yaml_is_406_even_if_json_would_follow() {
    let status = negotiate(Some("application/yaml, application/json"), LIST, Protobuf::Never, true).unwrap_err();
    assert_eq!(
        status.message,
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
}

#[test]
fn aggregated_discovery_is_chosen_wherever_it_stands() {
    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let aggregated = Some((Media::Json, Form::AggregatedDiscovery));
    assert_eq!(chosen(&format!("{V2},{V2BETA1},application/json"), ROOT), aggregated);
    assert_eq!(chosen(&format!("application/json,{V2};profile=nopeer"), ROOT), aggregated);
    assert_eq!(chosen(&format!("{V2BETA1},application/json"), ROOT), Some((Media::Json, Form::Object)));
    assert_eq!(chosen("application/json", ROOT), Some((Media::Json, Form::Object)));
    assert_eq!(chosen(V2BETA1, ROOT), None);
    assert_eq!(chosen(V2, &[]), None);
    let accepted = negotiate(Some(V2), ROOT, Protobuf::Never, false).unwrap();
    assert_eq!(accepted.content_type(), V2);
}

#[test]
fn pretty_is_a_parameter_of_the_media_type() {
    let is_pretty = |header: &str| negotiate(Some(header), LIST, Protobuf::Never, false).unwrap().pretty;
    assert!(is_pretty("application/json;pretty=1"));
    assert!(is_pretty("application/json; pretty = 1"));
    assert!(!is_pretty("application/json;pretty=true"));
    assert!(!is_pretty("application/json"));
}

#[test]
fn content_type_is_that_of_the_encoding() {
    let content_type = |media, form| Accepted { media, form, pretty: true }.content_type();
    assert_eq!(content_type(Media::Json, Form::Table), "application/json");
    assert_eq!(content_type(Media::Yaml, Form::Object), "application/yaml");
}

#[test]
fn clauses_beyond_the_limit_are_not_read() {
    let header = |clauses: usize| format!("{}application/json", "text/x,".repeat(clauses));
    assert!(chosen(&header(MAX_CLAUSES - 1), LIST).is_some());
    assert!(chosen(&header(MAX_CLAUSES), LIST).is_none());
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn random_headers_are_negotiated_without_panic(
        parts in prop::collection::vec(
            prop_oneof![
                3 => "application/json|application/yaml|application/vnd\\.kubernetes\\.protobuf|application/|\\*/\\*|text|\\*",
                3 => ";(q|as|v|g|stream|sv)=",
                3 => "0\\.[0-9]|NaN|-1|Table|v1|meta\\.k8s\\.io|watch",
                3 => ", ?",
                1 => r"\PC{0,4}",
            ],
            0..40,
        ),
        is_stream in any::<bool>(),
        protobuf in prop::sample::select(vec![Protobuf::Never, Protobuf::Metadata, Protobuf::Objects]),
    ) {
        match negotiate(Some(&parts.concat()), LIST, protobuf, is_stream) {
            Ok(accepted) => {
                prop_assert!(accepted.form == Form::Object || LIST.contains(&accepted.form));
                prop_assert!(protobuf != Protobuf::Never || accepted.media != Media::Protobuf);
                prop_assert!(!is_stream || accepted.media != Media::Yaml);
            }
            Err(status) => prop_assert_eq!(status.code, 406),
        }
    }
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[test]
fn protobuf_is_chosen_where_it_is_offered() {
    let media = |header: &str, protobuf, is_stream| {
        negotiate(Some(header), LIST, protobuf, is_stream).map(|accepted| (accepted.media, accepted.form))
    };
    let both = format!("{PROTOBUF},application/json");
    for is_stream in [false, true] {
        assert_eq!(media(&both, Protobuf::Objects, is_stream), Ok((Media::Protobuf, Form::Object)));
        assert_eq!(media(&both, Protobuf::Metadata, is_stream), Ok((Media::Json, Form::Object)));
        assert_eq!(media(PROTOBUF, Protobuf::Objects, is_stream), Ok((Media::Protobuf, Form::Object)));
        assert_eq!(media(PROTOBUF, Protobuf::Metadata, is_stream).unwrap_err().code, 406);
        let metadata = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
        for protobuf in [Protobuf::Metadata, Protobuf::Objects] {
            assert_eq!(media(&metadata, protobuf, is_stream), Ok((Media::Protobuf, Form::MetadataList)));
        }
        let table = format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,application/yaml;q=0.1,application/json");
        assert_eq!(media(&table, Protobuf::Objects, is_stream), Ok((Media::Json, Form::Object)));
        assert_eq!(media("*/*", Protobuf::Objects, is_stream), Ok((Media::Json, Form::Object)));
        let streams = format!("{PROTOBUF};stream=watch,application/json");
        assert_eq!(media(&streams, Protobuf::Objects, is_stream), Ok((Media::Protobuf, Form::Object)));
    }
    assert_eq!(
        media("application/*;q=0.1,application/yaml", Protobuf::Objects, false),
        Ok((Media::Yaml, Form::Object))
    );
    let refused = negotiate(Some("text/html"), LIST, Protobuf::Objects, false).unwrap_err();
    let texts = "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf";
    assert_eq!(refused.message, texts);
    let accepted = negotiate(Some(PROTOBUF), LIST, Protobuf::Objects, true).unwrap();
    assert_eq!(accepted.content_type(), PROTOBUF);
    assert_eq!(accepted.stream_content_type(), "application/vnd.kubernetes.protobuf;stream=watch");
    let json = negotiate(None, LIST, Protobuf::Objects, true).unwrap();
    assert_eq!(json.stream_content_type(), "application/json");
}

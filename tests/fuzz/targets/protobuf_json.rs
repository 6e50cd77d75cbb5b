//! Fuzz target: an object in JSON, encoded as Kubernetes protobuf and converted back.
//!
//! The first byte selects the kind. The rest is the JSON.

use informer_hub_protobuf::{Converter, Encoder, MessageId, Omit, Schema};
use serde::de::IgnoredAny;

use super::input::Input;

/// Kinds with members of all forms.
const KINDS: [(&str, &str); 8] = [
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("apps/v1", "StatefulSet"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("v1", "Event"),
];

/// Size limit of an object.
const LIMIT: usize = 1 << 20;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let (api_version, kind) = KINDS[usize::from(input.byte()) % KINDS.len()];
    let message = Schema::builtin().kind(api_version, kind).expect("it is built in");
    let (mut encoder, mut wire) = (Encoder::default(), Vec::new());
    let result = encoder.object(message, input.0, LIMIT, &mut wire);
    assert!(wire.len() <= LIMIT + 64 * 1024, "{} bytes", wire.len());
    if result.is_err() {
        return;
    }
    serde_json::from_slice::<IgnoredAny>(input.0).expect("only JSON is encoded");
    let json = converted(message, &wire);
    let mut again = Vec::new();
    encoder.object(message, &json, 2 * LIMIT, &mut again).expect("converted JSON is encoded");
    assert!(converted(message, &again) == json, "the object changes on its way through protobuf");
}

fn converted(message: MessageId, wire: &[u8]) -> Vec<u8> {
    let mut json = Vec::new();
    let result = Converter::default().object(message, None, wire, &Omit::default(), 64 * LIMIT, &mut json);
    result.expect("encoded protobuf is converted");
    json
}

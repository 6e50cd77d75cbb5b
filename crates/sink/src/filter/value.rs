//! Conversion of JSON values to CEL values, borrowed where possible.

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::Val;
use serde_json::Value;

/// Converts a JSON value to CEL. Integers become `int`, as in Kubernetes' CEL, or `uint` if they are too large.
pub(super) fn to_cel(json: &Value) -> Box<dyn Val + '_> {
    match json {
        Value::Null => Box::new(CelNull),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Box::new(CelInt::from(int)),
            (None, Some(uint)) => Box::new(CelUInt::from(uint)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(elements) => Box::new(CelList::from(elements.iter().map(to_cel).collect::<Vec<_>>())),
        Value::Object(members) => {
            let entry = |(name, value)| (CelMapKey::String(CelString::from(String::as_str(name))), to_cel(value));
            Box::new(CelMap::from(members.iter().map(entry).collect::<std::collections::HashMap<_, _>>()))
        }
    }
}

//! Choice and training of a resource's compression dictionary.

use std::sync::Arc;

use super::uncompressed::Uncompressed;
use informer_hub_dictionaries::{Encoding, Kind};
use informer_hub_types::{Dictionary, StoredObject};

/// Maximum bytes of one training sample.
const SAMPLE_BYTES: usize = 64 * 1024;

/// Returns whether `dictionary` is one of the kind's built-in dictionaries.
pub(super) fn is_of(kind: &Kind, dictionary: &Dictionary) -> bool {
    [Encoding::Protobuf, Encoding::Json].iter().any(|encoding| kind.bytes(*encoding) == dictionary.bytes())
}

/// Returns the encoding (protobuf or JSON) in which most of these objects are stored. The objects almost always have
/// the same encoding.
pub(super) fn encoding_of(objects: &[Arc<StoredObject>]) -> Encoding {
    let protobuf = objects.iter().filter(|object| matches!(object.protobuf(), Ok(Some(_)))).count();
    if protobuf * 2 >= objects.len() { Encoding::Protobuf } else { Encoding::Json }
}

fn sample(object: &Arc<StoredObject>) -> Vec<u8> {
    let mut sample = object.sample();
    sample.truncate(SAMPLE_BYTES);
    sample
}

/// Returns whether a built-in dictionary is good enough for a first list: bodies packed with it take at most two fifths
/// of the bytes that they take without a dictionary. Always true if there are too few objects to train another one.
pub(super) fn suits(builtin: &Dictionary, objects: &[Arc<StoredObject>]) -> bool {
    if objects.len() < Uncompressed::MIN_SAMPLES {
        return true;
    }
    let step = objects.len().div_ceil(Uncompressed::MIN_SAMPLES);
    let samples: Vec<_> = objects.iter().step_by(step).map(sample).collect();
    let size = |dictionary: &Dictionary| dictionary.packed_size(samples.iter().map(Vec::as_slice));
    size(builtin) * 5 <= size(&Dictionary::none()) * 2
}

/// Trains a dictionary on seven eighths of the objects. Returns it if the other objects take over a fifth more bytes
/// with the `present` dictionary than with the new one.
pub(super) fn train_better(present: &Dictionary, objects: &[Arc<StoredObject>]) -> Option<Arc<Dictionary>> {
    let is_held_out = |at: usize| at % 8 == 7;
    let some = |held_out: bool| {
        let chosen = objects.iter().enumerate().filter(move |(at, _)| is_held_out(*at) == held_out);
        chosen.map(|(_, object)| Arc::clone(object)).collect::<Vec<_>>()
    };
    let trained = train(&some(false))?;
    let held_out: Vec<_> = some(true).iter().map(sample).collect();
    let size = |dictionary: &Dictionary| dictionary.packed_size(held_out.iter().map(Vec::as_slice));
    (size(present) * 5 > size(&trained) * 6).then_some(trained)
}

pub(super) fn train(objects: &[Arc<StoredObject>]) -> Option<Arc<Dictionary>> {
    if objects.len() < Uncompressed::MIN_SAMPLES {
        return None;
    }
    let step = objects.len().div_ceil(Uncompressed::SAMPLES).max(1);
    // Every fourth sample first, then the others: if samples are large, training uses only the first ones, which are
    // then still spread over all objects.
    let spread = (0..4).flat_map(|first| objects.iter().step_by(step).skip(first).step_by(4));
    match Dictionary::train(spread.map(sample)) {
        Ok(dictionary) => Some(Arc::new(dictionary)),
        Err(error) => {
            tracing::debug!(%error, "cannot train a compression dictionary; compressing objects without a new one");
            None
        }
    }
}

//! Objects whose protobuf and JSON apimachinery wrote.

/// One object in a hundred of `protobuf objects --small` (tests/testbed).
const OBJECTS: &[u8] = include_bytes!("../objects.bin");

/// Returns the protobuf and the JSON of each object.
pub(crate) fn objects() -> Vec<(&'static [u8], &'static [u8])> {
    let (mut rest, mut objects) = (OBJECTS, Vec::new());
    let mut record = || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (record, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        rest = tail;
        Some(record)
    };
    while let Some(wire) = record() {
        objects.push((wire, record().unwrap()));
    }
    objects
}

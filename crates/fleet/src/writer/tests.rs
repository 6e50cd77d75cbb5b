//! Tests of single cases of the writer. `simulation_tests` tests combinations of such cases.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use informer_hub_types::{ClusterName, Gvr, ObjectKey, ResourceVersion, Uid};

use super::{FenceReason, OfferError, Writer, WriterEvent, WriterParams};
use crate::entry::{Entry, Header, unpack};
use crate::log::{Answer, Request, RequestId};
use crate::partition::Partition;
use crate::record::Record;

const T0: Duration = Duration::from_secs(100);

fn partition(cluster: &str) -> Partition {
    Partition { cluster: ClusterName::new(cluster).unwrap(), resource: Gvr::new("", "v1", "pods"), selection: 0 }
}

fn put(name: &str, size: usize) -> Record {
    Record::Put {
        key: ObjectKey::new("ns", name),
        uid: Uid::new("u"),
        version: ResourceVersion::new("1"),
        body: vec![b'x'; size].into(),
    }
}

fn params() -> WriterParams {
    WriterParams { collector: "a".into(), compress: false, ..WriterParams::default() }
}

/// Polls the writer, and returns the only request that it has to send.
fn only(writer: &mut Writer, now: Duration) -> (RequestId, Request) {
    let mut requests = writer.poll(now);
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

fn append(writer: &mut Writer, now: Duration) -> (RequestId, u64, Header, Bytes) {
    match only(writer, now) {
        (id, Request::Append { expected, payload, .. }) => {
            let (header, body) = Header::decode(&payload).unwrap();
            (id, expected, header, body)
        }
        other => panic!("{other:?}"),
    }
}

fn last(epoch: u64, number: u64, sequence: u64) -> Answer {
    let payload = Header { epoch, number, previous: 0, continues: false }.encode(&[0]);
    Answer::Last(Some(Entry { partition: partition("c"), sequence, payload }))
}

/// Returns a writer that has claimed a partition under epoch 5. The entry of the claim has sequence 10.
fn claimed(params: WriterParams) -> (Writer, Partition) {
    let mut writer = Writer::new(params);
    assert!(writer.open(partition("c"), 5));
    let (id, request) = only(&mut writer, T0);
    assert_eq!(request, Request::ReadLast { partition: partition("c") });
    writer.answer(id, last(4, 7, 9), T0);
    let (id, expected, header, body) = append(&mut writer, T0);
    assert_eq!((expected, header.previous, header.epoch, header.number), (9, 9, 5, 0));
    assert_eq!(unpack(&body).unwrap(), [Record::Owner { collector: "a".into() }]);
    writer.answer(id, Answer::Stored(10), T0);
    assert_eq!(writer.take_events(), [WriterEvent::Claimed { partition: partition("c"), sequence: 10 }]);
    (writer, partition("c"))
}

#[test]
fn claim_fails_if_the_last_epoch_is_not_older() {
    for epoch in [5, 6] {
        let mut writer = Writer::new(params());
        writer.open(partition("c"), 5);
        let (id, _) = only(&mut writer, T0);
        writer.answer(id, last(epoch, 0, 9), T0);
        let reason = FenceReason::Epoch(epoch);
        assert_eq!(writer.take_events(), [WriterEvent::Fenced { partition: partition("c"), reason }]);
        assert_eq!(writer.offer(&partition("c"), &put("a", 1)), Err(OfferError::NotOpen));
    }
}

#[test]
fn backlog_is_one_batch_and_one_append_is_in_flight() {
    let (mut writer, c) = claimed(params());
    writer.offer(&c, &put("a", 1)).unwrap();
    let (first, expected, header, _) = append(&mut writer, T0);
    assert_eq!((expected, header.previous, header.number), (10, 10, 1));
    for name in ["b", "c", "d"] {
        writer.offer(&c, &put(name, 1)).unwrap();
    }
    assert!(writer.poll(T0).is_empty());
    writer.answer(first, Answer::Stored(20), T0);
    let (second, expected, header, body) = append(&mut writer, T0);
    assert_eq!((expected, header.previous, header.number), (20, 20, 2));
    assert_eq!(unpack(&body).unwrap(), [put("b", 1), put("c", 1), put("d", 1)]);
    writer.answer(second, Answer::Stored(21), T0);
    let stored = |records, sequence| WriterEvent::Stored { partition: partition("c"), records, sequence };
    assert_eq!(writer.take_events(), [stored(1, 20), stored(3, 21)]);
    assert_eq!(writer.queued_bytes(), 0);
}

#[test]
fn lost_answer_is_found_by_reading_the_last_entry() {
    let (mut writer, c) = claimed(params());
    writer.offer(&c, &put("a", 1)).unwrap();
    let (lost, ..) = append(&mut writer, T0);
    let late = T0 + writer.params.answer_timeout;
    assert!(writer.poll(late).is_empty(), "it waits before it repeats");
    let retry = writer.next_deadline().unwrap();
    assert!(retry > late && retry <= late + writer.params.first_delay);
    let (again, expected, header, _) = append(&mut writer, retry);
    assert_eq!((expected, header.number), (10, 1));
    writer.answer(lost, Answer::Stored(11), retry);
    assert_eq!(writer.take_events(), [], "an answer to a request that was given up is ignored");
    writer.answer(again, Answer::Refused, retry);
    let (read, request) = only(&mut writer, retry);
    assert_eq!(request, Request::ReadLast { partition: c.clone() });
    writer.answer(read, last(5, 1, 11), retry);
    assert_eq!(writer.take_events(), [WriterEvent::Stored { partition: c, records: 1, sequence: 11 }]);
}

#[test]
fn refused_writer_is_fenced_and_drops_its_queue() {
    let cases = [
        (last(6, 0, 11), FenceReason::Epoch(6)),
        (Answer::Last(None), FenceReason::LogChanged),
        (last(4, 7, 9), FenceReason::LogChanged),
        (last(5, 9, 30), FenceReason::LogChanged),
    ];
    for (answer, reason) in cases {
        let (mut writer, c) = claimed(params());
        writer.offer(&c, &put("a", 100)).unwrap();
        let (id, ..) = append(&mut writer, T0);
        writer.offer(&c, &put("b", 100)).unwrap();
        writer.answer(id, Answer::Refused, T0);
        let (id, _) = only(&mut writer, T0);
        writer.answer(id, answer, T0);
        assert_eq!(writer.take_events(), [WriterEvent::Fenced { partition: c.clone(), reason }]);
        assert_eq!((writer.queued_bytes(), writer.next_deadline()), (0, None));
        assert!(writer.open(c, 7), "it can be claimed again");
    }
}

#[test]
fn claim_follows_an_old_owner_that_still_appends() {
    let mut writer = Writer::new(params());
    writer.open(partition("c"), 5);
    let (id, _) = only(&mut writer, T0);
    writer.answer(id, last(4, 7, 9), T0);
    let (id, ..) = append(&mut writer, T0);
    writer.answer(id, Answer::Refused, T0);
    let (id, _) = only(&mut writer, T0);
    writer.answer(id, last(4, 8, 12), T0);
    let (id, expected, header, _) = append(&mut writer, T0);
    assert_eq!((expected, header.previous, header.number), (12, 12, 0));
    writer.answer(id, Answer::Stored(13), T0);
    assert_eq!(writer.take_events(), [WriterEvent::Claimed { partition: partition("c"), sequence: 13 }]);
}

#[test]
fn failures_back_off_and_the_full_queue_refuses_records() {
    let (mut writer, c) = claimed(WriterParams { queue_bytes: 500, ..params() });
    let mut accepted = 0;
    while writer.offer(&c, &put("a", 80)).is_ok() {
        accepted += 1;
    }
    assert_eq!(writer.offer(&c, &put("a", 80)), Err(OfferError::Full));
    assert!((4..6).contains(&accepted), "{accepted}");
    let (mut now, mut delays) = (T0, Vec::new());
    for _ in 0..12 {
        let (id, ..) = append(&mut writer, now);
        writer.answer(id, Answer::Failed("down".into()), now);
        assert_eq!(writer.problem(&c), Some("down"));
        delays.push(writer.next_deadline().unwrap().saturating_sub(now));
        now = writer.next_deadline().unwrap();
    }
    let (first, longest) = (writer.params.first_delay, writer.params.longest_delay);
    assert!(delays[0] >= first / 2 && delays[0] <= first && delays[11] >= longest / 2 && delays[11] <= longest);
    assert_eq!(writer.offer(&c, &put("a", 80)), Err(OfferError::Full));
    let (id, ..) = append(&mut writer, now);
    writer.answer(id, Answer::Stored(11), now);
    let records = accepted;
    assert_eq!(writer.take_events(), [WriterEvent::Stored { partition: c.clone(), records, sequence: 11 }]);
    assert_eq!(writer.problem(&c), None);
    assert_eq!(writer.offer(&c, &put("a", 80)), Ok(()));
}

#[test]
fn object_larger_than_a_message_is_divided_and_joined() {
    let (mut writer, c) = claimed(WriterParams { message_bytes: 1000, queue_bytes: 100, ..params() });
    let large = put("large", 2500);
    writer.offer(&c, &large).unwrap();
    assert_eq!(writer.offer(&c, &put("a", 1)), Err(OfferError::Full), "one record may exceed the queue");
    let (mut body, mut sequence) = (BytesMut::new(), 10);
    loop {
        let (id, expected, header, part) = append(&mut writer, T0);
        assert_eq!((expected, header.previous), (sequence, sequence));
        body.extend_from_slice(&part);
        sequence += 1;
        writer.answer(id, Answer::Stored(sequence), T0);
        if !header.continues {
            break;
        }
        assert_eq!(writer.take_events(), []);
    }
    assert_eq!(sequence, 13);
    assert_eq!(unpack(&body.freeze()).unwrap(), [large]);
    assert_eq!(writer.take_events(), [WriterEvent::Stored { partition: c, records: 1, sequence: 13 }]);
}

#[test]
fn window_bounds_requests_over_partitions() {
    let mut writer = Writer::new(WriterParams { window: 2, ..params() });
    for cluster in ["c", "d", "e"] {
        writer.open(partition(cluster), 5);
    }
    let requests = writer.poll(T0);
    assert_eq!(requests.len(), 2);
    assert!(writer.poll(T0).is_empty());
    writer.answer(requests[0].0, Answer::Failed("down".into()), T0);
    assert_eq!(only(&mut writer, T0).1, Request::ReadLast { partition: partition("e") });
}

#[test]
fn closed_partition_is_stored_first() {
    let (mut writer, c) = claimed(params());
    writer.offer(&c, &put("a", 1)).unwrap();
    writer.close(&c);
    assert_eq!(writer.offer(&c, &put("b", 1)), Err(OfferError::NotOpen));
    let (id, ..) = append(&mut writer, T0);
    writer.answer(id, Answer::Stored(11), T0);
    assert!(writer.poll(T0).is_empty());
    let closed = WriterEvent::Closed { partition: c.clone(), sequence: 11 };
    assert_eq!(writer.take_events()[1], closed);
    assert!(writer.open(c, 6));
}

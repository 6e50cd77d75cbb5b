//! Tests of parallel pieces of work.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ms;
use crate::parallelize_until;
use informer_hub_types::clock;

fn workers(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_piece_runs_once_within_the_worker_limit() {
    // Like client-go's `TestParallelizeUntil`.
    for (pieces, number) in [(0, 3), (1, 10), (999, 10), (1000, 1), (7, 7)] {
        let seen = RefCell::new(vec![0; pieces]);
        let busy = RefCell::new((0, 0));
        let start = clock::now();
        let done = parallelize_until(&CancellationToken::new(), workers(number), pieces, |piece| {
            let (seen, busy) = (&seen, &busy);
            async move {
                let now = busy.borrow().0 + 1;
                let most = busy.borrow().1.max(now);
                *busy.borrow_mut() = (now, most);
                tokio::time::sleep(ms(10)).await;
                busy.borrow_mut().0 -= 1;
                seen.borrow_mut()[piece] += 1;
            }
        })
        .await;
        assert_eq!(done, pieces);
        assert_eq!(*seen.borrow(), vec![1; pieces]);
        assert_eq!(busy.borrow().1, number.min(pieces));
        let rounds = u32::try_from(pieces.div_ceil(number)).unwrap();
        let took = start.elapsed();
        assert!(took >= rounds * ms(10) && took < rounds * ms(12) + ms(1), "{pieces} by {number}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_completes_started_pieces_and_starts_no_more() {
    let stop = CancellationToken::new();
    let begun = RefCell::new(Vec::new());
    let work = parallelize_until(&stop, workers(2), 100, |piece| {
        begun.borrow_mut().push(piece);
        tokio::time::sleep(ms(10))
    });
    let cancel = async {
        tokio::time::sleep(ms(25)).await;
        stop.cancel();
    };
    let (done, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(60), work), cancel);
    assert_eq!(done.unwrap(), 6);
    assert_eq!(*begun.borrow(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn nothing_starts_if_already_cancelled() {
    let stop = CancellationToken::new();
    stop.cancel();
    let done = parallelize_until(&stop, workers(2), 10, |_| async { panic!("it began") }).await;
    assert_eq!(done, 0);
}

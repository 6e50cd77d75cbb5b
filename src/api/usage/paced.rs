//! Response body that is delayed to keep within the bandwidth of its reader.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;

use super::bandwidth::Bandwidth;

/// Time for which the hub itself has delayed an answer. It does not count as slow reading by the client.
#[derive(Clone, Debug, Default)]
pub(in crate::api) struct Delayed(Arc<AtomicU64>);

impl Delayed {
    /// Returns the total delay so far.
    pub(in crate::api) fn time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }

    fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Wraps a body so that its bytes count against the bandwidth of its reader. The parts of a stream are delayed. Any
/// other body is sent without delay, and its bytes delay later answers to the reader.
pub(in crate::api) fn paced(body: Body, bandwidth: Bandwidth, is_stream: bool) -> (Body, Delayed) {
    let delayed = Delayed::default();
    let paced = PacedBody { inner: body, bandwidth, is_stream, delayed: delayed.clone(), held: None };
    (Body::new(paced), delayed)
}

struct PacedBody {
    inner: Body,
    bandwidth: Bandwidth,
    is_stream: bool,
    delayed: Delayed,
    /// Part of the body that waits for its delay to end.
    held: Option<(Frame<Bytes>, Pin<Box<Sleep>>)>,
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.held.is_none() {
            let frame = match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let delay = if bytes == 0 { Duration::ZERO } else { self.bandwidth.take(bytes) };
            let delay = if self.is_stream { delay } else { Duration::ZERO };
            self.bandwidth.sent(bytes, delay);
            if delay.is_zero() {
                return Poll::Ready(Some(Ok(frame)));
            }
            self.delayed.add(delay);
            self.held = Some((frame, Box::pin(tokio::time::sleep(delay))));
        }
        if let Some((_, sleep)) = &mut self.held
            && sleep.as_mut().poll(context).is_pending()
        {
            return Poll::Pending;
        }
        Poll::Ready(self.held.take().map(|(frame, _)| Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().and_then(|(frame, _)| frame.data_ref()).map_or(0, |data| data.len() as u64);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt;
    use informer_hub_access::{Grants, Reader, ReaderLimits, ReaderOrigin, ReaderParts};

    use super::*;
    use crate::api::usage::ReaderUse;
    use informer_hub_types::clock;

    const RATE: usize = 64 << 10;

    fn bandwidth(usage: &Arc<ReaderUse>) -> Bandwidth {
        let reader = Reader::named("app", ReaderOrigin::Table("app".into()), Grants::default());
        let limits = ReaderLimits { bytes_per_second: Some(RATE), ..ReaderLimits::default() };
        usage.bandwidth(&Reader::new(ReaderParts { limits, ..reader.parts().clone() })).unwrap()
    }

    fn body(parts: usize, bytes: usize) -> Body {
        let part = Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes]));
        Body::from_stream(futures::stream::iter(vec![part; parts]))
    }

    #[tokio::test(start_paused = true)]
    async fn streams_of_a_reader_share_its_bandwidth() {
        let usage = Arc::<ReaderUse>::default();
        let began = clock::now();
        let read = |bandwidth| async {
            let (body, delayed) = paced(body(10, RATE), bandwidth, true);
            let mut parts = body.into_data_stream();
            let mut bytes = 0;
            while let Some(part) = parts.next().await {
                bytes += part.unwrap().len();
            }
            (bytes, delayed.time())
        };
        let (one, other) = futures::join!(read(bandwidth(&usage)), read(bandwidth(&usage)));
        assert_eq!((one.0, other.0), (10 * RATE, 10 * RATE));
        // Both together take 20 s at this rate, of which the burst saves 2 s. Neither waits until the other has ended.
        let took = clock::now().duration_since(began);
        assert!((17..=19).contains(&took.as_secs()), "{took:?}");
        assert!(one.1 > Duration::from_secs(12) && other.1 > Duration::from_secs(12), "{one:?} {other:?}");
        let counts = &usage.counts()["app"];
        assert_eq!((counts.sent, counts.delayed), (20 * RATE as u64, one.1 + other.1));
    }

    #[tokio::test(start_paused = true)]
    async fn answer_of_one_part_is_sent_at_once_and_later_requests_are_refused() {
        let usage = Arc::<ReaderUse>::default();
        let (body, _) = paced(Body::from(vec![b'x'; 10 * RATE]), bandwidth(&usage), false);
        assert_eq!(body.size_hint().exact(), Some(10 * RATE as u64));
        let began = clock::now();
        assert_eq!(axum::body::to_bytes(body, usize::MAX).await.unwrap().len(), 10 * RATE);
        assert_eq!(clock::now(), began);
        assert_eq!(bandwidth(&usage).admit(), Err(9));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(bandwidth(&usage).admit(), Ok(()));
    }
}

//! Tests of the rate limiters: client-go's with its numbers, and the additional ones.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::ms;
use crate::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter,
    PerLaneRateLimiter, RateLimiter, WithJitterRateLimiter, WithMaxWaitRateLimiter, default_controller_rate_limiter,
};
use informer_hub_testing::properties;
use informer_hub_types::clock::{self, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn ask<T>(limiter: &mut impl RateLimiter<T>, item: &T, times: usize) -> Vec<Duration> {
    let now = clock::now();
    (0..times).map(|_| limiter.when(item, now)).collect()
}

#[test]
fn failures_double_the_delay_of_their_key_only() {
    // Like client-go's `TestItemExponentialFailureRateLimiter`.
    let mut limiter = ItemExponentialFailureRateLimiter::new(ms(1), SECOND);
    assert_eq!(ask(&mut limiter, &"one", 5), [1, 2, 4, 8, 16].map(ms));
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(ask(&mut limiter, &"two", 2), [1, 2].map(ms));
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(ask(&mut limiter, &"one", 1), [ms(1)]);
    assert_eq!(ask(&mut limiter, &"two", 10).last(), Some(&SECOND), "the maximum delay");
}

#[test]
fn backoff_does_not_overflow() {
    // Like client-go's `TestItemExponentialFailureRateLimiterOverFlow`.
    let mut limiter = ItemExponentialFailureRateLimiter::new(ms(1), 1000 * SECOND);
    assert_eq!(ask(&mut limiter, &"one", 6).last(), Some(&ms(32)));
    assert_eq!(ask(&mut limiter, &"overflow", 1001).last(), Some(&(1000 * SECOND)));
    let mut limiter = ItemExponentialFailureRateLimiter::new(60 * SECOND, 3_600_000 * SECOND);
    assert_eq!(ask(&mut limiter, &"two", 3).last(), Some(&(240 * SECOND)));
    assert_eq!(ask(&mut limiter, &"overflow", 1001).last(), Some(&(3_600_000 * SECOND)));
    let mut limiter = ItemExponentialFailureRateLimiter::new(Duration::from_nanos(1), Duration::MAX);
    let delays = ask(&mut limiter, &"one", 1001);
    assert!(delays.windows(2).all(|two| two[0] <= two[1]), "delays never decrease");
    assert_eq!(delays[40], Duration::from_nanos(1 << 40));
    assert_eq!(delays.last(), Some(&Duration::MAX));
}

#[test]
fn fast_slow_limiter_slows_down_after_the_fast_attempts() {
    // Like client-go's `TestItemFastSlowRateLimiter`.
    let mut limiter = ItemFastSlowRateLimiter::new(ms(5), 10 * SECOND, 3);
    assert_eq!(ask(&mut limiter, &"one", 5), [ms(5), ms(5), ms(5), 10 * SECOND, 10 * SECOND]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(ask(&mut limiter, &"two", 2), [ms(5), ms(5)]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(ask(&mut limiter, &"one", 1), [ms(5)]);
}

#[test]
fn max_of_limiter_returns_the_longest_delay() {
    // Like client-go's `TestMaxOfRateLimiter`.
    let mut limiter = MaxOfRateLimiter::new(vec![
        Box::new(ItemFastSlowRateLimiter::new(ms(5), 3 * SECOND, 3)),
        Box::new(ItemExponentialFailureRateLimiter::new(ms(1), SECOND)),
    ]);
    assert_eq!(ask(&mut limiter, &"one", 5), [ms(5), ms(5), ms(5), 3 * SECOND, 3 * SECOND]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(ask(&mut limiter, &"two", 2), [ms(5), ms(5)]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(ask(&mut limiter, &"one", 1), [ms(5)]);
}

/// Limiter with short delays first, then long ones, for all keys together.
struct Step {
    asked: u32,
}

impl RateLimiter<u32> for Step {
    fn when(&mut self, _: &u32, _: Instant) -> Duration {
        self.asked += 1;
        if self.asked <= 100 { ms(5) } else { 1000 * SECOND }
    }

    fn forget(&mut self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }
}

#[test]
fn max_wait_limiter_caps_the_delay() {
    // Like client-go's `TestWithMaxWaitRateLimiter`.
    let mut limiter = WithMaxWaitRateLimiter::new(Step { asked: 0 }, 500 * SECOND);
    let now = clock::now();
    for key in 0..100 {
        assert_eq!(limiter.when(&key, now), ms(5));
    }
    for key in 100..200 {
        assert_eq!(limiter.when(&key, now), 500 * SECOND);
    }
}

#[test]
fn bucket_gives_its_burst_then_reserves_and_refills() {
    let mut bucket = BucketRateLimiter::new(NonZeroU32::new(10).unwrap(), 3);
    let now = clock::now();
    let delays: Vec<_> = (0..6).map(|_| bucket.reserve(now)).collect();
    assert_eq!(delays, [0, 0, 0, 100, 200, 300].map(ms));
    assert_eq!(bucket.reserve(now + ms(300)), ms(100), "the tokens since then are reserved");
    assert_eq!(bucket.reserve(now + ms(500)), Duration::ZERO);
    let later = now + 1000 * SECOND;
    let delays: Vec<_> = (0..4).map(|_| bucket.reserve(later)).collect();
    assert_eq!(delays, [0, 0, 0, 100].map(ms), "never more than the burst");
}

#[test]
fn default_limiter_matches_client_go() {
    let now = clock::now();
    let mut limiter = default_controller_rate_limiter();
    let first: Vec<_> = (0..4).map(|_| limiter.when(&0, now)).collect();
    assert_eq!(first, [5, 10, 20, 40].map(ms));
    // 96 tokens of the burst are left. After them, there is one every 100 ms.
    let others: Vec<_> = (1..=98).map(|key| limiter.when(&key, now)).collect();
    assert!(others[..96].iter().all(|delay| *delay == ms(5)));
    assert_eq!(others[96..], [100, 200].map(ms));
    let mut limiter = default_controller_rate_limiter();
    let spread: Vec<_> = (0..30).map(|n| limiter.when(&0, now + n * 1000 * SECOND)).collect();
    assert_eq!(spread[17], ms(5 << 17));
    assert_eq!(spread[29], 1000 * SECOND);
}

#[test]
fn failures_of_one_lane_leave_the_tokens_of_others() {
    let lane = |key: &(u8, u32)| key.0;
    let mut limiter = PerLaneRateLimiter::new(lane, default_controller_rate_limiter);
    let now = clock::now();
    let flood: Vec<_> = (0..1000).map(|key| limiter.when(&(1, key), now)).collect();
    assert_eq!(flood[999], ms(90_000));
    assert_eq!(limiter.when(&(2, 0), now), ms(5));
    assert_eq!((limiter.num_requeues(&(1, 0)), limiter.num_requeues(&(3, 0))), (1, 0));
    limiter.forget(&(1, 0));
    limiter.forget(&(3, 0));
    assert_eq!((limiter.num_requeues(&(1, 0)), limiter.num_requeues(&(2, 0))), (0, 1));
}

#[test]
fn lane_limiter_is_dropped_only_when_idle() {
    let mut limiter = PerLaneRateLimiter::new(|key: &(u32, u32)| key.0, default_controller_rate_limiter);
    let start = clock::now();
    for lane in 0..1000 {
        let now = start + lane * SECOND;
        limiter.when(&(lane, 0), now);
        // Every hundredth lane keeps a counted failure, so its limiter stays busy.
        if lane % 100 != 0 {
            limiter.forget(&(lane, 0));
        }
        let lanes = limiter.lanes();
        assert!(lanes <= 36, "{lanes} at {lane}");
    }
    let counted = (0..1000).filter(|lane| limiter.num_requeues(&(*lane, 0)) == 1).count();
    assert_eq!(counted, 10);
    // No failures are counted here, but tokens are missing.
    let now = start + 1000 * SECOND;
    (0..200).for_each(|key| {
        limiter.when(&(5000, key), now);
        limiter.forget(&(5000, key));
    });
    (6000..6100).for_each(|lane| {
        limiter.when(&(lane, 0), now);
    });
    assert!(limiter.when(&(5000, 0), now) > SECOND);
}

#[test]
fn jitter_lengthens_by_at_most_its_share_and_varies() {
    let base = || ItemFastSlowRateLimiter::new(SECOND, SECOND, 0);
    let mut limiter = WithJitterRateLimiter::with_random(base(), 0.5, StdRng::seed_from_u64(1));
    let delays = ask(&mut limiter, &"one", 200);
    assert!(delays.iter().all(|delay| (SECOND..ms(1500)).contains(delay)), "{delays:?}");
    let spread = delays.iter().max().unwrap().saturating_sub(*delays.iter().min().unwrap());
    assert!(spread > ms(400), "{spread:?}");
    for share in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut limiter = WithJitterRateLimiter::new(base(), share);
        assert_eq!(ask(&mut limiter, &"one", 3), [SECOND; 3], "{share}");
    }
}

proptest! {
    #![proptest_config(properties(256))]

    #[test]
    fn bucket_never_exceeds_its_rate_and_burst(
        interval in 1_u64..200,
        burst in 0_u32..20,
        steps in prop::collection::vec(0_u64..300, 1..200),
    ) {
        let mut bucket = BucketRateLimiter::every(ms(interval), burst);
        let start = clock::now();
        let mut now = start;
        let mut passed = Vec::new();
        for step in steps {
            now += ms(step);
            passed.push(now + bucket.reserve(now));
        }
        prop_assert!(passed.is_sorted(), "reservations are in order");
        for (at, from) in passed.iter().enumerate() {
            for (more, to) in passed[at..].iter().enumerate() {
                let tokens = u128::from(burst.max(1)) + (*to - *from).as_millis() / u128::from(interval);
                prop_assert!((more as u128) < tokens, "{} within {:?}", more + 1, *to - *from);
            }
        }
    }
}

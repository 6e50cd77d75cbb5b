//! Max-min fair shares.

/// Returns the largest share for which all demands, each limited to this share, fit into `capacity` (max-min fairness).
/// If all demands fit, returns the largest demand plus the capacity that is left.
#[must_use]
pub fn level(demands: impl IntoIterator<Item = u64>, capacity: u64) -> u64 {
    let mut demands: Vec<_> = demands.into_iter().collect();
    demands.sort_unstable();
    let (mut left, mut count) = (capacity, demands.len() as u64);
    for demand in &demands {
        let equal = left / count;
        if *demand > equal {
            return equal;
        }
        left -= demand;
        count -= 1;
    }
    demands.last().copied().unwrap_or_default().saturating_add(left)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use informer_hub_testing::properties;

    #[test]
    fn level_grants_small_demands_and_splits_the_rest_equally() {
        assert_eq!(level([10, 20, 300, 400], 230), 100);
        assert_eq!(level([50, 50], 100), 50);
        assert_eq!(level([10, 20], 100), 90);
        assert_eq!(level([500], 100), 100);
        assert_eq!(level([], 100), 100);
        assert_eq!(level([1, 2], 0), 0);
    }

    proptest! {
        #![proptest_config(properties(512))]

        #[test]
        fn level_spends_the_capacity_and_no_more(
            demands in prop::collection::vec(0_u64..1_000, 1..20),
            capacity in 0_u64..8_000,
        ) {
            let level = level(demands.iter().copied(), capacity);
            let spent: u64 = demands.iter().map(|demand| level.min(*demand)).sum();
            prop_assert!(spent <= capacity);
            let demanded: u64 = demands.iter().sum();
            // Integer division loses less than one byte per demand.
            prop_assert!(spent + demands.len() as u64 > capacity.min(demanded));
            let equal = capacity / demands.len() as u64;
            prop_assert!(level >= equal, "the level is at least an equal share");
        }
    }
}

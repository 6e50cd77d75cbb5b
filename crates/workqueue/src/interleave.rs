//! Preemption points, at which a test can switch threads to try every interleaving.

/// Marks a preemption point. Costs nothing outside tests.
#[inline]
pub(super) fn point() {
    #[cfg(test)]
    super::tests::interleave::point();
}

//! The places at which threads can get in each other's way, so that a test can try every order of them.

/// Another thread may go on here. Costs nothing outside tests.
#[inline]
pub(super) fn point() {
    #[cfg(test)]
    super::tests::interleave::point();
}

//! Seeded random numbers, and texts that Kubernetes generates: hashes, suffixes, UIDs, addresses, times.

/// Seeded random number generator (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.index(from.len())]
    }

    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("it is below a usize")
    }

    /// Returns the text of `if_so` in `percent` of 100 cases, else an empty text.
    pub(crate) fn maybe(&mut self, percent: u64, if_so: impl FnOnce(&mut Self) -> String) -> String {
        if self.chance(percent) { if_so(self) } else { String::new() }
    }

    fn text(&mut self, alphabet: &[u8], count: usize) -> String {
        (0..count).map(|_| char::from(alphabet[self.index(alphabet.len())])).collect()
    }

    pub(crate) fn hex(&mut self, count: usize) -> String {
        self.text(b"0123456789abcdef", count)
    }

    /// Returns a suffix of the alphabet that Kubernetes uses for generated names.
    pub(crate) fn suffix(&mut self, count: usize) -> String {
        self.text(b"bcdfghjklmnpqrstvwxz2456789", count)
    }

    pub(crate) fn uid(&mut self) -> String {
        let variant = self.pick(&["8", "9", "a", "b"]);
        [self.hex(8), self.hex(4), format!("4{}", self.hex(3)), format!("{variant}{}", self.hex(3)), self.hex(12)]
            .join("-")
    }

    pub(crate) fn time(&mut self) -> String {
        let [year, month, day] = [2024 + self.below(3), 1 + self.below(12), 1 + self.below(28)];
        let [hour, minute, second] = [self.below(24), self.below(60), self.below(60)];
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    pub(crate) fn address(&mut self) -> String {
        let network = self.pick(&["10.0", "10.42", "10.244", "172.16", "192.168"]);
        format!("{network}.{}.{}", self.below(256), 1 + self.below(254))
    }

    pub(crate) fn node(&mut self) -> String {
        match self.below(4) {
            0 => {
                format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", self.below(256), self.below(256), self.below(256))
            }
            1 => format!("gke-prod-default-pool-{}-{}", self.hex(8), self.suffix(4)),
            2 => format!("aks-nodepool1-{}-vmss{:06}", self.below(90_000_000), self.below(100)),
            _ => format!("worker-{}", self.below(200)),
        }
    }
}

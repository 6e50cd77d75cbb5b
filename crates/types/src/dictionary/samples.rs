//! Samples for training a dictionary, one after the other in one buffer.

/// Concatenated samples, with the offset at which each ends.
#[derive(Debug)]
pub(super) struct Samples {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Samples {
    /// Maximum bytes of all samples: 16 times the largest dictionary. With twice as many, dictionaries are no better.
    pub(super) const BYTES: usize = 1024 * 1024;

    /// Collects samples up to [`Self::BYTES`] in total. The last sample may be cut off.
    pub(super) fn collect<S: AsRef<[u8]>>(samples: impl IntoIterator<Item = S>) -> Self {
        // A buffer that grows on demand would leave a third of its capacity unused.
        let (mut bytes, mut ends) = (Vec::with_capacity(Self::BYTES), Vec::new());
        for sample in samples {
            let sample = sample.as_ref();
            // An empty sample would have the same offset as the next one.
            if sample.is_empty() {
                continue;
            }
            let space = Self::BYTES - bytes.len();
            bytes.extend_from_slice(&sample[..sample.len().min(space)]);
            ends.push(bytes.len());
            if bytes.len() == Self::BYTES {
                break;
            }
        }
        Self { bytes, ends }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns each sample with its offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| (start, &self.bytes[start..*end]))
    }
}

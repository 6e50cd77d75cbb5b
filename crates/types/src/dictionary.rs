//! Compression of object bodies: zstd with a dictionary trained on the resource's own objects.
//!
//! Objects of one resource resemble each other more than the parts of one object do. With a dictionary of a few
//! objects' text, an encoded 6 KB pod takes about 450 bytes; plain zstd takes 2.1 KB. Decompression contexts are kept
//! per thread. A dictionary is shared by all bodies compressed with it.

use std::cell::RefCell;
use std::fmt;

use zstd::zstd_safe::{CCtx, CParameter, DCtx, DDict, compress_bound, get_error_name};

/// Trained dictionary, digested once for decompression. Each compressor digests it anew, since the compression
/// digest takes several times its size and is needed for milliseconds only.
pub struct Dictionary {
    raw: Box<[u8]>,
    decompress: DDict<'static>,
}

/// Training failed: the samples are too few, too small or all alike.
#[derive(Debug, thiserror::Error)]
#[error("cannot train a dictionary from {samples} samples")]
pub struct TrainError {
    samples: usize,
    #[source]
    source: std::io::Error,
}

/// Stored bytes cannot be decompressed: a bug in this program or faulty memory, never bad input.
#[derive(Debug, thiserror::Error)]
#[error("cannot decompress stored bytes: {0}")]
pub struct CodecError(pub(super) &'static str);

/// Magic number of every zstd frame, which is not stored.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Dictionary {
    /// Maximum dictionary size in bytes. Twice as much saves one per cent, half as much costs five.
    pub const SIZE: usize = 64 * 1024;

    /// zstd level. With a dictionary, level 3 saves seven per cent over level 1 for a third more time. Higher levels
    /// save less for more time.
    const LEVEL: i32 = 3;

    /// Bytes of samples used for training, about fifty times the dictionary. zstd's manual advises a hundred times, but
    /// the memory that training takes adds to the peak of a first list.
    const SAMPLES: usize = 3 * 1024 * 1024;

    /// Trains a dictionary on the first 3 MiB of samples. Its size is a tenth of theirs, at most [`Self::SIZE`].
    ///
    /// Costs about 0.1 ms per sample, and 12 MB while it runs: keep it off the actors' threads.
    ///
    /// # Errors
    /// [`TrainError`] if the samples have too little in common.
    pub fn train<S: AsRef<[u8]>>(samples: impl IntoIterator<Item = S>) -> Result<Self, TrainError> {
        Self::train_to(samples, Self::SIZE)
    }

    /// Trains a dictionary of at most `size` bytes, as [`Self::train`].
    ///
    /// # Errors
    /// As [`Self::train`].
    pub fn train_to<S: AsRef<[u8]>>(samples: impl IntoIterator<Item = S>, size: usize) -> Result<Self, TrainError> {
        let (mut bytes, mut sizes) = (Vec::new(), Vec::new());
        for sample in samples {
            bytes.extend_from_slice(sample.as_ref());
            sizes.push(sample.as_ref().len());
            if bytes.len() >= Self::SAMPLES {
                break;
            }
        }
        let size = size.min((bytes.len() / 10).max(1024));
        let raw = zstd::dict::from_continuous(&bytes, &sizes, size)
            .map_err(|source| TrainError { samples: sizes.len(), source })?;
        Ok(Self::of(raw))
    }

    /// Returns the empty dictionary: plain zstd, for objects that are too few or too different for training.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// Restores a dictionary from its saved bytes; `None` if zstd rejects them.
    #[must_use]
    pub fn restore(raw: Vec<u8>) -> Option<Self> {
        Some(Self { decompress: DDict::try_create(&raw)?, raw: raw.into() })
    }

    /// Returns the raw bytes, for saving.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.raw
    }

    /// Returns the compressed bytes of samples together, to compare dictionaries.
    #[must_use]
    pub fn packed_size<'s>(&self, samples: impl IntoIterator<Item = &'s [u8]>) -> usize {
        let (mut compressor, mut frame) = (Compressor::new(self), Vec::new());
        let packed = |sample: &[u8]| compressor.compress(sample, &mut frame).map_or(sample.len(), <[u8]>::len);
        samples.into_iter().map(packed).sum()
    }

    fn of(raw: Vec<u8>) -> Self {
        Self { decompress: DDict::create(&raw), raw: raw.into() }
    }

    /// Returns the size of the raw dictionary in bytes. With its digest it takes a little more than twice as much.
    #[must_use]
    pub fn size(&self) -> usize {
        self.raw.len()
    }

    /// Decompresses the output of a [`Compressor`] with this dictionary into `out`, replacing its content. The result
    /// is at most `limit` bytes long.
    pub(super) fn decompress(&self, packed: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
        DECOMPRESS.with_borrow_mut(|(context, frame)| {
            frame.clear();
            frame.extend_from_slice(&MAGIC);
            frame.extend_from_slice(packed);
            out.clear();
            out.reserve(limit);
            let done = context.decompress_using_ddict(out, frame, &self.decompress);
            done.map(drop).map_err(|code| CodecError(get_error_name(code)))
        })
    }
}

thread_local! {
    /// Decompression context, and a buffer for a frame with its magic number.
    static DECOMPRESS: RefCell<(DCtx<'static>, Vec<u8>)> = RefCell::new((DCtx::create(), Vec::new()));
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// Compressor with one dictionary. Creating one takes about 0.2 ms and 100 KB.
pub(super) struct Compressor {
    context: CCtx<'static>,
}

impl Compressor {
    pub(super) fn new(dictionary: &Dictionary) -> Self {
        let mut context = CCtx::create();
        // The decompressing side knows both the length and the dictionary.
        for parameter in [CParameter::ContentSizeFlag(false), CParameter::DictIdFlag(false)] {
            context.set_parameter(parameter).expect("zstd knows the flags of its own frames");
        }
        context.set_parameter(CParameter::CompressionLevel(Dictionary::LEVEL)).expect("zstd knows its third level");
        context.load_dictionary(&dictionary.raw).expect("a dictionary that was trained or is empty");
        Self { context }
    }

    /// Compresses `plain` into `frame`, replacing its content, and returns the result; `None` if zstd fails.
    pub(super) fn compress<'f>(&mut self, plain: &[u8], frame: &'f mut Vec<u8>) -> Option<&'f [u8]> {
        frame.clear();
        frame.reserve(compress_bound(plain.len()));
        self.context.compress2(frame, plain).ok()?;
        frame.strip_prefix(&MAGIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(i: usize) -> Vec<u8> {
        format!(
            r#"{{"kind":"Pod","metadata":{{"name":"web-{i}","uid":"{:08x}","labels":{{"app":"web","tier":"{}"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"image":"registry.example.com/web:{}"}}]}}}}"#,
            i * 7919,
            i % 3,
            i % 17,
            i % 5
        )
        .into_bytes()
    }

    fn trained() -> Dictionary {
        Dictionary::train((0..500).map(object)).unwrap()
    }

    fn decompressed(dictionary: &Dictionary, packed: &[u8], limit: usize) -> Result<Vec<u8>, CodecError> {
        let mut out = Vec::new();
        dictionary.decompress(packed, limit, &mut out)?;
        Ok(out)
    }

    #[test]
    fn compression_round_trips_and_shrinks() {
        let dictionary = trained();
        let mut frame = Vec::new();
        let mut compressor = Compressor::new(&dictionary);
        for i in 1000..1100 {
            let plain = object(i);
            let packed = compressor.compress(&plain, &mut frame).unwrap();
            assert!(packed.len() * 3 < plain.len(), "{} of {}", packed.len(), plain.len());
            assert_eq!(decompressed(&dictionary, packed, plain.len()).unwrap(), plain);
        }
    }

    #[test]
    fn decompress_rejects_damaged_bytes_without_panic() {
        let dictionary = trained();
        let plain = object(7);
        let mut frame = Vec::new();
        let mut packed = Compressor::new(&dictionary).compress(&plain, &mut frame).unwrap().to_vec();
        assert!(decompressed(&dictionary, &packed, plain.len() - 1).is_err());
        packed[0] ^= 0xff;
        assert!(decompressed(&dictionary, &packed, plain.len()).is_err());
        assert!(decompressed(&dictionary, &[], plain.len()).is_err());
    }

    #[test]
    fn empty_dictionary_is_plain_zstd() {
        let none = Dictionary::none();
        let plain = "a text that repeats. ".repeat(50).into_bytes();
        let mut frame = Vec::new();
        let mut compressor = Compressor::new(&none);
        let packed = compressor.compress(&plain, &mut frame).unwrap();
        assert!(packed.len() < 100);
        assert_eq!(decompressed(&none, packed, plain.len()).unwrap(), plain);
    }

    #[test]
    fn train_rejects_too_few_samples() {
        assert!(Dictionary::train([b"x"]).is_err());
    }
}

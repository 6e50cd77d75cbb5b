//! Compression of object bodies: zstd with a dictionary trained on the resource's own objects.
//!
//! Objects of one resource resemble each other far more than each resembles itself, so a dictionary of a few
//! objects' worth of text brings a folded pod of 6 KB to about 450 bytes where plain zstd reaches 2.1 KB.
//! Contexts are kept per thread; a dictionary is shared by everything that was compressed with it.

use std::cell::RefCell;
use std::fmt;

use zstd::zstd_safe::{CCtx, CParameter, DCtx, DDict, compress_bound, get_error_name};

/// A trained dictionary, digested once for decompression; for compression it is digested round by round, since what
/// that takes (several times its size) is needed for milliseconds.
pub struct Dictionary {
    raw: Box<[u8]>,
    decompress: DDict<'static>,
}

/// The samples did not make a dictionary (too few, too small, or all alike).
#[derive(Debug, thiserror::Error)]
#[error("no dictionary could be trained from {samples} samples")]
pub struct TrainError {
    samples: usize,
    #[source]
    source: std::io::Error,
}

/// Bytes that do not decompress: a fault of this program or of the machine's memory, never of the input.
#[derive(Debug, thiserror::Error)]
#[error("stored bytes do not decompress: {0}")]
pub struct CodecError(pub(super) &'static str);

/// What begins every frame of zstd, and is not stored.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Dictionary {
    /// Dictionary size that pays: twice as much gains one per cent, half as much costs five.
    pub const SIZE: usize = 64 * 1024;

    /// With a dictionary the third gains seven per cent on the first for a third more time; the next ones gain less for
    /// more.
    const LEVEL: i32 = 3;

    /// Bytes of samples that a training looks at: fifty times what comes of them. zstd's manual advises a hundred times;
    /// what a training takes shows in the peak of a first list.
    const SAMPLES: usize = 3 * 1024 * 1024;

    /// Trains a dictionary of a tenth of the samples' size, [`Self::SIZE`] at most, on the first 3 MiB of them. Costs
    /// about 0.1 ms per sample, and 12 MB while it runs: keep it off the actors' threads.
    ///
    /// # Errors
    /// [`TrainError`] when zstd finds too little in the samples.
    pub fn train<S: AsRef<[u8]>>(samples: impl IntoIterator<Item = S>) -> Result<Self, TrainError> {
        let (mut bytes, mut sizes) = (Vec::new(), Vec::new());
        for sample in samples {
            bytes.extend_from_slice(sample.as_ref());
            sizes.push(sample.as_ref().len());
            if bytes.len() >= Self::SAMPLES {
                break;
            }
        }
        let size = (bytes.len() / 10).clamp(1024, Self::SIZE);
        let raw = zstd::dict::from_continuous(&bytes, &sizes, size)
            .map_err(|source| TrainError { samples: sizes.len(), source })?;
        Ok(Self::of(raw))
    }

    /// No dictionary: plain zstd, for objects that are too few or too different to train one.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// One whose bytes were kept; `None` where zstd refuses them.
    #[must_use]
    pub fn restore(raw: Vec<u8>) -> Option<Self> {
        Some(Self { decompress: DDict::try_create(&raw)?, raw: raw.into() })
    }

    /// Its bytes, to be kept.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.raw
    }

    fn of(raw: Vec<u8>) -> Self {
        Self { decompress: DDict::create(&raw), raw: raw.into() }
    }

    /// Size of the raw dictionary in bytes; with its digest it holds a little more than twice as much.
    #[must_use]
    pub fn size(&self) -> usize {
        self.raw.len()
    }

    /// Decompresses what a [`Compressor`] with this dictionary made of at most `limit` bytes, over what is in `out`.
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
    /// A context, and room for a frame with its magic number.
    static DECOMPRESS: RefCell<(DCtx<'static>, Vec<u8>)> = RefCell::new((DCtx::create(), Vec::new()));
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// Compresses against one dictionary. Making one takes some 0.2 ms and some 100 KB.
pub(super) struct Compressor {
    context: CCtx<'static>,
}

impl Compressor {
    pub(super) fn new(dictionary: &Dictionary) -> Self {
        let mut context = CCtx::create();
        // What decompressing is told anyway: the length and the dictionary.
        for parameter in [CParameter::ContentSizeFlag(false), CParameter::DictIdFlag(false)] {
            context.set_parameter(parameter).expect("zstd knows the flags of its own frames");
        }
        context.set_parameter(CParameter::CompressionLevel(Dictionary::LEVEL)).expect("zstd knows its third level");
        context.load_dictionary(&dictionary.raw).expect("a dictionary that was trained or is empty");
        Self { context }
    }

    /// The compressed form of `plain`, in `frame`, over what is there; `None` where zstd refuses.
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
    fn what_is_compressed_comes_back_and_is_smaller() {
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
    fn damaged_bytes_are_an_error_and_not_a_panic() {
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
    fn without_a_dictionary_it_is_plain_zstd() {
        let none = Dictionary::none();
        let plain = "a text that repeats. ".repeat(50).into_bytes();
        let mut frame = Vec::new();
        let mut compressor = Compressor::new(&none);
        let packed = compressor.compress(&plain, &mut frame).unwrap();
        assert!(packed.len() < 100);
        assert_eq!(decompressed(&none, packed, plain.len()).unwrap(), plain);
    }

    #[test]
    fn too_few_samples_are_refused() {
        assert!(Dictionary::train([b"x"]).is_err());
    }
}

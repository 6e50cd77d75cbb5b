//! Fuzz input read as instructions. Every byte sequence is valid, so that few mutations are wasted.

/// Boundary values of sequence numbers and lengths.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    7,
    10,
    11,
    100,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 62) - 1,
    1 << 62,
    (1 << 63) - 1,
    u64::MAX - 1,
    u64::MAX,
];

/// Bytes consumed from the front. Past the end it returns zeros.
pub(crate) struct Input<'i>(pub(crate) &'i [u8]);

impl<'i> Input<'i> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below `count`.
    pub(crate) fn pick(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// Returns a small number, a boundary value or any 64-bit number.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            small @ ..0xe0 => u64::from(small),
            edge @ 0xe0..0xf0 => EDGES[usize::from(edge - 0xe0)],
            _ => {
                let mut bytes = [0; 8];
                bytes.fill_with(|| self.byte());
                u64::from_le_bytes(bytes)
            }
        }
    }

    /// Returns length-prefixed bytes. Length 255 takes the rest of the input.
    pub(crate) fn chunk(&mut self) -> &'i [u8] {
        let len = match self.byte() {
            255 => self.0.len(),
            len => usize::from(len).min(self.0.len()),
        };
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
}

/// Splits bytes into pieces whose sizes depend on the seed. Seed 0 returns a single piece.
pub(crate) fn pieces(bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    if seed == 0 {
        return vec![bytes];
    }
    let (mut state, mut rest, mut pieces) = (u32::from(seed), bytes, Vec::new());
    while !rest.is_empty() {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let size = 1 + (state >> 16) as usize % (1 << (seed % 8));
        let (piece, after) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

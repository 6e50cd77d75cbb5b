//! Noise read as instructions: whatever the bytes are, they mean something, so that a mutation hardly ever means nothing.

/// Numbers at which something may give way.
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

/// Bytes that are read from the front; what is not there is zero.
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

    /// One of `count`.
    pub(crate) fn pick(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// A small number, or one at the edge of something.
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

    /// Bytes with their length before them; 255 stands for all that is left.
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

/// Bytes as they may arrive: all at once, or in pieces of sizes that the seed decides about.
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

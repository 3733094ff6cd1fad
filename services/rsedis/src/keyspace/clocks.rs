//! One word for each entry of a group, by the entry's number: when it was used, or how often. What the word means is
//! [`crate::eviction`]'s business. Four bytes an entry, in pieces like those of the table, and none where nobody asks for them.

const PIECE_BITS: usize = 9;
const PIECE: usize = 1 << PIECE_BITS;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pieces: Vec<Vec<u32>>,
}

impl Clocks {
    /// So many entries, all with the same word.
    pub(super) fn new(len: usize, word: u32) -> Self {
        let mut pieces = vec![vec![word; PIECE]; len >> PIECE_BITS];
        if !len.is_multiple_of(PIECE) {
            let mut last = Vec::with_capacity(if pieces.is_empty() { 0 } else { PIECE });
            last.resize(len & (PIECE - 1), word);
            pieces.push(last);
        }
        Self { pieces }
    }

    pub(super) fn get(&self, number: u32) -> u32 {
        self.pieces[number as usize >> PIECE_BITS][number as usize & (PIECE - 1)]
    }

    pub(super) fn set(&mut self, number: u32, word: u32) {
        self.pieces[number as usize >> PIECE_BITS][number as usize & (PIECE - 1)] = word;
    }

    /// The next entry's.
    pub(super) fn push(&mut self, word: u32) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(word),
            // The first piece grows as it must, so that small tables are small.
            last => {
                let mut piece = Vec::with_capacity(if last.is_none() { 0 } else { PIECE });
                piece.push(word);
                self.pieces.push(piece);
            }
        }
    }

    /// An entry has gone, and the last one has its number now.
    pub(super) fn swap_remove(&mut self, number: u32) {
        let Some(piece) = self.pieces.last_mut() else { return };
        let Some(last) = piece.pop() else { return };
        let is_last = self.pieces.len() - 1 == number as usize >> PIECE_BITS
            && self.pieces.last().is_some_and(|piece| piece.len() == number as usize & (PIECE - 1));
        if !is_last {
            self.set(number, last);
        }
        if self.pieces.last().is_some_and(Vec::is_empty) {
            self.pieces.pop();
        }
    }
}

//! Search for the beginning and the end of the last block of a deflate stream (RFC 1951).
//!
//! The walk decodes symbols without writing their values. It rejects a stream that zlib would
//! reject: the checksum of a body with a damaged stream in it would be its only correct part.
//!
//! In the output of a compressor of this process, the symbols of the last block need not be decoded:
//! only zero bits follow its end-of-block code, so that the last one bit of the stream, which is in
//! this code, determines its end.
//!
//! Positions are bits from the start of the bytes. Each look reads at least 57 bits from memory:
//! the longest length and distance together take 48. (A decoder's own bit buffer is ahead of the
//! symbol that it has just decoded; the end of the last block that was taken from one was
//! sometimes wrong.)

/// Number of bytes that must follow a stream: a look at its last bit reads them.
pub(super) const WALK_MARGIN: usize = 8;

/// The position of a stream's last block, in bits from the start of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinalDeflateBlock {
    /// The first bit of the block, BFINAL.
    pub(super) header: usize,
    /// The position after the last bit of the block.
    pub(super) end: usize,
}

/// Walks the stream that is exactly `bytes[start..end]`, followed by [`WALK_MARGIN`] more bytes.
/// `None` if it is not a valid stream.
pub(super) fn find_final_deflate_block(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> Option<FinalDeflateBlock> {
    walk_stream(bytes, start, end, StreamOrigin::Foreign)
}

/// Finds the final block of a stream that a compressor of this process has written and padded with zero
/// bits. It has the arguments of [`find_final_deflate_block`].
pub(super) fn find_final_block_of_own_stream(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> Option<FinalDeflateBlock> {
    let last = walk_stream(bytes, start, end, StreamOrigin::Own);
    debug_assert_eq!(last, find_final_deflate_block(bytes, start, end));
    last
}

/// The writer of a stream.
#[derive(Clone, Copy)]
enum StreamOrigin {
    /// Another process, or memory that may be damaged: all symbols are checked.
    Foreign,
    /// A compressor of this process.
    Own,
}

/// Walks the stream, which must end in the byte before `end`, and returns its final block. `None`:
/// the stream is invalid.
fn walk_stream(
    bytes: &[u8],
    start: usize,
    end: usize,
    origin: StreamOrigin,
) -> Option<FinalDeflateBlock> {
    let mut walk = DeflateWalker {
        bytes,
        at: start.checked_mul(8)?,
        produced: 0,
    };
    let mut codes = Box::new(BlockDecodingTables::new());
    loop {
        let header = walk.at;
        let is_final = walk.take_bits(1)? == 1;
        match walk.take_bits(2)? {
            0 => walk.walk_stored_block(end)?,
            1 => {
                codes.set_fixed_codes()?;
                walk.walk_symbols(&codes)?;
            }
            2 => {
                let lengths = walk.read_code_lengths(&mut codes)?;
                let known_end = match (is_final, origin) {
                    (true, StreamOrigin::Own) => lengths.end_of_last_block(bytes.get(..end)?),
                    _ => None,
                };
                match known_end {
                    Some(at) => walk.at = at,
                    None => {
                        codes.assign_block_codes(&lengths)?;
                        walk.walk_symbols(&codes)?;
                    }
                }
            }
            _ => return None,
        }
        if walk.at > end.checked_mul(8)? {
            return None;
        }
        if is_final {
            let last = FinalDeflateBlock {
                header,
                end: walk.at,
            };
            return (last.end.div_ceil(8) == end).then_some(last);
        }
    }
}

/// A reader of a deflate stream that decodes symbols without writing their values, and its
/// position.
struct DeflateWalker<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of plain bytes so far.
    produced: usize,
}

impl DeflateWalker<'_> {
    /// Returns the next 57 bits and up to 7 more, the first one lowest.
    #[inline(always)]
    fn peek_bits(&self) -> Option<u64> {
        let at = self.at / 8;
        let word = self.bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word) >> (self.at % 8))
    }

    /// Reads `count` bits and advances past them. Returns `None` at the end of the bytes.
    fn take_bits(&mut self, count: u32) -> Option<usize> {
        let bits = self.peek_bits()? & ((1 << count) - 1);
        self.at += count as usize;
        Some(bits as usize)
    }

    /// Advances past the content of a stored block. Returns `None` if its length is invalid or
    /// beyond byte `end`.
    fn walk_stored_block(&mut self, end: usize) -> Option<()> {
        self.at = self.at.next_multiple_of(8);
        let length = self.take_bits(16)?;
        if self.take_bits(16)? != length ^ 0xFFFF || length > end.checked_sub(self.at / 8)? {
            return None;
        }
        self.at += length * 8;
        self.produced += length;
        Some(())
    }

    /// Reads the code lengths of a block, which are themselves encoded (section 3.2.7).
    fn read_code_lengths(&mut self, codes: &mut BlockDecodingTables) -> Option<BlockCodeLengths> {
        const ORDER: [usize; 19] = [
            16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
        ];
        let literals = self.take_bits(5)? + 257;
        let distances = self.take_bits(5)? + 1;
        let coded = self.take_bits(4)? + 4;
        if literals > 286 || distances > 30 {
            return None;
        }
        let mut lengths = [0u8; 19];
        for symbol in &ORDER[..coded] {
            lengths[*symbol] = self.take_bits(3)? as u8;
        }
        codes
            .lengths
            .assign_codes(&lengths, &CODE_LENGTH_SYMBOLS, CodeCompletenessRule::Always)?;
        let mut lengths = BlockCodeLengths {
            all: [0; 286 + 30],
            literals,
            distances,
        };
        let all = &mut lengths.all[..literals + distances];
        let mut filled = 0;
        while filled < all.len() {
            let symbol = codes.lengths.decode_symbol(self.peek_bits()?)?;
            self.at += symbol.code_bits();
            let (length, times) = match symbol.base_value() {
                length @ 0..=15 => (length as u8, 1),
                16 => (*all.get(filled.checked_sub(1)?)?, 3 + self.take_bits(2)?),
                17 => (0, 3 + self.take_bits(3)?),
                _ => (0, 11 + self.take_bits(7)?),
            };
            all.get_mut(filled..filled + times)?.fill(length);
            filled += times;
        }
        Some(lengths)
    }

    /// Walks the symbols of a compressed block up to its end.
    fn walk_symbols(&mut self, codes: &BlockDecodingTables) -> Option<()> {
        loop {
            let mut word = self.peek_bits()?;
            let mut symbol = codes.literals.decode_symbol(word)?;
            // as many literals as the longest codes allow in one word
            for _ in 0..3 {
                if symbol.symbol_kind() != LITERAL_KIND {
                    break;
                }
                self.at += symbol.code_bits();
                self.produced += symbol.base_value();
                word >>= symbol.code_bits();
                symbol = codes.literals.decode_symbol(word)?;
            }
            match symbol.symbol_kind() {
                LITERAL_KIND => {}
                MATCH_KIND => self.walk_back_reference(symbol, codes)?,
                END_KIND => {
                    self.at += symbol.code_bits();
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// Walks a match, whose length symbol was read, and checks its distance.
    #[inline(always)]
    fn walk_back_reference(
        &mut self,
        length: DeflateSymbol,
        codes: &BlockDecodingTables,
    ) -> Option<()> {
        let word = self.peek_bits()? >> length.code_bits();
        let copied = length.base_value() + length.extra_bits_value(word);
        let word = word >> length.extra_bits();
        let distance = codes.distances.decode_symbol(word)?;
        let back = distance.base_value() + distance.extra_bits_value(word >> distance.code_bits());
        self.at += length.total_bits() + distance.total_bits();
        if distance.symbol_kind() != MATCH_KIND || back > self.produced {
            return None;
        }
        self.produced += copied;
        Some(())
    }
}

const END_OF_BLOCK: usize = 256;

/// The lengths of a block's codes in bits, by symbol; 0: the symbol has no code.
struct BlockCodeLengths {
    all: [u8; 286 + 30],
    /// Number of symbols of literals and lengths, which come first.
    literals: usize,
    /// Number of distance symbols.
    distances: usize,
}

impl BlockCodeLengths {
    /// Returns the code lengths of literals and match lengths, in bits.
    fn literal_code_lengths(&self) -> &[u8] {
        &self.all[..self.literals]
    }

    /// Returns the code lengths of distances, in bits.
    fn distance_code_lengths(&self) -> &[u8] {
        &self.all[self.literals..self.literals + self.distances]
    }

    /// Returns the position after the end-of-block code at the end of `stream`. Only zero bits of the
    /// stream are left then, fewer than eight. `None`: the code has no one bit, which would determine
    /// its position.
    fn end_of_last_block(&self, stream: &[u8]) -> Option<usize> {
        let (last, byte) = stream.iter().enumerate().rfind(|(_, byte)| **byte != 0)?;
        let after_last_one = last * 8 + 8 - byte.leading_zeros() as usize;
        // codes are packed from their highest bit on
        let code = self.end_of_block_code()?;
        (code != 0).then(|| after_last_one + code.trailing_zeros() as usize)
    }

    /// Returns the code that section 3.2.2 assigns to the end of the block.
    fn end_of_block_code(&self) -> Option<u32> {
        let lengths = self.literal_code_lengths();
        let own = *lengths.get(END_OF_BLOCK).filter(|length| **length > 0)?;
        // of the codes of one length, a shorter code takes as many as it can be continued by
        let preceding = lengths.iter().enumerate().filter(|(symbol, length)| {
            **length > 0 && (**length < own || **length == own && *symbol < END_OF_BLOCK)
        });
        Some(preceding.map(|(_, length)| 1 << (own - length)).sum())
    }
}

/// A decoded symbol, packed into 32 bits with the number of its bits: from the lowest bit on 4 bits
/// for the code's length, 4 for the number of extra bits, 8 for the kind, and 16 for the base to
/// which the extra bits are added.
#[derive(Clone, Copy)]
struct DeflateSymbol(u32);

/// Kind of a run of literals, whose number is the base.
const LITERAL_KIND: u32 = 0;
/// Kind of a length or a distance.
const MATCH_KIND: u32 = 1;
const END_KIND: u32 = 2;
/// Kind of a symbol that has a fixed code and must not be used.
const RESERVED_KIND: u32 = 3;

impl DeflateSymbol {
    /// The symbol of an index that is no code.
    const NONE: Self = Self(0);

    const fn new(kind: u32, base: usize, extra_bits: usize) -> Self {
        Self((base as u32) << 16 | kind << 8 | (extra_bits as u32) << 4)
    }

    fn with_code_bits(self, bits: usize) -> Self {
        Self(self.0 | bits as u32)
    }

    #[inline(always)]
    fn code_bits(self) -> usize {
        (self.0 & 15) as usize
    }

    #[inline(always)]
    fn extra_bits(self) -> usize {
        (self.0 >> 4 & 15) as usize
    }

    /// Returns the number of all bits of the symbol: of its code, and its extra bits.
    #[inline(always)]
    fn total_bits(self) -> usize {
        self.code_bits() + self.extra_bits()
    }

    #[inline(always)]
    fn symbol_kind(self) -> u32 {
        self.0 >> 8 & 0xFF
    }

    fn is_literal(self) -> bool {
        self.symbol_kind() == LITERAL_KIND && self.code_bits() > 0
    }

    #[inline(always)]
    fn base_value(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Returns the value of the symbol's extra bits, which are next in `word`.
    #[inline(always)]
    fn extra_bits_value(self, word: u64) -> usize {
        (word & ((1 << self.extra_bits()) - 1)) as usize
    }
}

/// Symbols of literals and lengths (section 3.2.5).
const LITERAL_LENGTH_SYMBOLS: [DeflateSymbol; 288] = {
    let mut symbols = [DeflateSymbol::new(LITERAL_KIND, 1, 0); 288];
    symbols[END_OF_BLOCK] = DeflateSymbol::new(END_KIND, 0, 0);
    let (mut n, mut base) = (0, 3);
    while n < 28 {
        let extra_bits = if n < 8 { 0 } else { n / 4 - 1 };
        symbols[257 + n] = DeflateSymbol::new(MATCH_KIND, base, extra_bits);
        base += 1 << extra_bits;
        n += 1;
    }
    symbols[285] = DeflateSymbol::new(MATCH_KIND, 258, 0);
    symbols[286] = DeflateSymbol::new(RESERVED_KIND, 0, 0);
    symbols[287] = DeflateSymbol::new(RESERVED_KIND, 0, 0);
    symbols
};

const DISTANCE_SYMBOLS: [DeflateSymbol; 32] = {
    let mut symbols = [DeflateSymbol::new(RESERVED_KIND, 0, 0); 32];
    let (mut n, mut base) = (0, 1);
    while n < 30 {
        let extra_bits = if n < 4 { 0 } else { n / 2 - 1 };
        symbols[n] = DeflateSymbol::new(MATCH_KIND, base, extra_bits);
        base += 1 << extra_bits;
        n += 1;
    }
    symbols
};

/// Symbols of the code of code lengths, which are their values.
const CODE_LENGTH_SYMBOLS: [DeflateSymbol; 19] = {
    let mut symbols = [DeflateSymbol::NONE; 19];
    let mut n = 0;
    while n < 19 {
        symbols[n] = DeflateSymbol::new(LITERAL_KIND, n, 0);
        n += 1;
    }
    symbols
};

/// The requirement that a Huffman code is complete: that it leaves no bit sequence unused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodeCompletenessRule {
    Always,
    /// An incomplete code is allowed if it has no symbols, or one of one bit: a block without
    /// matches, or with one distance.
    UnlessSingle,
}

/// The tables by which the symbols of a compressed block are decoded: literals and lengths, distances,
/// and the code lengths that precede both.
struct BlockDecodingTables {
    literals: HuffmanCode<2048>,
    distances: HuffmanCode<256>,
    /// The code of the code lengths of the other two.
    lengths: HuffmanCode<128>,
}

impl BlockDecodingTables {
    fn new() -> Self {
        Self {
            literals: HuffmanCode::new(),
            distances: HuffmanCode::new(),
            lengths: HuffmanCode::new(),
        }
    }

    /// Assigns the dynamic codes of a block from their lengths. `None`: the lengths are no valid
    /// codes, or the end of the block has none.
    fn assign_block_codes(&mut self, lengths: &BlockCodeLengths) -> Option<()> {
        if lengths.literal_code_lengths()[END_OF_BLOCK] == 0 {
            return None;
        }
        self.literals.assign_codes(
            lengths.literal_code_lengths(),
            &LITERAL_LENGTH_SYMBOLS,
            CodeCompletenessRule::UnlessSingle,
        )?;
        self.literals.join_literal_codes();
        self.distances.assign_codes(
            lengths.distance_code_lengths(),
            &DISTANCE_SYMBOLS,
            CodeCompletenessRule::UnlessSingle,
        )
    }

    /// Sets the codes of blocks with fixed codes (section 3.2.6).
    fn set_fixed_codes(&mut self) -> Option<()> {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        self.literals.assign_codes(
            &lengths,
            &LITERAL_LENGTH_SYMBOLS,
            CodeCompletenessRule::Always,
        )?;
        self.distances
            .assign_codes(&[5; 32], &DISTANCE_SYMBOLS, CodeCompletenessRule::Always)
    }
}

/// Maximum length of a code in bits.
const MAX_CODE_BITS: usize = 15;

/// A Huffman code (section 3.2.2), as a table for decoding. Codes as long as an index of the table,
/// or shorter, are looked up; longer ones are rare, and decoded by counting.
struct HuffmanCode<const SIZE: usize> {
    table: [DeflateSymbol; SIZE],
    /// Symbols by length and value.
    sorted: [DeflateSymbol; 288],
    /// Number of codes of each length.
    counts: [u16; MAX_CODE_BITS + 1],
}

impl<const SIZE: usize> HuffmanCode<SIZE> {
    const BITS: usize = SIZE.trailing_zeros() as usize;

    fn new() -> Self {
        Self {
            table: [DeflateSymbol::NONE; SIZE],
            sorted: [DeflateSymbol::NONE; 288],
            counts: [0; MAX_CODE_BITS + 1],
        }
    }

    /// Assigns a code of the length in `lengths` to each of `symbols`, none if the length is 0.
    /// `None` if there are no such codes.
    fn assign_codes(
        &mut self,
        lengths: &[u8],
        symbols: &[DeflateSymbol],
        completeness: CodeCompletenessRule,
    ) -> Option<()> {
        self.counts = [0; MAX_CODE_BITS + 1];
        for length in lengths {
            self.counts[usize::from(*length)] += 1;
        }
        self.counts[0] = 0;
        let mut free = 1i32;
        let mut next = [0u16; MAX_CODE_BITS + 2];
        for (length, count) in self.counts.iter().enumerate().skip(1) {
            free = (free << 1) - i32::from(*count);
            if free < 0 {
                return None;
            }
            next[length + 1] = next[length] + count;
        }
        let used = next[MAX_CODE_BITS + 1];
        let single = used == self.counts[1];
        if free > 0 && (completeness == CodeCompletenessRule::Always || !single) {
            return None;
        }
        for (length, symbol) in lengths.iter().zip(symbols) {
            if *length > 0 {
                let place = &mut next[usize::from(*length)];
                self.sorted[usize::from(*place)] = *symbol;
                *place += 1;
            }
        }
        self.fill_table(free > 0);
        Some(())
    }

    /// Joins adjacent literals in the table whose codes fit in an index together, so that one look
    /// finds them: JSON has long runs of literals, with four or five bits each.
    fn join_literal_codes(&mut self) {
        // downwards: an index that is shifted right is not larger
        for index in (0..SIZE).rev() {
            let mut joined = self.table[index];
            while joined.is_literal() {
                let next = self.table[index >> joined.code_bits()];
                if !next.is_literal() || joined.code_bits() + next.code_bits() > Self::BITS {
                    break;
                }
                joined = DeflateSymbol(joined.0 + next.0);
            }
            self.table[index] = joined;
        }
    }

    /// Fills the lookup table from the sorted symbols. `has_gaps`: some codes are unused, so that
    /// the table must be cleared first.
    fn fill_table(&mut self, has_gaps: bool) {
        if has_gaps || self.counts[Self::BITS + 1..].iter().any(|n| *n > 0) {
            self.table.fill(DeflateSymbol::NONE);
        }
        let mut symbols = self.sorted.iter();
        let mut code = 0u16;
        for (length, count) in self.counts.iter().enumerate().take(Self::BITS + 1).skip(1) {
            code <<= 1;
            for symbol in symbols.by_ref().take(usize::from(*count)) {
                // codes are packed from their highest bit on
                let first = usize::from(code.reverse_bits() >> (16 - length));
                for place in self.table[first..].iter_mut().step_by(1 << length) {
                    *place = symbol.with_code_bits(length);
                }
                code += 1;
            }
        }
    }

    /// Returns the symbol whose code begins at the lowest bit of `word`. `None`: no code does.
    #[inline(always)]
    fn decode_symbol(&self, word: u64) -> Option<DeflateSymbol> {
        let symbol = self.table[word as usize % SIZE];
        if symbol.code_bits() > 0 {
            Some(symbol)
        } else {
            self.decode_long_code(word)
        }
    }

    /// Decodes a long code by counting: codes of one length are consecutive, and shorter ones
    /// come first.
    #[cold]
    fn decode_long_code(&self, mut word: u64) -> Option<DeflateSymbol> {
        let (mut code, mut first, mut passed) = (0usize, 0usize, 0usize);
        for (length, count) in self.counts.iter().enumerate().skip(1) {
            code = code << 1 | (word & 1) as usize;
            word >>= 1;
            first <<= 1;
            let count = usize::from(*count);
            if code < first + count {
                let symbol = self.sorted.get(passed + (code - first))?;
                return Some(symbol.with_code_bits(length));
            }
            first += count;
            passed += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{find_final_block_of_own_stream, find_final_deflate_block, WALK_MARGIN};
    use crate::gzip::compressor_pool::run_with_pooled_compressor;
    use crate::gzip::format::{MEMBER_HEADER, TRAILER_LENGTH};

    /// The raw stream that libdeflate writes for `plain`.
    fn libdeflate_stream(plain: &[u8], level: u8) -> Vec<u8> {
        let mut member = Vec::with_capacity(2 * plain.len() + 100);
        let fits = run_with_pooled_compressor(level, |compressor| {
            compressor.compress_gzip_member(plain, &mut member)
        });
        assert_eq!(fits, Some(true));
        member[MEMBER_HEADER.len()..member.len() - TRAILER_LENGTH].to_vec()
    }

    fn zlib_stream(plain: &[u8], level: u32) -> Vec<u8> {
        let level = flate2::Compression::new(level);
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(plain).expect("a vector takes all bytes");
        encoder.finish().expect("a vector takes all bytes")
    }

    /// Text with skewed frequencies; `seed` varies the length of the end-of-block code.
    fn skewed_text(length: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..length)
            .map(|_| b'a' + (next() & next() & next() & 63) as u8)
            .collect()
    }

    #[test]
    fn final_block_of_own_stream_is_the_one_that_a_whole_walk_finds() {
        let mut ends = [0; 8];
        let lengths = (0..300).chain([5_000, 65_535, 65_536, 70_000, 300_000]);
        for (seed, length) in lengths.enumerate() {
            let plain = skewed_text(length, seed as u64);
            let streams = [
                libdeflate_stream(&plain, 1),
                libdeflate_stream(&plain, 6),
                libdeflate_stream(&plain, 12),
                zlib_stream(&plain, 6),
            ];
            for mut stream in streams {
                let end = stream.len();
                stream.resize(end + WALK_MARGIN, 0xFF);
                let walked = find_final_deflate_block(&stream, 0, end).expect("a valid stream");
                let own = find_final_block_of_own_stream(&stream, 0, end);
                assert_eq!(own, Some(walked), "{length} bytes");
                ends[walked.end % 8] += 1;
            }
        }
        assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
    }
}

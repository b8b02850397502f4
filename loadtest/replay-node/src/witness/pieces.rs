//! Generator of a witness in pieces.

use bytes::{Bytes, BytesMut};

use super::{
    rlp_length_prefix, rlp_prefix_length, WitnessFormat, WitnessGenerator, WitnessLengths,
    WitnessList, LISTS,
};

const RLP_ORDER: [WitnessList; 4] = [
    WitnessList::Headers,
    WitnessList::Codes,
    WitnessList::State,
    WitnessList::Keys,
];
/// Lists of a witness by the specification.
const SSZ_ORDER: [WitnessList; 3] = [WitnessList::State, WitnessList::Codes, WitnessList::Headers];
const OFFSET: u64 = 4;
/// Maximum bytes of an item with its delimiters.
const MOST_ITEM: usize = 2 * 24_576 + 64;
const STATUS: &str = r#"{"status":"VALID","#;
const STATUS_END: &str = r#""latestValidHash":"0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3","validationError":null}"#;

/// An iterator that generates a response with a witness in pieces of one length; the last may be
/// shorter.
#[derive(Debug)]
pub struct WitnessPieceIterator {
    witness: WitnessGenerator,
    counts: WitnessLengths,
    shape: WitnessFormat,
    piece: usize,
    made: BytesMut,
    remaining_bytes: u64,
    /// The current list, as an index into the shape's order, and the number of its next item.
    list: usize,
    item: u64,
    /// In SSZ, the offset of the next item in its list.
    offset: u64,
}

impl WitnessPieceIterator {
    /// Begins the response, and computes its length. `piece`: length of the pieces in bytes;
    /// `usize::MAX` for one piece.
    pub(super) fn new(
        witness: &WitnessGenerator,
        shape: WitnessFormat,
        id: &str,
        piece: usize,
    ) -> Self {
        let counts = match shape {
            WitnessFormat::Status => WitnessLengths::default(),
            _ => WitnessLengths::from_witness(witness),
        };
        let mut this = Self {
            witness: witness.clone(),
            counts,
            shape,
            piece: piece.max(1),
            made: BytesMut::new(),
            remaining_bytes: 0,
            list: 0,
            item: 0,
            offset: 0,
        };
        this.append_opening(id);
        this.remaining_bytes = this.made.len() as u64 + this.length_after_opening();
        if piece == usize::MAX {
            this.made.reserve(this.remaining_bytes as usize);
        }
        this
    }

    /// Returns the number of bytes that are not generated yet.
    pub fn ungenerated_bytes(&self) -> u64 {
        self.remaining_bytes
    }

    /// Appends the text or the SSZ before the first list.
    fn append_opening(&mut self, id: &str) {
        match self.shape {
            WitnessFormat::Ssz => return self.append_ssz_start(),
            WitnessFormat::Nested => {
                let begin = format!(r#"{{"payloadStatus":{STATUS}{STATUS_END},"witness":{{"#);
                return self.made.extend_from_slice(begin.as_bytes());
            }
            _ => (),
        }
        let begin = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
        self.made.extend_from_slice(begin.as_bytes());
        match self.shape {
            WitnessFormat::Object => self.made.extend_from_slice(b"{"),
            WitnessFormat::Rlp => {
                let head = hex::encode(rlp_length_prefix(0xc0, self.lists_rlp_length()));
                let begin = format!(r#"{STATUS}"witness":"0x{head}"#);
                self.made.extend_from_slice(begin.as_bytes());
            }
            _ => self.made.extend_from_slice(STATUS.as_bytes()),
        }
    }

    /// Appends the part of the SSZ before the lists: the status, and the offsets of the one
    /// witness.
    fn append_ssz_start(&mut self) {
        const VALID: u8 = 0;
        const STATUS: u64 = 1 + 2 * OFFSET;
        let digits = STATUS_END.split("0x").nth(1).and_then(|it| it.get(..64));
        // the constant has valid hex digits
        let hash = hex::decode(digits.unwrap_or_default()).unwrap_or_default();
        let len = hash.len() as u64;
        self.put_offset(2 * OFFSET);
        self.put_offset(2 * OFFSET + STATUS + len);
        self.made.extend_from_slice(&[VALID]);
        self.put_offset(STATUS);
        self.put_offset(STATUS + len);
        self.made.extend_from_slice(&hash);
        self.put_offset(OFFSET);
        let mut begins = SSZ_ORDER.len() as u64 * OFFSET;
        for list in SSZ_ORDER {
            self.put_offset(begins);
            begins += self.list_ssz_length(list);
        }
    }

    fn put_offset(&mut self, offset: u64) {
        self.made.extend_from_slice(&(offset as u32).to_le_bytes());
    }

    /// Returns the length of a list in SSZ: its offsets and its items, in bytes.
    fn list_ssz_length(&self, list: WitnessList) -> u64 {
        let at = list as usize;
        OFFSET * self.counts.items[at] + self.counts.digits[at] / 2
    }

    /// Returns the text after the last list.
    fn closing_text(&self) -> String {
        match self.shape {
            WitnessFormat::Object | WitnessFormat::Nested => "}}".to_owned(),
            WitnessFormat::Ssz => String::new(),
            WitnessFormat::Rlp => format!("\",{STATUS_END}}}"),
            WitnessFormat::Status => format!("{STATUS_END}}}"),
        }
    }

    fn list_order(&self) -> &'static [WitnessList] {
        match self.shape {
            WitnessFormat::Object => &LISTS,
            WitnessFormat::Rlp => &RLP_ORDER,
            WitnessFormat::Ssz | WitnessFormat::Nested => &SSZ_ORDER,
            WitnessFormat::Status => &[],
        }
    }

    /// Returns the length of the four lists in RLP with their prefixes, in bytes.
    fn lists_rlp_length(&self) -> u64 {
        let of = |len: &u64| rlp_length_prefix(0xc0, *len).len() as u64 + len;
        self.counts.rlp.iter().map(of).sum()
    }

    /// Returns the number of bytes that follow the output of
    /// [`append_opening`](Self::append_opening).
    fn length_after_opening(&self) -> u64 {
        let end = self.closing_text().len() as u64;
        let counts = &self.counts;
        match self.shape {
            WitnessFormat::Status => end,
            WitnessFormat::Rlp => 2 * self.lists_rlp_length() + end,
            WitnessFormat::Ssz => SSZ_ORDER
                .into_iter()
                .map(|list| self.list_ssz_length(list))
                .sum(),
            WitnessFormat::Object | WitnessFormat::Nested => {
                let of = |(place, list): (usize, &WitnessList)| {
                    let at = *list as usize;
                    // `"name":[` and `]`, and between two lists a comma
                    let around = list.member_name().len() as u64 + 5 + u64::from(place > 0);
                    // `"0x"`, and between two items a comma
                    let items = 4 * counts.items[at] + counts.items[at].saturating_sub(1);
                    around + items + counts.digits[at]
                };
                self.list_order().iter().enumerate().map(of).sum::<u64>() + end
            }
        }
    }

    /// Appends the next item, or the delimiters of a list; returns false at the end.
    fn append_next_witness_item(&mut self) -> bool {
        let Some(list) = self.list_order().get(self.list).copied() else {
            return false;
        };
        let (number, mut count) = (self.item, self.counts.items[list as usize]);
        match self.shape {
            WitnessFormat::Rlp => self.append_rlp(list, number),
            WitnessFormat::Ssz => {
                self.append_ssz_offset_or_item(list, number, count);
                // the offsets precede the items
                count *= 2;
            }
            _ => self.append_json(list, number),
        }
        self.item += 1;
        if self.item >= count {
            (self.list, self.item) = (self.list + 1, 0);
            let is_last = self.list == self.list_order().len();
            if matches!(self.shape, WitnessFormat::Object | WitnessFormat::Nested) {
                self.made.extend_from_slice(b"]");
            }
            if is_last {
                let end = self.closing_text();
                self.made.extend_from_slice(end.as_bytes());
            }
        }
        true
    }

    /// Appends an item in JSON, after the opening of its list or a comma.
    fn append_json(&mut self, list: WitnessList, number: u64) {
        match (number, self.list) {
            (0, 0) => self.open_list(list, ""),
            (0, _) => self.open_list(list, ","),
            _ => self.made.extend_from_slice(b","),
        }
        self.made.extend_from_slice(b"\"0x");
        self.witness
            .pool
            .append_pool_item_hex(list, number, &mut self.made);
        self.made.extend_from_slice(b"\"");
    }

    /// Appends the name and the opening bracket of a list, after `before`.
    fn open_list(&mut self, list: WitnessList, before: &str) {
        let open = format!("{before}\"{}\":[", list.member_name());
        self.made.extend_from_slice(open.as_bytes());
    }

    /// Appends one of `count` offsets, and after them one of the items.
    fn append_ssz_offset_or_item(&mut self, list: WitnessList, number: u64, count: u64) {
        if number >= count {
            let pool = &self.witness.pool;
            return pool.append_pool_item_bytes(list, number - count, &mut self.made);
        }
        if number == 0 {
            self.offset = OFFSET * count;
        }
        self.put_offset(self.offset);
        self.offset += self.witness.pool.pool_item(list, number).len() as u64 / 2;
    }

    /// Appends an item in RLP as hex; the first item has the prefix of its list before it.
    fn append_rlp(&mut self, list: WitnessList, number: u64) {
        if number == 0 {
            let head = rlp_length_prefix(0xc0, self.counts.rlp[list as usize]);
            self.made.extend_from_slice(hex::encode(head).as_bytes());
        }
        let len = self.witness.pool.pool_item(list, number).len() as u64 / 2;
        if rlp_prefix_length(list, len) > 0 {
            let head = rlp_length_prefix(0x80, len);
            self.made.extend_from_slice(hex::encode(head).as_bytes());
        }
        self.witness
            .pool
            .append_pool_item_hex(list, number, &mut self.made);
    }
}

impl Iterator for WitnessPieceIterator {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.remaining_bytes == 0 {
            return None;
        }
        if self.list_order().is_empty() && self.list == 0 {
            let end = self.closing_text();
            self.made.extend_from_slice(end.as_bytes());
            self.list = 1;
        }
        if self.made.len() < self.piece && self.piece != usize::MAX {
            self.made.reserve(self.piece + MOST_ITEM);
        }
        while self.made.len() < self.piece && self.append_next_witness_item() {}
        let len = self.made.len().min(self.piece);
        self.remaining_bytes -= len as u64;
        Some(self.made.split_to(len).freeze())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use sszip_core::ssz::{json_to_ssz, Fork, Preset, Schema};

    use super::*;
    use crate::witness::WitnessByteSize;

    fn whole(witness: &WitnessGenerator, shape: WitnessFormat) -> Vec<u8> {
        Vec::from(
            witness
                .build_complete_response(shape, "\"x\"")
                .to_single_slice(),
        )
    }

    /// Returns the items of an RLP list and the bytes after it; strings without their prefixes,
    /// lists with them.
    fn items(rlp: &[u8]) -> (Vec<&[u8]>, &[u8]) {
        let (head, len, _) = head(rlp);
        let (mut body, rest) = rlp[head..].split_at(len);
        let mut items = Vec::new();
        while !body.is_empty() {
            let (at, len, is_list) = self::head(body);
            let (item, rest) = body.split_at(at + len);
            items.push(if is_list { item } else { &item[at..] });
            body = rest;
        }
        (items, rest)
    }

    fn head(rlp: &[u8]) -> (usize, usize, bool) {
        let (kind, is_list) = match rlp[0] {
            0xc0.. => (0xc0, true),
            _ => (0x80, false),
        };
        match usize::from(rlp[0] - kind) {
            len @ ..56 => (1, len, is_list),
            more => {
                let bytes = &rlp[1..more - 54];
                let len = bytes
                    .iter()
                    .fold(0, |len, byte| len << 8 | usize::from(*byte));
                (more - 54, len, is_list)
            }
        }
    }

    #[test]
    fn announced_length_equals_the_length_of_all_pieces() {
        let pool = WitnessGenerator::new(3, WitnessByteSize(0));
        for size in [0, 1, 1000, 30_000, 150_000] {
            let witness = pool.copy_with_size(WitnessByteSize(size));
            for shape in [
                WitnessFormat::Object,
                WitnessFormat::Rlp,
                WitnessFormat::Status,
                WitnessFormat::Ssz,
                WitnessFormat::Nested,
            ] {
                let whole = whole(&witness, shape);
                for piece in [1, 7, 1000, 1 << 18] {
                    let pieces = witness.response_pieces(shape, "\"x\"", piece);
                    assert_eq!(
                        pieces.ungenerated_bytes(),
                        whole.len() as u64,
                        "{size} {shape:?}"
                    );
                    let pieces: Vec<Bytes> = pieces.collect();
                    let (last, full) = pieces.split_last().unwrap();
                    assert!(full.iter().all(|one| one.len() == piece));
                    assert!((1..=piece).contains(&last.len()));
                    assert!(pieces.concat() == whole, "{size} {shape:?} {piece}");
                }
            }
        }
    }

    #[test]
    fn witness_has_approximately_the_requested_size() {
        let pool = WitnessGenerator::new(3, WitnessByteSize(0));
        for size in [100_000, 3_000_000] {
            let len = whole(
                &pool.copy_with_size(WitnessByteSize(size)),
                WitnessFormat::Object,
            )
            .len() as u64;
            assert!((size..size + 60_000).contains(&len), "{len}");
        }
    }

    #[test]
    fn witness_in_rlp_has_the_items_of_the_object() {
        let witness = WitnessGenerator::new(3, WitnessByteSize(400_000));
        let object: Value =
            serde_json::from_slice(&whole(&witness, WitnessFormat::Object)).unwrap();
        let status: Value = serde_json::from_slice(&whole(&witness, WitnessFormat::Rlp)).unwrap();
        assert_eq!((&object["id"], &status["id"]), (&"x".into(), &"x".into()));
        assert_eq!(status["result"]["status"], "VALID");
        let digits = status["result"]["witness"].as_str().unwrap();
        let rlp = hex::decode(digits.strip_prefix("0x").unwrap()).unwrap();
        let (lists, rest) = items(&rlp);
        assert!(rest.is_empty());
        for (list, name) in lists.into_iter().zip(["headers", "codes", "state", "keys"]) {
            let (found, rest) = items(list);
            assert!(rest.is_empty());
            let found: Vec<Value> = found
                .iter()
                .map(|item| format!("0x{}", hex::encode(item)).into())
                .collect();
            assert_eq!(object["result"][name], Value::from(found), "{name}");
        }
    }

    /// The route's lists are decoded by sszip's own walkers.
    #[test]
    fn witness_in_ssz_and_nested_json_has_the_items_of_the_object() {
        let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
        let ty = schema.find_type("PayloadStatusWithWitness").unwrap();
        for size in [0, 400_000] {
            let witness = WitnessGenerator::new(3, WitnessByteSize(size));
            let object: Value =
                serde_json::from_slice(&whole(&witness, WitnessFormat::Object)).unwrap();
            let nested = whole(&witness, WitnessFormat::Nested);
            let decoded: Value = serde_json::from_slice(&nested).unwrap();
            assert_eq!(decoded["payloadStatus"]["status"], "VALID");
            assert_eq!(decoded["witness"].as_object().unwrap().len(), 3);
            for name in ["state", "codes", "headers"] {
                assert_eq!(decoded["witness"][name], object["result"][name], "{name}");
            }
            let ssz = whole(&witness, WitnessFormat::Ssz);
            assert!(json_to_ssz(schema, ty, &nested).unwrap() == ssz);
        }
    }

    #[test]
    fn witness_depends_only_on_the_seed() {
        let of = |seed| {
            whole(
                &WitnessGenerator::new(seed, WitnessByteSize(5000)),
                WitnessFormat::Object,
            )
        };
        assert!(of(1) == of(1));
        assert!(of(1) != of(2));
    }
}

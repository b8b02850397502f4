//! Streaming reader of a witness in the hex of RLP `[headers, codes, state]`
//! (`engine_newPayloadWithWitness`). geth from v1.16.4 on and ethrex write
//! `[headers, codes, state, keys]`: SSZ has no field for the fourth list, and its content is not
//! validated.

use super::hex::{DecodedHexDestination, HexReader, JsonToSszError};
use super::output::SszOutput;
use super::scan::JsonTokenError;
use crate::ssz::error::SszErrorKind;
use crate::ssz::rlp::{read_rlp_prefix, MAX_RLP_PREFIX};
use crate::ssz::schema::{ContainerLayout, Schema, SszType, TypeKind};

/// Number of hex digits that are decoded at a time.
const DIGITS_PER_BLOCK: usize = 1 << 15;

/// Lists in the order of the RLP, and whether their elements are lists, which keep their prefixes.
const WITNESS_LISTS: [(&str, bool); 3] = [("headers", true), ("codes", false), ("state", false)];

/// A reader of one execution witness, which decodes the hex of its RLP as it arrives, and its
/// progress.
#[derive(Debug)]
pub(super) struct WitnessRlpReader<'s> {
    container: &'s ContainerLayout,
    /// Fields in the order of the RLP.
    parts: [WitnessListTarget; 3],
    hex: HexReader,
    decoded: SszOutput,
    base: usize,
    fields: usize,
    state: WitnessRlpState,
    /// Number of bytes of RLP that were read.
    taken: u64,
    /// The beginning of an incomplete prefix.
    prefix: Vec<u8>,
    /// Position of the prefix in the RLP.
    item: u64,
    /// Remaining length of the outer list, after its prefix was read.
    left: u64,
}

/// A list of the witness's RLP, and the field of SSZ that receives its elements.
#[derive(Clone, Copy, Debug)]
struct WitnessListTarget {
    field: usize,
    /// Maximum number of elements.
    most: u64,
    most_bytes: u64,
    is_list: bool,
}

/// The item of the RLP that the reader expects next.
#[derive(Clone, Copy, Debug)]
enum WitnessRlpState {
    /// The prefix of the outer list is next.
    Whole,
    /// The prefix of a part is next.
    Part(usize),
    /// The prefix of an element is next, in the given part.
    Element(PartlyReadWitnessList),
    /// The rest of an element is next, of the given length.
    Inside(PartlyReadWitnessList, u64),
    /// The rest of a skipped item is next, of the given length.
    Skip(u64),
    Done,
}

/// The position in the JSON text up to which RLP was decoded, from which errors get their position.
#[derive(Clone, Copy)]
struct RlpHexPosition {
    /// End of the digits that were read.
    end: usize,
    /// Number of bytes that were read.
    count: u64,
}

impl RlpHexPosition {
    /// Creates an error at byte `byte` of the RLP, whose digits may have been in an earlier piece.
    fn error_at_byte(self, byte: u64, why: impl Into<String>) -> JsonToSszError {
        let back = usize::try_from(2 * (self.count - byte)).unwrap_or(usize::MAX);
        let mut wrong = JsonTokenError::new(self.end.saturating_sub(back), why);
        wrong.back = back.saturating_sub(self.end);
        wrong.into()
    }
}

/// The progress of a list of the witness whose end is not read yet.
#[derive(Clone, Copy, Debug)]
struct PartlyReadWitnessList {
    part: usize,
    left: u64,
    /// The value returned by [`SszOutput::begin_variable_list`].
    list: usize,
    base: usize,
    count: u64,
}

impl<'s> WitnessRlpReader<'s> {
    /// Creates a reader for a witness of a type with the three fields.
    pub(super) fn new(
        schema: &Schema,
        ty: &SszType,
        container: &'s ContainerLayout,
        output: &mut SszOutput,
    ) -> Result<Self, JsonToSszError> {
        let part = |(name, is_list): (&str, bool)| {
            let field = container.names.find_field(name.as_bytes())?;
            let TypeKind::List(of, most) = schema.type_by_id(container.fields[field].ty).kind
            else {
                return None;
            };
            let TypeKind::ByteList(most_bytes) = schema.type_by_id(of).kind else {
                return None;
            };
            Some(WitnessListTarget {
                field,
                most: most.max_elements(),
                most_bytes: most_bytes.max_elements(),
                is_list,
            })
        };
        let [Some(headers), Some(codes), Some(state)] = WITNESS_LISTS.map(part) else {
            let why = format!("{} is not a witness", ty.name);
            return Err(JsonTokenError::new(0, why).into());
        };
        Ok(Self {
            container,
            parts: [headers, codes, state],
            hex: HexReader::new(DecodedHexDestination::End, u64::MAX),
            decoded: SszOutput::default(),
            base: output.append_zeros(container.fixed_size)?,
            fields: output.begin_ssz_container(),
            state: WitnessRlpState::Whole,
            taken: 0,
            prefix: Vec::with_capacity(MAX_RLP_PREFIX),
            item: 0,
            left: 0,
        })
    }

    /// Continues to read at `at`. Returns the end of the input that was read, and whether the
    /// string ended.
    pub(super) fn continue_witness_rlp(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        output: &mut SszOutput,
    ) -> Result<(usize, bool), JsonToSszError> {
        loop {
            let block = &bytes[..bytes.len().min(at + DIGITS_PER_BLOCK)];
            let (end, is_over) = self.hex.continue_hex_string(block, at, &mut self.decoded)?;
            let mut decoded = std::mem::take(&mut self.decoded);
            let digits = RlpHexPosition {
                end: end.saturating_sub(usize::from(is_over || self.hex.has_half_byte())),
                count: self.taken + decoded.bytes.len() as u64,
            };
            self.read_decoded_rlp_bytes(&decoded.bytes, digits, output)?;
            decoded.bytes.clear();
            self.decoded = decoded;
            let is_stuck = end == at;
            at = end;
            if is_over {
                let WitnessRlpState::Done = self.state else {
                    return Err(digits.error_at_byte(self.taken, "the RLP ends inside an item"));
                };
                let slot = |field: usize| self.container.fields[field].offset;
                output.end_ssz_container(self.fields, self.base, slot)?;
                return Ok((at, true));
            }
            if is_stuck || at == bytes.len() {
                return Ok((at, false));
            }
        }
    }

    /// Reads decoded bytes of the RLP, which begin and end anywhere.
    fn read_decoded_rlp_bytes(
        &mut self,
        mut bytes: &[u8],
        at: RlpHexPosition,
        output: &mut SszOutput,
    ) -> Result<(), JsonToSszError> {
        while !bytes.is_empty() {
            self.taken = at.count - bytes.len() as u64;
            if let WitnessRlpState::Inside(_, left) | WitnessRlpState::Skip(left) = self.state {
                let now = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let (taken, rest) = bytes.split_at(now);
                bytes = rest;
                self.taken += now as u64;
                let left = left - now as u64;
                self.state = match self.state {
                    WitnessRlpState::Inside(open, _) => {
                        self.append_content(taken, output)?;
                        match left {
                            0 => WitnessRlpState::Element(open),
                            left => WitnessRlpState::Inside(open, left),
                        }
                    }
                    _ if left == 0 => WitnessRlpState::Part(WITNESS_LISTS.len() + 1),
                    _ => WitnessRlpState::Skip(left),
                };
                self.end_finished_witness_lists(at, output)?;
                continue;
            }
            if self.prefix.is_empty() {
                self.item = self.taken;
            }
            let (first, rest) = bytes.split_at(1);
            self.prefix.extend_from_slice(first);
            // the byte may be the item itself, or be read only to detect that
            let read =
                read_rlp_prefix(&self.prefix).map_err(|why| at.error_at_byte(self.item, why))?;
            let Some(item) = read else {
                bytes = rest;
                continue;
            };
            let ahead = self.prefix.len() - item.size;
            let begun: Vec<u8> = self.prefix.drain(..).collect();
            self.enter_rlp_item(item, &begun[..item.size], at, output)?;
            match ahead {
                0 => {
                    bytes = rest;
                    self.taken += 1;
                }
                // one byte after the prefix was read
                _ => debug_assert_eq!(ahead, 1),
            }
            self.end_finished_witness_lists(at, output)?;
        }
        self.taken = at.count;
        Ok(())
    }

    /// Begins an item whose prefix is complete: the witness, a list of it, or an element.
    fn enter_rlp_item(
        &mut self,
        item: crate::ssz::rlp::RlpPrefix,
        written: &[u8],
        at: RlpHexPosition,
        output: &mut SszOutput,
    ) -> Result<(), JsonToSszError> {
        let begin = self.item;
        let wrong = |why: String| Err(at.error_at_byte(begin, why));
        let whole = item.len.saturating_add(item.size as u64);
        match self.state {
            WitnessRlpState::Whole if item.is_list => {
                self.left = item.len;
                self.state = WitnessRlpState::Part(0);
            }
            WitnessRlpState::Part(part) if item.is_list => {
                let name = WITNESS_LISTS.get(part).map_or("keys", |(name, _)| name);
                if whole > self.left {
                    return wrong(format!("{name} is longer than the RLP"));
                }
                self.left -= whole;
                let Some(part_of) = self.parts.get(part) else {
                    self.state = match item.len {
                        0 => WitnessRlpState::Part(part + 1),
                        len => WitnessRlpState::Skip(len),
                    };
                    return Ok(());
                };
                output.record_field_start(part_of.field)?;
                self.state = WitnessRlpState::Element(PartlyReadWitnessList {
                    part,
                    left: item.len,
                    list: output.begin_variable_list(),
                    base: output.len(),
                    count: 0,
                });
            }
            WitnessRlpState::Element(mut open) => {
                let part = self.parts[open.part];
                let name = WITNESS_LISTS[open.part].0;
                if item.is_list != part.is_list {
                    let kind = if part.is_list { "list" } else { "string" };
                    return wrong(format!("{name}[{}] is not a {kind}", open.count));
                }
                if whole > open.left {
                    return wrong(format!("{name}[{}] is longer than {name}", open.count));
                }
                if open.count == part.most {
                    return wrong(format!("{name} has more than {} elements", part.most));
                }
                let len = if part.is_list { whole } else { item.len };
                if len > part.most_bytes {
                    let most = part.most_bytes;
                    return wrong(format!("{name}[{}] has more than {most} bytes", open.count));
                }
                open.left -= whole;
                open.count += 1;
                output.record_element_start()?;
                if part.is_list {
                    self.append_content(written, output)?;
                }
                self.state = WitnessRlpState::Inside(open, item.len);
                if item.len == 0 {
                    self.state = WitnessRlpState::Element(open);
                }
            }
            WitnessRlpState::Done => return wrong("data after the RLP".into()),
            WitnessRlpState::Whole | WitnessRlpState::Part(_) => {
                return wrong("expected a list".into())
            }
            // no item begins in these states
            WitnessRlpState::Inside(..) | WitnessRlpState::Skip(_) => {}
        }
        Ok(())
    }

    /// Ends the lists that have no bytes left, and moves on to the next one.
    fn end_finished_witness_lists(
        &mut self,
        at: RlpHexPosition,
        output: &mut SszOutput,
    ) -> Result<(), JsonToSszError> {
        if let WitnessRlpState::Element(PartlyReadWitnessList {
            part,
            left: 0,
            list,
            base,
            ..
        }) = self.state
        {
            output.end_variable_list(list, base)?;
            self.state = WitnessRlpState::Part(part + 1);
        }
        if let WitnessRlpState::Part(part) = self.state {
            match (WITNESS_LISTS.get(part), self.left) {
                (None, 0) => self.state = WitnessRlpState::Done,
                (None, _) if part > WITNESS_LISTS.len() => {
                    return Err(at.error_at_byte(self.taken, "a fifth item in the RLP"));
                }
                (Some((name, _)), 0) => {
                    let why = format!("{name} is missing in the RLP");
                    return Err(at.error_at_byte(self.taken, why));
                }
                (_, _) => {}
            }
        }
        Ok(())
    }

    fn append_content(&self, bytes: &[u8], output: &mut SszOutput) -> Result<(), SszErrorKind> {
        output.reserve_bytes(bytes.len())?;
        output.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

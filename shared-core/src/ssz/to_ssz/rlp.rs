//! Streaming reader of a witness in the hex of RLP `[headers, codes, state]`
//! (`engine_newPayloadWithWitness`). geth from v1.16.4 on and ethrex write
//! `[headers, codes, state, keys]`: SSZ has no field for the fourth list, and its content is not
//! validated.

use super::hex::{Hex, HexError, WritePosition};
use super::output::Output;
use super::scan::TokenError;
use crate::ssz::error::SszErrorKind;
use crate::ssz::rlp::{rlp_header, MAX_PREFIX};
use crate::ssz::schema::{Container, Kind, Schema, Type};

/// Number of hex digits that are decoded at a time.
const BLOCK: usize = 1 << 15;

/// Lists in the order of the RLP, and whether their elements are lists, which keep their prefixes.
const PARTS: [(&str, bool); 3] = [("headers", true), ("codes", false), ("state", false)];

/// A reader of one execution witness, which decodes the hex of its RLP as it arrives, and its
/// progress.
#[derive(Debug)]
pub(super) struct Witness<'s> {
    container: &'s Container,
    /// Fields in the order of the RLP.
    parts: [Part; 3],
    hex: Hex,
    decoded: Output,
    base: usize,
    fields: usize,
    state: State,
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
struct Part {
    field: usize,
    /// Maximum number of elements.
    most: u64,
    most_bytes: u64,
    is_list: bool,
}

/// The item of the RLP that the reader expects next.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The prefix of the outer list is next.
    Whole,
    /// The prefix of a part is next.
    Part(usize),
    /// The prefix of an element is next, in the given part.
    Element(Open),
    /// The rest of an element is next, of the given length.
    Inside(Open, u64),
    /// The rest of a skipped item is next, of the given length.
    Skip(u64),
    Done,
}

/// The position of decoded bytes in the text, for errors.
#[derive(Clone, Copy)]
struct Digits {
    /// End of the digits that were read.
    end: usize,
    /// Number of bytes that were read.
    count: u64,
}

impl Digits {
    /// Creates an error at byte `byte` of the RLP, whose digits may have been in an earlier piece.
    fn wrong(self, byte: u64, why: impl Into<String>) -> HexError {
        let back = usize::try_from(2 * (self.count - byte)).unwrap_or(usize::MAX);
        let mut wrong = TokenError::new(self.end.saturating_sub(back), why);
        wrong.back = back.saturating_sub(self.end);
        wrong.into()
    }
}

/// The progress of a list of the witness whose end is not read yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    part: usize,
    left: u64,
    /// The value returned by [`Output::begin_list`].
    list: usize,
    base: usize,
    count: u64,
}

impl<'s> Witness<'s> {
    /// Creates a reader for a witness of a type with the three fields.
    pub(super) fn new(
        schema: &Schema,
        ty: &Type,
        container: &'s Container,
        output: &mut Output,
    ) -> Result<Self, HexError> {
        let part = |(name, is_list): (&str, bool)| {
            let field = container.names.find(name.as_bytes())?;
            let Kind::List(of, most) = schema.get(container.fields[field].ty).kind else {
                return None;
            };
            let Kind::ByteList(most_bytes) = schema.get(of).kind else {
                return None;
            };
            Some(Part {
                field,
                most: most.max(),
                most_bytes: most_bytes.max(),
                is_list,
            })
        };
        let [Some(headers), Some(codes), Some(state)] = PARTS.map(part) else {
            let why = format!("{} is not a witness", ty.name);
            return Err(TokenError::new(0, why).into());
        };
        Ok(Self {
            container,
            parts: [headers, codes, state],
            hex: Hex::new(WritePosition::End, u64::MAX),
            decoded: Output::default(),
            base: output.zeros(container.fixed_size)?,
            fields: output.begin_container(),
            state: State::Whole,
            taken: 0,
            prefix: Vec::with_capacity(MAX_PREFIX),
            item: 0,
            left: 0,
        })
    }

    /// Continues to read at `at`. Returns the end of the input that was read, and whether the
    /// string ended.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        output: &mut Output,
    ) -> Result<(usize, bool), HexError> {
        loop {
            let block = &bytes[..bytes.len().min(at + BLOCK)];
            let (end, is_over) = self.hex.read(block, at, &mut self.decoded)?;
            let mut decoded = std::mem::take(&mut self.decoded);
            let digits = Digits {
                end: end.saturating_sub(usize::from(is_over || self.hex.is_half())),
                count: self.taken + decoded.bytes.len() as u64,
            };
            self.push(&decoded.bytes, digits, output)?;
            decoded.bytes.clear();
            self.decoded = decoded;
            let is_stuck = end == at;
            at = end;
            if is_over {
                let State::Done = self.state else {
                    return Err(digits.wrong(self.taken, "the RLP ends inside an item"));
                };
                let slot = |field: usize| self.container.fields[field].offset;
                output.end_container(self.fields, self.base, slot)?;
                return Ok((at, true));
            }
            if is_stuck || at == bytes.len() {
                return Ok((at, false));
            }
        }
    }

    /// Reads decoded bytes of the RLP, which begin and end anywhere.
    fn push(&mut self, mut bytes: &[u8], at: Digits, output: &mut Output) -> Result<(), HexError> {
        while !bytes.is_empty() {
            self.taken = at.count - bytes.len() as u64;
            if let State::Inside(_, left) | State::Skip(left) = self.state {
                let now = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let (taken, rest) = bytes.split_at(now);
                bytes = rest;
                self.taken += now as u64;
                let left = left - now as u64;
                self.state = match self.state {
                    State::Inside(open, _) => {
                        self.add(taken, output)?;
                        match left {
                            0 => State::Element(open),
                            left => State::Inside(open, left),
                        }
                    }
                    _ if left == 0 => State::Part(PARTS.len() + 1),
                    _ => State::Skip(left),
                };
                self.close(at, output)?;
                continue;
            }
            if self.prefix.is_empty() {
                self.item = self.taken;
            }
            let (first, rest) = bytes.split_at(1);
            self.prefix.extend_from_slice(first);
            // the byte may be the item itself, or be read only to detect that
            let read = rlp_header(&self.prefix).map_err(|why| at.wrong(self.item, why))?;
            let Some(item) = read else {
                bytes = rest;
                continue;
            };
            let ahead = self.prefix.len() - item.size;
            let begun: Vec<u8> = self.prefix.drain(..).collect();
            self.begin(item, &begun[..item.size], at, output)?;
            match ahead {
                0 => {
                    bytes = rest;
                    self.taken += 1;
                }
                // one byte after the prefix was read
                _ => debug_assert_eq!(ahead, 1),
            }
            self.close(at, output)?;
        }
        self.taken = at.count;
        Ok(())
    }

    /// Begins an item whose prefix is complete: the witness, a list of it, or an element.
    fn begin(
        &mut self,
        item: crate::ssz::rlp::RlpHeader,
        written: &[u8],
        at: Digits,
        output: &mut Output,
    ) -> Result<(), HexError> {
        let begin = self.item;
        let wrong = |why: String| Err(at.wrong(begin, why));
        let whole = item.len.saturating_add(item.size as u64);
        match self.state {
            State::Whole if item.is_list => {
                self.left = item.len;
                self.state = State::Part(0);
            }
            State::Part(part) if item.is_list => {
                let name = PARTS.get(part).map_or("keys", |(name, _)| name);
                if whole > self.left {
                    return wrong(format!("{name} is longer than the RLP"));
                }
                self.left -= whole;
                let Some(part_of) = self.parts.get(part) else {
                    self.state = match item.len {
                        0 => State::Part(part + 1),
                        len => State::Skip(len),
                    };
                    return Ok(());
                };
                output.begin_field(part_of.field)?;
                self.state = State::Element(Open {
                    part,
                    left: item.len,
                    list: output.begin_list(),
                    base: output.len(),
                    count: 0,
                });
            }
            State::Element(mut open) => {
                let part = self.parts[open.part];
                let name = PARTS[open.part].0;
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
                output.begin_element()?;
                if part.is_list {
                    self.add(written, output)?;
                }
                self.state = State::Inside(open, item.len);
                if item.len == 0 {
                    self.state = State::Element(open);
                }
            }
            State::Done => return wrong("data after the RLP".into()),
            State::Whole | State::Part(_) => return wrong("expected a list".into()),
            // no item begins in these states
            State::Inside(..) | State::Skip(_) => {}
        }
        Ok(())
    }

    /// Ends the lists that have no bytes left, and moves on to the next one.
    fn close(&mut self, at: Digits, output: &mut Output) -> Result<(), HexError> {
        if let State::Element(Open {
            part,
            left: 0,
            list,
            base,
            ..
        }) = self.state
        {
            output.end_list(list, base)?;
            self.state = State::Part(part + 1);
        }
        if let State::Part(part) = self.state {
            match (PARTS.get(part), self.left) {
                (None, 0) => self.state = State::Done,
                (None, _) if part > PARTS.len() => {
                    return Err(at.wrong(self.taken, "a fifth item in the RLP"));
                }
                (Some((name, _)), 0) => {
                    let why = format!("{name} is missing in the RLP");
                    return Err(at.wrong(self.taken, why));
                }
                (_, _) => {}
            }
        }
        Ok(())
    }

    fn add(&self, bytes: &[u8], output: &mut Output) -> Result<(), SszErrorKind> {
        output.reserve(bytes.len())?;
        output.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

//! Reading values.

use std::borrow::Cow;

use super::frame::{Elements, Fields, Frame, Places, Union, NONE};
use super::hex::{self, Hex, Place, Stop};
use super::rlp::Witness;
use super::scan::{
    not_a_string, quoted_u256, quoted_u64, skip_white, string, what_begins_with, Wrong,
};
use super::{Envelope, Expect, Form, Got, Inside, Member, Skip, Target, ToSsz};
use crate::ssz::check::{bitlist, bitvector};
use crate::ssz::error::Problem;
use crate::ssz::rlp::encode_header;
use crate::ssz::schema::{Container, Fork, Json, Kind, Limit, Schema, Type, TypeId, OFFSET};

/// How far a value has been read.
enum Read {
    Whole,
    /// Its elements or fields are to come.
    Opened(Inside),
    Part,
}

/// A name and its colon.
enum Name<'t> {
    Here {
        name: Cow<'t, str>,
        end: usize,
    },
    /// The object ends instead.
    End,
    Part,
}

impl<'s> ToSsz<'s> {
    /// Fields, as long as none of them opens anything.
    pub(super) fn names(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        mut or_end: bool,
    ) -> Result<Inside, Stop> {
        loop {
            let Some(Frame::Container(frame)) = self.stack.last_mut() else {
                return self.other_names(bytes, at, or_end).map(Inside::Stored);
            };
            *at = skip_white(bytes, *at);
            let container = frame.container;
            let field = match container.names.begins(frame.next, &bytes[*at..]) {
                Some(len) => {
                    *at += len;
                    frame.next
                }
                None => match find_field(container, bytes, *at, or_end)? {
                    Found::Field(field, end) => {
                        *at = end;
                        field
                    }
                    Found::Unknown(end) => {
                        frame.field = NONE;
                        *at = end;
                        self.expect = Expect::Skip(Skip::default());
                        return Ok(Inside::Stored(Got::All));
                    }
                    Found::End => {
                        self.close(*at)?;
                        *at += 1;
                        return Ok(Inside::Next);
                    }
                    Found::Part => {
                        self.expect = Expect::Name { or_end };
                        return Ok(Inside::Stored(Got::Part));
                    }
                },
            };
            frame.field = field;
            let bit = 1 << field;
            if frame.seen & bit != 0 {
                return Err(Wrong::new(*at, "it is there twice").into());
            }
            frame.seen |= bit;
            frame.next = field + 1;
            let field_type = &container.fields[field];
            let place = frame.base + field_type.offset;
            let ty = self.schema.get(field_type.ty);
            if ty.size.is_none() {
                self.output.begin_field(field)?;
            }
            *at = skip_white(bytes, *at);
            match self.value(ty, place, bytes, at)? {
                Read::Whole => {}
                Read::Opened(inside) => return Ok(inside),
                Read::Part => return Ok(Inside::Stored(Got::Part)),
            }
            *at = skip_white(bytes, *at);
            match bytes.get(*at) {
                Some(b',') => *at += 1,
                _ => return Ok(Inside::Next),
            }
            if let Some(Frame::Container(frame)) = self.stack.last_mut() {
                frame.field = NONE;
            }
            or_end = false;
        }
    }

    /// Elements, as long as none of them opens anything.
    pub(super) fn elements(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        mut or_end: bool,
    ) -> Result<Inside, Stop> {
        loop {
            let Some(Frame::List(frame)) = self.stack.last_mut() else {
                return Ok(Inside::Stored(Got::Part));
            };
            *at = skip_white(bytes, *at);
            match bytes.get(*at) {
                None => {
                    self.expect = Expect::Element { or_end };
                    return Ok(Inside::Stored(Got::Part));
                }
                Some(b']') if or_end => {
                    self.close(*at)?;
                    *at += 1;
                    return Ok(Inside::Next);
                }
                Some(_) => {}
            }
            if frame.count == frame.most {
                let why = format!("more than {} elements", frame.most);
                // it is the list that is too long, not the last of them
                self.stack.pop();
                return Err(Wrong::new(*at, why).into());
            }
            let of = frame.of;
            let place = match frame.places {
                Places::Made(size) => frame.base + frame.count as usize * size,
                Places::Added(size) => self.output.zeros(size)?,
                Places::Variable(_) => {
                    self.output.begin_element()?;
                    0
                }
            };
            frame.count += 1;
            match self.value(of, place, bytes, at)? {
                Read::Whole => {}
                Read::Opened(inside) => return Ok(inside),
                Read::Part => return Ok(Inside::Stored(Got::Part)),
            }
            *at = skip_white(bytes, *at);
            match bytes.get(*at) {
                Some(b',') => *at += 1,
                _ => return Ok(Inside::Next),
            }
            or_end = false;
        }
    }

    /// What is open has ended.
    pub(super) fn close(&mut self, at: usize) -> Result<(), Stop> {
        match self
            .stack
            .pop()
            .map(|frame| frame.close(self.schema, &mut self.output))
        {
            None | Some(Ok(())) => Ok(()),
            Some(Err(Problem::Because(why))) => Err(Wrong::new(at, why).into()),
            Some(Err(problem)) => Err(problem.into()),
        }
    }

    /// A value of the type begins at `at`; one of its size belongs at `place`.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Got, Stop> {
        Ok(match self.value(ty, place, bytes, at)? {
            Read::Whole => {
                self.expect = Expect::Next;
                Got::All
            }
            Read::Opened(inside) => self.inside(inside, bytes, at)?,
            Read::Part => Got::Part,
        })
    }

    #[inline(always)]
    fn value(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Read, Stop> {
        let rest = &bytes[*at..];
        let len = match ty.kind {
            Kind::Uint(8) => {
                quoted_u64(rest)
                    .map_err(|wrong| after(*at, wrong))?
                    .map(|(value, len)| {
                        self.output.bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
                        len
                    })
            }
            Kind::ByteVector(size) => {
                let to = &mut self.output.bytes[place..place + size];
                match hex::whole_of_length(rest, to) {
                    Some(len) => Some(len),
                    None => return self.hex(ty, place, bytes, at),
                }
            }
            Kind::ByteList(limit) => match hex::whole(rest, most(limit), &mut self.output)? {
                Some(len) => Some(len),
                None => return self.hex(ty, place, bytes, at),
            },
            _ => return self.other_value(ty, place, bytes, at),
        };
        self.taken(ty, place, len, at)
    }

    /// A token of so many bytes was read; `None`: only a part of it is there.
    #[inline(always)]
    fn taken(
        &mut self,
        ty: &'s Type,
        place: usize,
        len: Option<usize>,
        at: &mut usize,
    ) -> Result<Read, Stop> {
        match len {
            Some(len) => {
                *at += len;
                Ok(Read::Whole)
            }
            None => {
                self.expect = Expect::Value(ty, place);
                Ok(Read::Part)
            }
        }
    }

    fn other_value(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Read, Stop> {
        let rest = &bytes[*at..];
        let Some(first) = rest.first() else {
            return self.taken(ty, place, None, at);
        };
        let wrong = |why: String| Stop::from(Wrong::new(*at, why));
        let len = match &ty.kind {
            Kind::Container(container) if ty.json == Json::Rlp => {
                let mut witness = Witness::new(self.schema, ty, container, &mut self.output)?;
                let (end, is_over) = witness.read(bytes, *at, &mut self.output)?;
                *at = end;
                if is_over {
                    return Ok(Read::Whole);
                }
                self.expect = Expect::Rlp(Box::new(witness));
                return Ok(Read::Part);
            }
            Kind::Container(container) => {
                if *first != b'{' {
                    return Err(wrong(format!(
                        "{}, not an object",
                        what_begins_with(*first)
                    )));
                }
                *at += 1;
                return self.open_container(ty, container, place);
            }
            Kind::Vector(of, len) => {
                if *first != b'[' {
                    return Err(wrong(format!("{}, not an array", what_begins_with(*first))));
                }
                *at += 1;
                return self.open_list(*of, *len as u64, true, place);
            }
            Kind::List(of, limit) => {
                if *first != b'[' {
                    return Err(wrong(format!("{}, not an array", what_begins_with(*first))));
                }
                *at += 1;
                return self.open_list(*of, most(*limit), false, place);
            }
            Kind::Union(options) => {
                if *first != b'{' {
                    return Err(wrong(format!(
                        "{}, not an object",
                        what_begins_with(*first)
                    )));
                }
                *at += 1;
                self.open(Frame::Union(Union {
                    options,
                    chosen: None,
                    has_data: false,
                }))?;
                return Ok(Read::Opened(Inside::Name(true)));
            }
            Kind::Bitlist(limit) => {
                let start = self.output.len();
                let most = most(*limit).saturating_add(1).div_ceil(8);
                match hex::whole(rest, most, &mut self.output)? {
                    Some(len) => {
                        bitlist(&self.output.bytes[start..], *limit).map_err(wrong)?;
                        Some(len)
                    }
                    None => return self.hex(ty, place, bytes, at),
                }
            }
            Kind::Bitvector(bits) => {
                let to = &mut self.output.bytes[place..place + bits.div_ceil(8)];
                match hex::whole_of_length(rest, to) {
                    Some(len) => {
                        bitvector(to, *bits).map_err(wrong)?;
                        Some(len)
                    }
                    None => return self.hex(ty, place, bytes, at),
                }
            }
            Kind::Optional(of) => {
                return match literal(rest, b"null", *at) {
                    Ok(Some(len)) => {
                        *at += len;
                        Ok(Read::Whole)
                    }
                    Ok(None) => self.taken(ty, place, None, at),
                    Err(_) => {
                        let of = self.schema.get(*of);
                        let place = match of.size {
                            Some(size) => self.output.zeros(size)?,
                            None => {
                                let place = self.output.zeros(OFFSET)?;
                                self.output.bytes[place] = OFFSET as u8;
                                place
                            }
                        };
                        self.other_or_not(of, place, bytes, at)
                    }
                };
            }
            Kind::Boolean => match first {
                b't' => literal(rest, b"true", *at)?.inspect(|_| self.output.bytes[place] = 1),
                b'f' => literal(rest, b"false", *at)?,
                other => {
                    return Err(wrong(format!(
                        "{}, not a boolean",
                        what_begins_with(*other)
                    )));
                }
            },
            Kind::Uint(1 | 2 | 4 | 8) => {
                let read = quoted_u64(rest).map_err(|wrong| after(*at, wrong))?;
                let size = ty.size.unwrap_or(0);
                match read {
                    Some((value, len)) => {
                        let value = value.to_le_bytes();
                        let (value, rest) = value.split_at(size);
                        if rest.iter().any(|byte| *byte != 0) {
                            return Err(wrong(format!("more than {} bits", 8 * size)));
                        }
                        self.output.bytes[place..place + size].copy_from_slice(value);
                        Some(len)
                    }
                    None => None,
                }
            }
            Kind::Uint(size) => {
                let read = quoted_u256(rest).map_err(|wrong| after(*at, wrong))?;
                match read {
                    Some((value, len)) => {
                        let (value, rest) = value.split_at(*size);
                        if rest.iter().any(|byte| *byte != 0) {
                            return Err(wrong(format!("more than {} bits", 8 * size)));
                        }
                        self.output.bytes[place..place + size].copy_from_slice(value);
                        Some(len)
                    }
                    None => None,
                }
            }
            Kind::Text(limit) => match text(rest).map_err(|wrong| after(*at, wrong))? {
                Some((text, len)) => {
                    if text.len() as u64 > *limit {
                        return Err(wrong(format!("more than {limit} bytes")));
                    }
                    let start = self.output.zeros(text.len())?;
                    self.output.bytes[start..].copy_from_slice(text.as_bytes());
                    Some(len)
                }
                None => None,
            },
            Kind::Enum(words) => match text(rest).map_err(|wrong| after(*at, wrong))? {
                Some((text, len)) => match words.iter().position(|word| **word == *text) {
                    Some(word) => {
                        self.output.bytes[place] = word as u8;
                        Some(len)
                    }
                    None => return Err(wrong(format!("none of {}", words.join(", ")))),
                },
                None => None,
            },
            Kind::ByteVector(_) | Kind::ByteList(_) => None,
        };
        self.taken(ty, place, len, at)
    }

    /// [`value`](Self::value), where it need not be fast.
    #[inline(never)]
    fn other_or_not(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Read, Stop> {
        self.value(ty, place, bytes, at)
    }

    fn open(&mut self, frame: Frame<'s>) -> Result<(), Problem> {
        let refused = |_| Problem::NoMemory(size_of::<Frame<'_>>());
        self.stack.try_reserve(1).map_err(refused)?;
        self.stack.push(frame);
        Ok(())
    }

    fn open_container(
        &mut self,
        ty: &'s Type,
        container: &'s Container,
        place: usize,
    ) -> Result<Read, Stop> {
        let base = match ty.size {
            Some(_) => place,
            None => self.output.zeros(container.fixed_size)?,
        };
        let parts = self.output.begin_container();
        self.open(Frame::Container(Fields {
            container,
            base,
            seen: 0,
            next: 0,
            field: NONE,
            parts,
            is_fixed: ty.size.is_some(),
        }))?;
        Ok(Read::Opened(Inside::Name(true)))
    }

    fn open_list(
        &mut self,
        of: TypeId,
        most: u64,
        exactly: bool,
        place: usize,
    ) -> Result<Read, Stop> {
        let of = self.schema.get(of);
        let (places, base) = match of.size {
            Some(size) if exactly => (Places::Made(size), place),
            Some(size) => (Places::Added(size), self.output.len()),
            None => (
                Places::Variable(self.output.begin_list()),
                self.output.len(),
            ),
        };
        self.open(Frame::List(Elements {
            of,
            base,
            count: 0,
            most,
            exactly,
            places,
        }))?;
        Ok(Read::Opened(Inside::Element(true)))
    }

    /// A string of bytes that is cut, or wrong, or has escapes.
    fn hex(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Read, Stop> {
        // white space may still come
        if *at == bytes.len() {
            return self.taken(ty, place, None, at);
        }
        if ty.json == Json::Header && bytes[*at] == b'{' {
            return self.header(ty, place, bytes, at);
        }
        let place = match ty.size {
            Some(_) => Place::At(place),
            None => Place::End,
        };
        let most = match ty.kind {
            Kind::ByteVector(size) => size as u64,
            Kind::Bitvector(bits) => bits.div_ceil(8) as u64,
            Kind::ByteList(limit) => most(limit),
            Kind::Bitlist(limit) => most(limit).saturating_add(1).div_ceil(8),
            _ => 0,
        };
        let mut hex = Hex::new(place, most);
        let (end, is_over) = hex.read(bytes, *at, &mut self.output)?;
        let begin = *at;
        *at = end;
        if is_over {
            self.end_hex(ty, hex, begin)?;
            return Ok(Read::Whole);
        }
        self.expect = Expect::Hex(ty, hex);
        Ok(Read::Part)
    }

    /// A header that is an object, which must be there as a whole.
    fn header(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Read, Stop> {
        let (end, is_over) = Skip::default().read(bytes, *at)?;
        if !is_over {
            return self.taken(ty, place, None, at);
        }
        let wrong = |why| Stop::from(Wrong::new(*at, why));
        let header = encode_header(&bytes[*at..end]).map_err(wrong)?;
        if let Kind::ByteList(Limit::AtMost(most)) = ty.kind {
            if header.len() as u64 > most {
                return Err(wrong(format!("a header of more than {most} bytes")));
            }
        }
        let start = self.output.zeros(header.len())?;
        self.output.bytes[start..].copy_from_slice(&header);
        *at = end;
        Ok(Read::Whole)
    }

    /// A string of bytes has ended: it must be a value of its type.
    pub(super) fn end_hex(&self, ty: &Type, hex: Hex, at: usize) -> Result<(), Stop> {
        let count = hex.count() as usize;
        let wrong = |why: String| Err(Wrong::new(at, why).into());
        if let Some(size) = ty.size.filter(|size| *size != count) {
            return wrong(format!("{count} bytes, not {size}"));
        }
        let bytes = &self.output.bytes;
        let bytes = match hex.place() {
            Place::At(place) => &bytes[place..place + count],
            Place::End => &bytes[bytes.len() - count..],
        };
        match ty.kind {
            Kind::Bitvector(bits) => bitvector(bytes, bits).or_else(wrong),
            Kind::Bitlist(limit) => bitlist(bytes, limit).or_else(wrong),
            _ => Ok(()),
        }
    }

    /// The whole value begins at `at`.
    pub(super) fn start(&mut self, form: Form, bytes: &[u8], at: &mut usize) -> Result<Got, Stop> {
        let Some(first) = bytes.get(*at) else {
            return Ok(Got::Part);
        };
        let kind = match self.target {
            Target::Type(ty) => &self.schema.get(ty).kind,
            Target::Named(..) => &Kind::Boolean,
        };
        let is_enveloped = match (form, first, kind) {
            (Form::Bare, ..) => false,
            (Form::Enveloped, ..) => true,
            (Form::Either, b'{', Kind::Container(container)) => {
                let at = skip_white(bytes, *at + 1);
                match find_field(container, bytes, at, true)? {
                    Found::Unknown(_) => true,
                    Found::Field(..) | Found::End => false,
                    Found::Part => return Ok(Got::Part),
                }
            }
            (Form::Either, first, _) => *first == b'{',
        };
        if is_enveloped {
            if *first != b'{' {
                let why = format!("{}, not an object", what_begins_with(*first));
                return Err(Wrong::new(*at, why).into());
            }
            *at += 1;
            self.open(Frame::Envelope(Envelope::default()))?;
            self.expect = Expect::Name { or_end: true };
            return Ok(Got::All);
        }
        let ty = self.target_type(*at)?;
        self.begin_whole(ty)?;
        Ok(Got::All)
    }

    /// What the value is to be.
    fn target_type(&mut self, at: usize) -> Result<&'s Type, Wrong> {
        let (preset, name) = match &self.target {
            Target::Type(ty) => return Ok(self.schema.get(*ty)),
            Target::Named(preset, name) => (*preset, name),
        };
        let Some(version) = &self.version else {
            return Err(Wrong::new(at, "no version before it says what it is"));
        };
        let fork: Fork = version
            .parse()
            .map_err(|unknown| Wrong::new(at, format!("the version {unknown}")))?;
        self.schema = Schema::of(fork, preset);
        let ty = self.schema.find(name);
        let ty = ty.ok_or_else(|| Wrong::new(at, format!("{fork} has no {name}")))?;
        Ok(self.schema.get(ty))
    }

    /// The whole value is to come.
    fn begin_whole(&mut self, ty: &'s Type) -> Result<(), Stop> {
        let place = match ty.size {
            Some(size) => self.output.zeros(size)?,
            None => 0,
        };
        self.expect = Expect::Value(ty, place);
        Ok(())
    }

    /// A member of a union or an envelope.
    fn other_names(&mut self, bytes: &[u8], at: &mut usize, or_end: bool) -> Result<Got, Stop> {
        *at = skip_white(bytes, *at);
        let (name, end) = match name(bytes, *at, or_end)? {
            Name::Here { name, end } => (name, end),
            Name::End => {
                self.close(*at)?;
                *at += 1;
                self.expect = Expect::Next;
                return Ok(Got::All);
            }
            Name::Part => {
                self.expect = Expect::Name { or_end };
                return Ok(Got::Part);
            }
        };
        match self.stack.last_mut() {
            Some(Frame::Envelope(envelope)) => {
                let member = envelope.member(name.as_bytes(), *at)?;
                *at = end;
                match member {
                    Member::Value => {
                        let ty = self.target_type(*at)?;
                        self.begin_whole(ty)?;
                    }
                    Member::Version => self.expect = Expect::Version,
                    Member::Other => self.expect = Expect::Skip(Skip::default()),
                }
            }
            Some(Frame::Union(union)) => match &*name {
                "selector" if union.chosen.is_some() => {
                    return Err(Wrong::new(*at, "selector is there twice").into());
                }
                "selector" => {
                    let value = skip_white(bytes, end);
                    let read = quoted_u64(&bytes[value..]).map_err(|wrong| after(value, wrong))?;
                    let Some((selector, len)) = read else {
                        self.expect = Expect::Name { or_end };
                        return Ok(Got::Part);
                    };
                    let option = union
                        .options
                        .iter()
                        .find(|(option, _)| u64::from(*option) == selector);
                    let Some((selector, ty)) = option else {
                        return Err(Wrong::new(value, format!("no option {selector}")).into());
                    };
                    union.chosen = Some(*ty);
                    let place = self.output.zeros(1)?;
                    self.output.bytes[place] = *selector;
                    *at = value + len;
                    self.expect = Expect::Next;
                }
                "data" if union.has_data => {
                    return Err(Wrong::new(*at, "data is there twice").into());
                }
                "data" => {
                    let Some(ty) = union.chosen else {
                        return Err(Wrong::new(*at, "data before its selector").into());
                    };
                    union.has_data = true;
                    *at = end;
                    self.begin_whole(self.schema.get(ty))?;
                }
                _ => {
                    *at = end;
                    self.expect = Expect::Skip(Skip::default());
                }
            },
            _ => {}
        }
        Ok(Got::All)
    }

    /// The version that an envelope says.
    pub(super) fn read_version(&mut self, bytes: &[u8], at: &mut usize) -> Result<Got, Stop> {
        let start = skip_white(bytes, *at);
        match text(&bytes[start..]).map_err(|wrong| after(start, wrong))? {
            Some((version, len)) => {
                self.version = Some(version.into_owned());
                *at = start + len;
                self.expect = Expect::Next;
                Ok(Got::All)
            }
            None => Ok(Got::Part),
        }
    }
}

/// A name, if it is a field's.
enum Found {
    /// ... and where its value may begin.
    Field(usize, usize),
    Unknown(usize),
    End,
    Part,
}

fn find_field(
    container: &Container,
    bytes: &[u8],
    at: usize,
    or_end: bool,
) -> Result<Found, Wrong> {
    Ok(match name(bytes, at, or_end)? {
        Name::Here { name, end } => match container.names.find(name.as_bytes()) {
            Some(field) => Found::Field(field, end),
            None => Found::Unknown(end),
        },
        Name::End => Found::End,
        Name::Part => Found::Part,
    })
}

/// The name at `at`.
fn name(bytes: &[u8], at: usize, or_end: bool) -> Result<Name<'_>, Wrong> {
    let rest = &bytes[at..];
    match rest.first() {
        None => return Ok(Name::Part),
        Some(b'"') => {}
        Some(b'}') if or_end => return Ok(Name::End),
        Some(_) => return Err(Wrong::new(at, "a name should be here")),
    }
    let Some((name, len)) = text(rest).map_err(|wrong| after(at, wrong))? else {
        return Ok(Name::Part);
    };
    let colon = skip_white(bytes, at + len);
    match bytes.get(colon) {
        None => Ok(Name::Part),
        Some(b':') => Ok(Name::Here {
            name,
            end: colon + 1,
        }),
        Some(_) => Err(Wrong::new(colon, "a colon should be here")),
    }
}

/// A string that is all there, and how long its token is.
fn text(bytes: &[u8]) -> Result<Option<(Cow<'_, str>, usize)>, Wrong> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'"') => {}
        Some(other) => return Err(Wrong::new(0, not_a_string(*other))),
    }
    let Some((len, escapes)) = string(bytes) else {
        return Ok(None);
    };
    let token = &bytes[..len];
    if !escapes {
        // none of the control characters may be in it
        let inner = &token[1..len - 1];
        if inner.iter().all(|byte| *byte >= b' ') {
            if let Ok(text) = std::str::from_utf8(inner) {
                return Ok(Some((text.into(), len)));
            }
        }
    }
    match serde_json::from_slice::<String>(token) {
        Ok(text) => Ok(Some((text.into(), len))),
        Err(bad) => Err(Wrong::new(0, format!("no string: {bad}"))),
    }
}

fn literal(bytes: &[u8], literal: &[u8], at: usize) -> Result<Option<usize>, Wrong> {
    if bytes.starts_with(literal) {
        Ok(Some(literal.len()))
    } else if literal.starts_with(bytes) {
        Ok(None)
    } else {
        Err(Wrong::new(at, "no JSON"))
    }
}

fn most(limit: Limit) -> u64 {
    match limit {
        Limit::AtMost(limit) => limit,
        Limit::Progressive => u64::MAX,
    }
}

fn after(at: usize, wrong: Wrong) -> Wrong {
    Wrong {
        at: at + wrong.at,
        ..wrong
    }
}

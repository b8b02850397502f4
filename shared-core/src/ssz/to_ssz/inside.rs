//! Reader of members: fields and elements, one after another.

use super::frame::{Frame, Places, NONE};
use super::hex::Stop;
use super::scan::{skip_white, Wrong};
use super::text::{find_field, Found};
use super::value::Read;
use super::{Expect, Got, Inside, Skip, ToSsz};
use crate::ssz::error::Problem;

impl ToSsz<'_> {
    /// Reads fields until one of them opens a value, or the input ends.
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
            if let Some(inside) = self.value(ty, place, bytes, at)?.leads_to(bytes, at) {
                return Ok(inside);
            }
            if let Some(Frame::Container(frame)) = self.stack.last_mut() {
                frame.field = NONE;
            }
            or_end = false;
        }
    }

    /// Reads elements until one of them opens a value, or the input ends.
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
                // the path of the error is the list, not its last element
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
            if let Some(inside) = self.value(of, place, bytes, at)?.leads_to(bytes, at) {
                return Ok(inside);
            }
            or_end = false;
        }
    }

    /// Closes the innermost open value.
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
}

impl Read {
    /// Returns the next step, or `None` if a comma was read and another field or element follows.
    #[inline(always)]
    fn leads_to(self, bytes: &[u8], at: &mut usize) -> Option<Inside> {
        match self {
            Self::Whole => {}
            Self::Opened(inside) => return Some(inside),
            Self::Part => return Some(Inside::Stored(Got::Part)),
        }
        *at = skip_white(bytes, *at);
        if bytes.get(*at) != Some(&b',') {
            return Some(Inside::Next);
        }
        *at += 1;
        None
    }
}

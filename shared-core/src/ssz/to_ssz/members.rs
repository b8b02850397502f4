//! Reader of members: fields and elements, one after another.

use super::frame::{ListElementPlacement, OpenJsonValue, NO_FIELD};
use super::hex::JsonToSszError;
use super::json_strings::{read_field_name, FieldSearchResult};
use super::scan::{skip_white_space, JsonTokenError};
use super::value::JsonValueReadResult;
use super::{ExpectedMemberToken, ExpectedToken, InputCompleteness, JsonToSsz, JsonValueSkipper};
use crate::ssz::error::SszErrorKind;

impl JsonToSsz<'_> {
    /// Reads names and values of an open container until a value must be opened, or the input ends.
    pub(super) fn read_container_members(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        mut or_end: bool,
    ) -> Result<ExpectedMemberToken, JsonToSszError> {
        loop {
            let Some(OpenJsonValue::Container(frame)) = self.stack.last_mut() else {
                return self
                    .read_member(bytes, at, or_end)
                    .map(ExpectedMemberToken::Stored);
            };
            *at = skip_white_space(bytes, *at);
            let container = frame.container;
            let field = match container.names.match_field_key(frame.next, &bytes[*at..]) {
                Some(len) => {
                    *at += len;
                    frame.next
                }
                None => match read_field_name(container, bytes, *at, or_end)? {
                    FieldSearchResult::Field(field, end) => {
                        *at = end;
                        field
                    }
                    FieldSearchResult::Unknown(end) => {
                        frame.field = NO_FIELD;
                        *at = end;
                        self.expect = ExpectedToken::Skip(JsonValueSkipper::default());
                        return Ok(ExpectedMemberToken::Stored(InputCompleteness::All));
                    }
                    FieldSearchResult::End => {
                        self.close_innermost(*at)?;
                        *at += 1;
                        return Ok(ExpectedMemberToken::Next);
                    }
                    FieldSearchResult::Part => {
                        self.expect = ExpectedToken::Name { or_end };
                        return Ok(ExpectedMemberToken::Stored(InputCompleteness::Part));
                    }
                },
            };
            frame.field = field;
            let bit = 1 << field;
            if frame.seen & bit != 0 {
                return Err(JsonTokenError::new(*at, "the member occurs twice").into());
            }
            frame.seen |= bit;
            frame.next = field + 1;
            let field_type = &container.fields[field];
            let place = frame.base + field_type.offset;
            let ty = self.schema.type_by_id(field_type.ty);
            if ty.size.is_none() {
                self.output.record_field_start(field)?;
            }
            *at = skip_white_space(bytes, *at);
            if let Some(inside) = self
                .read_value(ty, place, bytes, at)?
                .next_step_after_value(bytes, at)
            {
                return Ok(inside);
            }
            if let Some(OpenJsonValue::Container(frame)) = self.stack.last_mut() {
                frame.field = NO_FIELD;
            }
            or_end = false;
        }
    }

    /// Reads the elements of an open list or vector until one must be opened, or the input ends.
    pub(super) fn read_elements(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        mut or_end: bool,
    ) -> Result<ExpectedMemberToken, JsonToSszError> {
        loop {
            let Some(OpenJsonValue::List(frame)) = self.stack.last_mut() else {
                return Ok(ExpectedMemberToken::Stored(InputCompleteness::Part));
            };
            *at = skip_white_space(bytes, *at);
            match bytes.get(*at) {
                None => {
                    self.expect = ExpectedToken::Element { or_end };
                    return Ok(ExpectedMemberToken::Stored(InputCompleteness::Part));
                }
                Some(b']') if or_end => {
                    self.close_innermost(*at)?;
                    *at += 1;
                    return Ok(ExpectedMemberToken::Next);
                }
                Some(_) => {}
            }
            if frame.count == frame.most {
                let why = format!("more than {} elements", frame.most);
                // the path of the error is the list, not its last element
                self.stack.pop();
                return Err(JsonTokenError::new(*at, why).into());
            }
            let of = frame.of;
            let place = match frame.places {
                ListElementPlacement::Made(size) => frame.base + frame.count as usize * size,
                ListElementPlacement::Added(size) => self.output.append_zeros(size)?,
                ListElementPlacement::Variable(_) => {
                    self.output.record_element_start()?;
                    0
                }
            };
            frame.count += 1;
            if let Some(inside) = self
                .read_value(of, place, bytes, at)?
                .next_step_after_value(bytes, at)
            {
                return Ok(inside);
            }
            or_end = false;
        }
    }

    /// Ends the innermost open object or array, whose bracket was read.
    pub(super) fn close_innermost(&mut self, at: usize) -> Result<(), JsonToSszError> {
        match self
            .stack
            .pop()
            .map(|frame| frame.close_value(self.schema, &mut self.output))
        {
            None | Some(Ok(())) => Ok(()),
            Some(Err(SszErrorKind::Because(why))) => Err(JsonTokenError::new(at, why).into()),
            Some(Err(problem)) => Err(problem.into()),
        }
    }
}

impl JsonValueReadResult {
    /// Returns the next step after a value, or `None` if a comma was read and another field or
    /// element follows.
    #[inline(always)]
    fn next_step_after_value(self, bytes: &[u8], at: &mut usize) -> Option<ExpectedMemberToken> {
        match self {
            Self::Whole => {}
            Self::Opened(inside) => return Some(inside),
            Self::Part => return Some(ExpectedMemberToken::Stored(InputCompleteness::Part)),
        }
        *at = skip_white_space(bytes, *at);
        if bytes.get(*at) != Some(&b',') {
            return Some(ExpectedMemberToken::Next);
        }
        *at += 1;
        None
    }
}

//! Readers of envelopes and unions.

use super::envelope::{Envelope, InputForm, Member};
use super::frame::Frame;
use super::hex::HexError;
use super::names::{find_field, name, shift_error, text, FieldMatch, NameToken};
use super::scan::{quoted_u64, skip_white, token_kind, TokenError};
use super::{InputState, NextToken, Target, ToSsz, ValueSkipper};
use crate::ssz::error::SszErrorKind;
use crate::ssz::schema::{Container, Fork, Kind, Schema, Type};

/// Returns whether the first name of a text is not the field of that name, but an envelope's
/// member: an `Attestation` has `data`, too. `None`: the following input is not available yet.
fn is_envelope_member(
    schema: &Schema,
    container: &Container,
    field: usize,
    bytes: &[u8],
    end: usize,
) -> Option<bool> {
    let field = &container.fields[field];
    let at = skip_white(bytes, end);
    match &*field.json_name {
        // the name of a fork instead of a number
        "version" => match text(&bytes[at..]) {
            Ok(Some((version, _))) => Some(version.parse::<Fork>().is_ok()),
            Ok(None) => None,
            Err(_) => Some(false),
        },
        // the content begins as the whole value does
        "data" => {
            if *bytes.get(at)? != b'{' {
                return Some(false);
            }
            match name(bytes, skip_white(bytes, at + 1), true) {
                Ok(NameToken::Here { name, .. }) => {
                    let name = name.as_bytes();
                    let is_of_data = match &schema.get(field.ty).kind {
                        Kind::Container(data) => data.names.find(name).is_some(),
                        _ => false,
                    };
                    Some(container.names.find(name).is_some() && !is_of_data)
                }
                Ok(NameToken::Part) => None,
                Ok(NameToken::End) | Err(_) => Some(false),
            }
        }
        _ => Some(false),
    }
}

impl<'s> ToSsz<'s> {
    /// Reads the first bytes of the input at `at`, and decides whether the value has an envelope.
    pub(super) fn start(
        &mut self,
        form: InputForm,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputState, HexError> {
        let Some(first) = bytes.get(*at) else {
            return Ok(InputState::Part);
        };
        let kind = match self.target {
            Target::Type(ty) => &self.schema.get(ty).kind,
            Target::Named(..) | Target::Nothing => &Kind::Boolean,
        };
        let is_enveloped = match (form, first, kind) {
            (InputForm::Bare, ..) => false,
            (InputForm::Enveloped, ..) => true,
            (InputForm::Either, b'{', Kind::Container(container)) => {
                let at = skip_white(bytes, *at + 1);
                match find_field(container, bytes, at, true)? {
                    FieldMatch::Unknown(_) => true,
                    FieldMatch::Field(field, end) => {
                        match is_envelope_member(self.schema, container, field, bytes, end) {
                            Some(is_enveloped) => is_enveloped,
                            None => return Ok(InputState::Part),
                        }
                    }
                    FieldMatch::End => false,
                    FieldMatch::Part => return Ok(InputState::Part),
                }
            }
            (InputForm::Either, first, _) => *first == b'{',
        };
        if is_enveloped {
            if *first != b'{' {
                let why = format!("{}, not an object", token_kind(*first));
                return Err(TokenError::new(*at, why).into());
            }
            *at += 1;
            self.open(Frame::Envelope(Envelope::default()))?;
            self.expect = NextToken::Name { or_end: true };
            return Ok(InputState::All);
        }
        let ty = self.target_type(*at)?;
        self.start_enveloped(ty)?;
        Ok(InputState::All)
    }

    /// Returns the type of the value, which the envelope's version may have to determine first.
    fn target_type(&mut self, at: usize) -> Result<&'s Type, HexError> {
        let (preset, name) = match &self.target {
            Target::Type(ty) => return Ok(self.schema.get(*ty)),
            Target::Named(preset, name) => (*preset, name),
            Target::Nothing => return Err(TokenError::new(at, "no type").into()),
        };
        let Some(version) = &self.version else {
            return Err(SszErrorKind::NoVersion.into());
        };
        let fork: Fork = version
            .parse()
            .map_err(|unknown| TokenError::new(at, format!("the version {unknown}")))?;
        self.schema = Schema::for_fork(fork, preset);
        let ty = self.schema.find(name);
        let ty = ty.ok_or_else(|| TokenError::new(at, format!("{fork} has no type {name}")))?;
        Ok(self.schema.get(ty))
    }

    /// Sets the value, at its member of the envelope, as the next token.
    fn start_enveloped(&mut self, ty: &'s Type) -> Result<(), HexError> {
        let place = match ty.size {
            Some(size) => self.output.zeros(size)?,
            None => 0,
        };
        self.expect = NextToken::Value(ty, place);
        Ok(())
    }

    /// Reads a name of an envelope or a union and its colon, and sets the member's value as the
    /// next token.
    pub(super) fn read_member(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        or_end: bool,
    ) -> Result<InputState, HexError> {
        *at = skip_white(bytes, *at);
        let (name, end) = match name(bytes, *at, or_end)? {
            NameToken::Here { name, end } => (name, end),
            NameToken::End => {
                self.close(*at)?;
                *at += 1;
                self.expect = NextToken::Next;
                return Ok(InputState::All);
            }
            NameToken::Part => {
                self.expect = NextToken::Name { or_end };
                return Ok(InputState::Part);
            }
        };
        match self.stack.last_mut() {
            Some(Frame::Envelope(envelope)) => {
                let is_null = match bytes.get(skip_white(bytes, end)) {
                    Some(first) => *first == b'n',
                    None if matches!(&*name, "error" | "result") => {
                        self.expect = NextToken::Name { or_end };
                        return Ok(InputState::Part);
                    }
                    None => false,
                };
                let member = envelope.member(name.as_bytes(), *at)?;
                // some nodes write a null error next to a result
                if member == Member::Error && !is_null {
                    return Err(SszErrorKind::Error.into());
                }
                if let Member::Flag(flag) = member {
                    let Some(first) = bytes.get(skip_white(bytes, end)) else {
                        self.expect = NextToken::Name { or_end };
                        return Ok(InputState::Part);
                    };
                    let value = match first {
                        b't' => Some(true),
                        b'f' => Some(false),
                        _ => None,
                    };
                    if self
                        .flags
                        .slot(flag)
                        .replace(value.unwrap_or_default())
                        .is_some()
                    {
                        return Err(TokenError::new(*at, format!("{name} occurs twice")).into());
                    }
                    *self.flags.slot(flag) = value;
                }
                let is_null = is_null && name == "result";
                *at = end;
                match member {
                    Member::Value if matches!(self.target, Target::Nothing) => {
                        self.expect = NextToken::Skip(ValueSkipper::default());
                    }
                    Member::Value => {
                        let ty = self.target_type(*at)?;
                        if is_null && !matches!(ty.kind, Kind::Optional(_)) {
                            return Err(SszErrorKind::Null.into());
                        }
                        self.start_enveloped(ty)?;
                    }
                    Member::Version => self.expect = NextToken::Version,
                    Member::Flag(_) | Member::Error | Member::Other => {
                        self.expect = NextToken::Skip(ValueSkipper::default());
                    }
                }
            }
            Some(Frame::Union(union)) => match &*name {
                "selector" if union.chosen.is_some() => {
                    return Err(TokenError::new(*at, "selector occurs twice").into());
                }
                "selector" => {
                    let value = skip_white(bytes, end);
                    let read =
                        quoted_u64(&bytes[value..]).map_err(|wrong| shift_error(value, wrong))?;
                    let Some((selector, len)) = read else {
                        self.expect = NextToken::Name { or_end };
                        return Ok(InputState::Part);
                    };
                    let option = union
                        .options
                        .iter()
                        .find(|(option, _)| u64::from(*option) == selector);
                    let Some((selector, ty)) = option else {
                        return Err(TokenError::new(
                            value,
                            format!("the union has no option {selector}"),
                        )
                        .into());
                    };
                    union.chosen = Some(*ty);
                    let place = self.output.zeros(1)?;
                    self.output.bytes[place] = *selector;
                    *at = value + len;
                    self.expect = NextToken::Next;
                }
                "data" if union.has_data => {
                    return Err(TokenError::new(*at, "data occurs twice").into());
                }
                "data" => {
                    let Some(ty) = union.chosen else {
                        return Err(TokenError::new(*at, "data precedes its selector").into());
                    };
                    union.has_data = true;
                    *at = end;
                    self.start_enveloped(self.schema.get(ty))?;
                }
                _ => {
                    *at = end;
                    self.expect = NextToken::Skip(ValueSkipper::default());
                }
            },
            _ => {}
        }
        Ok(InputState::All)
    }

    /// Reads the value of the envelope's `version`, which names the fork.
    pub(super) fn read_version(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputState, HexError> {
        let start = skip_white(bytes, *at);
        match text(&bytes[start..]).map_err(|wrong| shift_error(start, wrong))? {
            Some((version, len)) => {
                self.version = Some(version.into_owned());
                *at = start + len;
                self.expect = NextToken::Next;
                Ok(InputState::All)
            }
            None => Ok(InputState::Part),
        }
    }
}

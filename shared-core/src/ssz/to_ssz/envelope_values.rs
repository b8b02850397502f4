//! Readers of envelopes and unions.

use super::envelope::{EnvelopeMember, InputForm, OpenEnvelope};
use super::frame::OpenFrame;
use super::hex::InputError;
use super::names::{find_field, read_member_name, read_text, shift_error, FieldMatch, NameToken};
use super::scan::{read_quoted_u64, skip_white_space, token_kind, TokenError};
use super::{InputState, JsonToSsz, NextToken, TargetType, ValueSkipper};
use crate::ssz::error::SszErrorKind;
use crate::ssz::schema::{ContainerLayout, Fork, Schema, SszType, TypeKind};

/// Returns whether the first name of a text is not the field of that name, but an envelope's
/// member: an `Attestation` has `data`, too. `None`: the following input is not available yet.
fn is_envelope_member(
    schema: &Schema,
    container: &ContainerLayout,
    field: usize,
    bytes: &[u8],
    end: usize,
) -> Option<bool> {
    let field = &container.fields[field];
    let at = skip_white_space(bytes, end);
    match &*field.json_name {
        // the name of a fork instead of a number
        "version" => match read_text(&bytes[at..]) {
            Ok(Some((version, _))) => Some(version.parse::<Fork>().is_ok()),
            Ok(None) => None,
            Err(_) => Some(false),
        },
        // the content begins as the whole value does
        "data" => {
            if *bytes.get(at)? != b'{' {
                return Some(false);
            }
            match read_member_name(bytes, skip_white_space(bytes, at + 1), true) {
                Ok(NameToken::Here { name, .. }) => {
                    let name = name.as_bytes();
                    let is_of_data = match &schema.get(field.ty).kind {
                        TypeKind::Container(data) => data.names.find_field(name).is_some(),
                        _ => false,
                    };
                    Some(container.names.find_field(name).is_some() && !is_of_data)
                }
                Ok(NameToken::Part) => None,
                Ok(NameToken::End) | Err(_) => Some(false),
            }
        }
        _ => Some(false),
    }
}

impl<'s> JsonToSsz<'s> {
    /// Reads the first bytes of the input at `at`, and decides whether the value has an envelope.
    pub(super) fn start_input(
        &mut self,
        form: InputForm,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputState, InputError> {
        let Some(first) = bytes.get(*at) else {
            return Ok(InputState::Part);
        };
        let kind = match self.target {
            TargetType::Type(ty) => &self.schema.get(ty).kind,
            TargetType::Named(..) | TargetType::Nothing => &TypeKind::Boolean,
        };
        let is_enveloped = match (form, first, kind) {
            (InputForm::Bare, ..) => false,
            (InputForm::Enveloped, ..) => true,
            (InputForm::Either, b'{', TypeKind::Container(container)) => {
                let at = skip_white_space(bytes, *at + 1);
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
            self.push_frame(OpenFrame::Envelope(OpenEnvelope::default()))?;
            self.expect = NextToken::Name { or_end: true };
            return Ok(InputState::All);
        }
        let ty = self.target_type(*at)?;
        self.expect_enveloped_value(ty)?;
        Ok(InputState::All)
    }

    /// Returns the type of the value, which the envelope's version may have to determine first.
    fn target_type(&mut self, at: usize) -> Result<&'s SszType, InputError> {
        let (preset, name) = match &self.target {
            TargetType::Type(ty) => return Ok(self.schema.get(*ty)),
            TargetType::Named(preset, name) => (*preset, name),
            TargetType::Nothing => return Err(TokenError::new(at, "no type").into()),
        };
        let Some(version) = &self.envelope_version else {
            return Err(SszErrorKind::NoVersion.into());
        };
        let fork: Fork = version
            .parse()
            .map_err(|unknown| TokenError::new(at, format!("the version {unknown}")))?;
        self.schema = Schema::for_fork(fork, preset);
        let ty = self.schema.find_type(name);
        let ty = ty.ok_or_else(|| TokenError::new(at, format!("{fork} has no type {name}")))?;
        Ok(self.schema.get(ty))
    }

    /// Sets the value, at its member of the envelope, as the next token.
    fn expect_enveloped_value(&mut self, ty: &'s SszType) -> Result<(), InputError> {
        let place = match ty.size {
            Some(size) => self.output.append_zeros(size)?,
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
    ) -> Result<InputState, InputError> {
        *at = skip_white_space(bytes, *at);
        let (name, end) = match read_member_name(bytes, *at, or_end)? {
            NameToken::Here { name, end } => (name, end),
            NameToken::End => {
                self.close_innermost(*at)?;
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
            Some(OpenFrame::Envelope(envelope)) => {
                let is_null = match bytes.get(skip_white_space(bytes, end)) {
                    Some(first) => *first == b'n',
                    None if matches!(&*name, "error" | "result") => {
                        self.expect = NextToken::Name { or_end };
                        return Ok(InputState::Part);
                    }
                    None => false,
                };
                let member = envelope.classify_member(name.as_bytes(), *at)?;
                // some nodes write a null error next to a result
                if member == EnvelopeMember::Error && !is_null {
                    return Err(SszErrorKind::Error.into());
                }
                if let EnvelopeMember::Flag(flag) = member {
                    let Some(first) = bytes.get(skip_white_space(bytes, end)) else {
                        self.expect = NextToken::Name { or_end };
                        return Ok(InputState::Part);
                    };
                    let value = match first {
                        b't' => Some(true),
                        b'f' => Some(false),
                        _ => None,
                    };
                    if self
                        .envelope_flags
                        .flag_mut(flag)
                        .replace(value.unwrap_or_default())
                        .is_some()
                    {
                        return Err(TokenError::new(*at, format!("{name} occurs twice")).into());
                    }
                    *self.envelope_flags.flag_mut(flag) = value;
                }
                let is_null = is_null && name == "result";
                *at = end;
                match member {
                    EnvelopeMember::Value if matches!(self.target, TargetType::Nothing) => {
                        self.expect = NextToken::Skip(ValueSkipper::default());
                    }
                    EnvelopeMember::Value => {
                        let ty = self.target_type(*at)?;
                        if is_null && !matches!(ty.kind, TypeKind::Optional(_)) {
                            return Err(SszErrorKind::Null.into());
                        }
                        self.expect_enveloped_value(ty)?;
                    }
                    EnvelopeMember::Version => self.expect = NextToken::Version,
                    EnvelopeMember::Flag(_) | EnvelopeMember::Error | EnvelopeMember::Other => {
                        self.expect = NextToken::Skip(ValueSkipper::default());
                    }
                }
            }
            Some(OpenFrame::Union(union)) => match &*name {
                "selector" if union.chosen.is_some() => {
                    return Err(TokenError::new(*at, "selector occurs twice").into());
                }
                "selector" => {
                    let value = skip_white_space(bytes, end);
                    let read = read_quoted_u64(&bytes[value..])
                        .map_err(|wrong| shift_error(value, wrong))?;
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
                    let place = self.output.append_zeros(1)?;
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
                    self.expect_enveloped_value(self.schema.get(ty))?;
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
    ) -> Result<InputState, InputError> {
        let start = skip_white_space(bytes, *at);
        match read_text(&bytes[start..]).map_err(|wrong| shift_error(start, wrong))? {
            Some((version, len)) => {
                self.envelope_version = Some(version.into_owned());
                *at = start + len;
                self.expect = NextToken::Next;
                Ok(InputState::All)
            }
            None => Ok(InputState::Part),
        }
    }
}

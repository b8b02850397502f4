//! Readers of envelopes and unions.

use super::envelope::{EnvelopeMember, JsonEnvelopeForm, OpenEnvelope};
use super::frame::OpenJsonValue;
use super::hex::JsonToSszError;
use super::json_strings::{
    read_field_name, read_json_string, read_member_name, shift_error_position, FieldSearchResult,
    MemberNameToken,
};
use super::scan::{json_token_kind, read_quoted_u64, skip_white_space, JsonTokenError};
use super::{ExpectedToken, InputCompleteness, JsonToSsz, JsonValueSkipper, TargetSszType};
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
        "version" => match read_json_string(&bytes[at..]) {
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
                Ok(MemberNameToken::Here { name, .. }) => {
                    let name = name.as_bytes();
                    let is_of_data = match &schema.type_by_id(field.ty).kind {
                        TypeKind::Container(data) => data.names.find_field(name).is_some(),
                        _ => false,
                    };
                    Some(container.names.find_field(name).is_some() && !is_of_data)
                }
                Ok(MemberNameToken::Part) => None,
                Ok(MemberNameToken::End) | Err(_) => Some(false),
            }
        }
        _ => Some(false),
    }
}

impl<'s> JsonToSsz<'s> {
    /// Reads the first bytes of the input at `at`, and decides whether the value has an envelope.
    pub(super) fn detect_envelope_at_start(
        &mut self,
        form: JsonEnvelopeForm,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputCompleteness, JsonToSszError> {
        let Some(first) = bytes.get(*at) else {
            return Ok(InputCompleteness::Part);
        };
        let kind = match self.target {
            TargetSszType::Type(ty) => &self.schema.type_by_id(ty).kind,
            TargetSszType::Named(..) | TargetSszType::Nothing => &TypeKind::Boolean,
        };
        let is_enveloped = match (form, first, kind) {
            (JsonEnvelopeForm::Bare, ..) => false,
            (JsonEnvelopeForm::Enveloped, ..) => true,
            (JsonEnvelopeForm::Either, b'{', TypeKind::Container(container)) => {
                let at = skip_white_space(bytes, *at + 1);
                match read_field_name(container, bytes, at, true)? {
                    FieldSearchResult::Unknown(_) => true,
                    FieldSearchResult::Field(field, end) => {
                        match is_envelope_member(self.schema, container, field, bytes, end) {
                            Some(is_enveloped) => is_enveloped,
                            None => return Ok(InputCompleteness::Part),
                        }
                    }
                    FieldSearchResult::End => false,
                    FieldSearchResult::Part => return Ok(InputCompleteness::Part),
                }
            }
            (JsonEnvelopeForm::Either, first, _) => *first == b'{',
        };
        if is_enveloped {
            if *first != b'{' {
                let why = format!("{}, not an object", json_token_kind(*first));
                return Err(JsonTokenError::new(*at, why).into());
            }
            *at += 1;
            self.push_open_value(OpenJsonValue::Envelope(OpenEnvelope::default()))?;
            self.expect = ExpectedToken::Name { or_end: true };
            return Ok(InputCompleteness::All);
        }
        let ty = self.target_type(*at)?;
        self.expect_enveloped_value(ty)?;
        Ok(InputCompleteness::All)
    }

    /// Returns the type of the value, which the envelope's version may have to determine first.
    fn target_type(&mut self, at: usize) -> Result<&'s SszType, JsonToSszError> {
        let (preset, name) = match &self.target {
            TargetSszType::Type(ty) => return Ok(self.schema.type_by_id(*ty)),
            TargetSszType::Named(preset, name) => (*preset, name),
            TargetSszType::Nothing => return Err(JsonTokenError::new(at, "no type").into()),
        };
        let Some(version) = &self.envelope_version else {
            return Err(SszErrorKind::NoVersion.into());
        };
        let fork: Fork = version
            .parse()
            .map_err(|unknown| JsonTokenError::new(at, format!("the version {unknown}")))?;
        self.schema = Schema::for_fork(fork, preset);
        let ty = self.schema.find_type(name);
        let ty = ty.ok_or_else(|| JsonTokenError::new(at, format!("{fork} has no type {name}")))?;
        Ok(self.schema.type_by_id(ty))
    }

    /// Sets the value, at its member of the envelope, as the next token.
    fn expect_enveloped_value(&mut self, ty: &'s SszType) -> Result<(), JsonToSszError> {
        let place = match ty.size {
            Some(size) => self.output.append_zeros(size)?,
            None => 0,
        };
        self.expect = ExpectedToken::Value(ty, place);
        Ok(())
    }

    /// Reads a name of an envelope or a union and its colon, and sets the member's value as the
    /// next token.
    pub(super) fn read_member(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        or_end: bool,
    ) -> Result<InputCompleteness, JsonToSszError> {
        *at = skip_white_space(bytes, *at);
        let (name, end) = match read_member_name(bytes, *at, or_end)? {
            MemberNameToken::Here { name, end } => (name, end),
            MemberNameToken::End => {
                self.close_innermost(*at)?;
                *at += 1;
                self.expect = ExpectedToken::Next;
                return Ok(InputCompleteness::All);
            }
            MemberNameToken::Part => {
                self.expect = ExpectedToken::Name { or_end };
                return Ok(InputCompleteness::Part);
            }
        };
        match self.stack.last_mut() {
            Some(OpenJsonValue::Envelope(envelope)) => {
                let is_null = match bytes.get(skip_white_space(bytes, end)) {
                    Some(first) => *first == b'n',
                    None if matches!(&*name, "error" | "result") => {
                        self.expect = ExpectedToken::Name { or_end };
                        return Ok(InputCompleteness::Part);
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
                        self.expect = ExpectedToken::Name { or_end };
                        return Ok(InputCompleteness::Part);
                    };
                    let value = match first {
                        b't' => Some(true),
                        b'f' => Some(false),
                        _ => None,
                    };
                    if envelope.record_flag(flag) {
                        return Err(JsonTokenError::new(*at, format!("{name} occurs twice")).into());
                    }
                    *self.envelope_flags.flag_mut(flag) = value;
                }
                let is_null = is_null && name == "result";
                *at = end;
                match member {
                    EnvelopeMember::Value if matches!(self.target, TargetSszType::Nothing) => {
                        self.expect = ExpectedToken::Skip(JsonValueSkipper::default());
                    }
                    EnvelopeMember::Value => {
                        let ty = self.target_type(*at)?;
                        if is_null && !matches!(ty.kind, TypeKind::Optional(_)) {
                            return Err(SszErrorKind::Null.into());
                        }
                        self.expect_enveloped_value(ty)?;
                    }
                    EnvelopeMember::Version => self.expect = ExpectedToken::Version,
                    EnvelopeMember::Flag(_) | EnvelopeMember::Error | EnvelopeMember::Other => {
                        self.expect = ExpectedToken::Skip(JsonValueSkipper::default());
                    }
                }
            }
            Some(OpenJsonValue::Union(union)) => match &*name {
                "selector" if union.chosen.is_some() => {
                    return Err(JsonTokenError::new(*at, "selector occurs twice").into());
                }
                "selector" => {
                    let value = skip_white_space(bytes, end);
                    let read = read_quoted_u64(&bytes[value..])
                        .map_err(|wrong| shift_error_position(value, wrong))?;
                    let Some((selector, len)) = read else {
                        self.expect = ExpectedToken::Name { or_end };
                        return Ok(InputCompleteness::Part);
                    };
                    let option = union
                        .options
                        .iter()
                        .find(|(option, _)| u64::from(*option) == selector);
                    let Some((selector, ty)) = option else {
                        return Err(JsonTokenError::new(
                            value,
                            format!("the union has no option {selector}"),
                        )
                        .into());
                    };
                    union.chosen = Some(*ty);
                    let place = self.output.append_zeros(1)?;
                    self.output.bytes[place] = *selector;
                    *at = value + len;
                    self.expect = ExpectedToken::Next;
                }
                "data" if union.has_data => {
                    return Err(JsonTokenError::new(*at, "data occurs twice").into());
                }
                "data" => {
                    let Some(ty) = union.chosen else {
                        return Err(JsonTokenError::new(*at, "data precedes its selector").into());
                    };
                    union.has_data = true;
                    *at = end;
                    self.expect_enveloped_value(self.schema.type_by_id(ty))?;
                }
                _ => {
                    *at = end;
                    self.expect = ExpectedToken::Skip(JsonValueSkipper::default());
                }
            },
            _ => {}
        }
        Ok(InputCompleteness::All)
    }

    /// Reads the value of the envelope's `version`, which names the fork.
    pub(super) fn read_envelope_version_value(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputCompleteness, JsonToSszError> {
        let start = skip_white_space(bytes, *at);
        match read_json_string(&bytes[start..])
            .map_err(|wrong| shift_error_position(start, wrong))?
        {
            Some((version, len)) => {
                self.envelope_version = Some(version.into_owned());
                *at = start + len;
                self.expect = ExpectedToken::Next;
                Ok(InputCompleteness::All)
            }
            None => Ok(InputCompleteness::Part),
        }
    }
}

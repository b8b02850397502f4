//! Readers of envelopes and unions.

use super::envelope::{Envelope, Form, Member};
use super::frame::Frame;
use super::hex::Stop;
use super::scan::{quoted_u64, skip_white, what_begins_with, Wrong};
use super::text::{after, find_field, name, text, Found, Name};
use super::{Expect, Got, Skip, Target, ToSsz};
use crate::ssz::error::Problem;
use crate::ssz::schema::{Container, Fork, Kind, Schema, Type};

/// Returns whether the first name of a text is not the field of that name, but an envelope's
/// member: an `Attestation` has `data`, too. `None`: the following input is not available yet.
fn is_members_name(
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
                Ok(Name::Here { name, .. }) => {
                    let name = name.as_bytes();
                    let is_of_data = match &schema.get(field.ty).kind {
                        Kind::Container(data) => data.names.find(name).is_some(),
                        _ => false,
                    };
                    Some(container.names.find(name).is_some() && !is_of_data)
                }
                Ok(Name::Part) => None,
                Ok(Name::End) | Err(_) => Some(false),
            }
        }
        _ => Some(false),
    }
}

impl<'s> ToSsz<'s> {
    /// Starts the whole value at `at`.
    pub(super) fn start(&mut self, form: Form, bytes: &[u8], at: &mut usize) -> Result<Got, Stop> {
        let Some(first) = bytes.get(*at) else {
            return Ok(Got::Part);
        };
        let kind = match self.target {
            Target::Type(ty) => &self.schema.get(ty).kind,
            Target::Named(..) | Target::Nothing => &Kind::Boolean,
        };
        let is_enveloped = match (form, first, kind) {
            (Form::Bare, ..) => false,
            (Form::Enveloped, ..) => true,
            (Form::Either, b'{', Kind::Container(container)) => {
                let at = skip_white(bytes, *at + 1);
                match find_field(container, bytes, at, true)? {
                    Found::Unknown(_) => true,
                    Found::Field(field, end) => {
                        match is_members_name(self.schema, container, field, bytes, end) {
                            Some(is_enveloped) => is_enveloped,
                            None => return Ok(Got::Part),
                        }
                    }
                    Found::End => false,
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

    /// Returns the type of the value.
    fn target_type(&mut self, at: usize) -> Result<&'s Type, Stop> {
        let (preset, name) = match &self.target {
            Target::Type(ty) => return Ok(self.schema.get(*ty)),
            Target::Named(preset, name) => (*preset, name),
            Target::Nothing => return Err(Wrong::new(at, "no type").into()),
        };
        let Some(version) = &self.version else {
            return Err(Problem::NoVersion.into());
        };
        let fork: Fork = version
            .parse()
            .map_err(|unknown| Wrong::new(at, format!("the version {unknown}")))?;
        self.schema = Schema::of(fork, preset);
        let ty = self.schema.find(name);
        let ty = ty.ok_or_else(|| Wrong::new(at, format!("{fork} has no {name}")))?;
        Ok(self.schema.get(ty))
    }

    /// Expects the whole value next.
    fn begin_whole(&mut self, ty: &'s Type) -> Result<(), Stop> {
        let place = match ty.size {
            Some(size) => self.output.zeros(size)?,
            None => 0,
        };
        self.expect = Expect::Value(ty, place);
        Ok(())
    }

    /// Reads a member of a union or an envelope.
    pub(super) fn other_names(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        or_end: bool,
    ) -> Result<Got, Stop> {
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
                let is_null = match bytes.get(skip_white(bytes, end)) {
                    Some(first) => *first == b'n',
                    None if matches!(&*name, "error" | "result") => {
                        self.expect = Expect::Name { or_end };
                        return Ok(Got::Part);
                    }
                    None => false,
                };
                let member = envelope.member(name.as_bytes(), *at)?;
                // some nodes write a null error next to a result
                if member == Member::Error && !is_null {
                    return Err(Problem::Error.into());
                }
                if let Member::Flag(flag) = member {
                    let Some(first) = bytes.get(skip_white(bytes, end)) else {
                        self.expect = Expect::Name { or_end };
                        return Ok(Got::Part);
                    };
                    let value = match first {
                        b't' => Some(true),
                        b'f' => Some(false),
                        _ => None,
                    };
                    if self
                        .flags
                        .of(flag)
                        .replace(value.unwrap_or_default())
                        .is_some()
                    {
                        return Err(Wrong::new(*at, format!("{name} is there twice")).into());
                    }
                    *self.flags.of(flag) = value;
                }
                let is_null = is_null && name == "result";
                *at = end;
                match member {
                    Member::Value if matches!(self.target, Target::Nothing) => {
                        self.expect = Expect::Skip(Skip::default());
                    }
                    Member::Value => {
                        let ty = self.target_type(*at)?;
                        if is_null && !matches!(ty.kind, Kind::Optional(_)) {
                            return Err(Problem::Null.into());
                        }
                        self.begin_whole(ty)?;
                    }
                    Member::Version => self.expect = Expect::Version,
                    Member::Flag(_) | Member::Error | Member::Other => {
                        self.expect = Expect::Skip(Skip::default());
                    }
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

    /// Reads the version in an envelope.
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

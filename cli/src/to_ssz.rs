//! Conversion of JSON to SSZ.

use std::fmt;

use sszip_core::ssz::{
    read_envelope_version, Fork, JsonEnvelopeForm, JsonToSsz, Preset, Schema, SszError,
    SszErrorKind, TypeId,
};

use crate::args::SszTypeOptions;
use crate::input::InputFileReader;
use crate::input_hints;
use crate::CommandError;

/// The reason why a conversion to SSZ fails: the input cannot be read, or is no value of the type.
pub enum ConversionError {
    /// The text is no value of the type.
    Value(SszError),
    Failure(CommandError),
}

impl From<CommandError> for ConversionError {
    fn from(failure: CommandError) -> Self {
        Self::Failure(failure)
    }
}

impl From<SszError> for ConversionError {
    fn from(error: SszError) -> Self {
        Self::Value(error)
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(error) => error.fmt(f),
            Self::Failure(failure) => f.write_str(failure.message().unwrap_or_default()),
        }
    }
}

/// Converts JSON to SSZ: a value, or a response with a value.
pub fn json_to_ssz(
    type_arguments: &SszTypeOptions,
    mut pieces: InputFileReader,
    form: JsonEnvelopeForm,
) -> Result<Vec<u8>, CommandError> {
    let is_known =
        type_arguments.fork.is_some() || Schema::is_fork_independent(&type_arguments.name);
    let read = match is_known {
        true => {
            let (schema, ty, fork) = type_arguments.resolve_type_arguments()?;
            convert_with_schema(&schema, ty, fork, &mut pieces, form)
        }
        false if !type_arguments.limits.is_empty() => {
            return Err(CommandError::Usage("--limit needs --fork".into()));
        }
        false if form == JsonEnvelopeForm::Bare => {
            let why = "a value without an envelope needs --fork";
            return Err(CommandError::Usage(why.into()));
        }
        false => convert_by_version(type_arguments, &mut pieces),
    };
    read.map_err(|no| match no {
        ConversionError::Failure(failure) => failure,
        ConversionError::Value(error) => CommandError::Data(
            input_hints::explain_invalid_json_input(type_arguments, form, &mut pieces, &error),
        ),
    })
}

fn convert_with_schema(
    schema: &Schema,
    ty: TypeId,
    fork: Option<Fork>,
    pieces: &mut InputFileReader,
    form: JsonEnvelopeForm,
) -> Result<Vec<u8>, ConversionError> {
    let mut reader = JsonToSsz::new(schema, ty, form);
    let mut read = Ok(());
    while let (Ok(()), Some(piece)) = (&read, pieces.read_input_piece()?) {
        read = reader.feed_json_piece(piece);
    }
    if let (Some(fork), Some(version)) = (fork, reader.envelope_version()) {
        if version != fork.name() {
            let why = format!("the response's version is {version:?}, not {fork}");
            return Err(CommandError::Data(why).into());
        }
    }
    read?;
    Ok(reader.finish()?)
}

/// Converts a response whose `version` names the fork. A version before the value lets the value be
/// converted as it streams; Lodestar sends the version after it, and the text is buffered until
/// then.
fn convert_by_version(
    type_arguments: &SszTypeOptions,
    pieces: &mut InputFileReader,
) -> Result<Vec<u8>, ConversionError> {
    let mut reader =
        JsonToSsz::for_versioned_envelope(type_arguments.preset, type_arguments.known_type_name()?);
    let mut buffered = Vec::new();
    while let Some(piece) = pieces.read_input_piece()? {
        if reader.envelope_version().is_none() {
            buffered.extend_from_slice(piece);
        }
        match reader.feed_json_piece(piece) {
            Ok(()) if reader.envelope_version().is_some() => buffered = Vec::new(),
            Ok(()) => {}
            Err(error) if *error.error_kind() == SszErrorKind::NoVersion => {
                while let Some(piece) = pieces.read_input_piece()? {
                    buffered.extend_from_slice(piece);
                }
                return convert_buffered_by_version(
                    type_arguments.preset,
                    &type_arguments.name,
                    &buffered,
                )
                .map(|(_, ssz)| ssz);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(reader.finish()?)
}

/// Converts a buffered response whose `version`, before or after the value, names the fork; returns
/// the fork too.
pub fn convert_buffered_by_version(
    preset: Preset,
    name: &str,
    json: &[u8],
) -> Result<(Fork, Vec<u8>), ConversionError> {
    let wrong = |why: String| ConversionError::from(CommandError::Data(why));
    let Some(version) = read_envelope_version(json)? else {
        let why = "the response has no version; add --fork";
        return Err(wrong(why.into()));
    };
    let fork: Fork = version
        .parse()
        .map_err(|unknown| wrong(format!("the version {unknown}")))?;
    let schema = Schema::for_fork(fork, preset);
    let Some(ty) = schema.find_type(name) else {
        return Err(wrong(format!("{fork} has no type {name}")));
    };
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Enveloped);
    reader.feed_json_piece(json)?;
    Ok((fork, reader.finish()?))
}

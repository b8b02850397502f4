//! Conversion of a recorded page to the format that was not recorded, by the walkers of sszip's
//! core. The result is no oracle: tests of the walkers supply both formats.

use hyper::header::HeaderValue;
use sszip_core::ssz::{
    ssz_to_json, Fork, JsonEnvelopeForm as Enveloped, JsonToSsz, Preset, Schema, SszError, TypeId,
};
use sszip_core::transcode::ssz_routes::{ssz_response_type, SszResponseType};

use crate::page::{BodyFormat, ReplayPage, CONSENSUS_VERSION};
use crate::responses::ResponseTable;

/// Formats in which the Beacon API is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServedFormats {
    /// JSON only
    Json,
    /// SSZ only, where the page has an SSZ type
    Ssz,
    /// The format that the request accepts
    Both,
}

impl ServedFormats {
    pub fn includes_format(self, form: BodyFormat) -> bool {
        match self {
            ServedFormats::Json => form == BodyFormat::Json,
            ServedFormats::Ssz => form == BodyFormat::Ssz,
            ServedFormats::Both => true,
        }
    }
}

/// Leaves each page in these formats, and converts it where one is missing. `warn` receives the
/// pages that can't be converted.
pub fn apply_served_formats(
    answers: &mut ResponseTable,
    forms: ServedFormats,
    preset: Preset,
    warn: &mut dyn FnMut(String),
) {
    for (path, page) in answers.pages_mut() {
        for form in [BodyFormat::Json, BodyFormat::Ssz] {
            if forms.includes_format(form) && page.find_representation(form).is_none() {
                if let Err(why) = add_converted_page_format(path, page, form, preset) {
                    warn(format!("{path}: {why}"));
                }
            }
        }
        if page.json.is_some() && page.ssz.is_some() {
            page.json
                .take_if(|_| !forms.includes_format(BodyFormat::Json));
            page.ssz
                .take_if(|_| !forms.includes_format(BodyFormat::Ssz));
        }
    }
}

/// Adds the other format of a page; a page that exists only as JSON is unchanged.
fn add_converted_page_format(
    path: &str,
    page: &mut ReplayPage,
    form: BodyFormat,
    preset: Preset,
) -> Result<(), String> {
    let Some(gives) = path_route(path) else {
        return Ok(());
    };
    let version = page
        .find_header(&CONSENSUS_VERSION)
        .map(HeaderValue::to_str);
    let fork = match (gives, version) {
        (SszResponseType::Same(_, since), _) => since,
        (_, Some(Ok(fork))) => fork.parse().map_err(|unknown| format!("{unknown}"))?,
        _ => return Err("no Eth-Consensus-Version header names its fork".to_owned()),
    };
    let kind = gives
        .block_kind_header_name()
        .and_then(|name| name.parse().ok());
    let kind = kind
        .and_then(|name| page.find_header(&name))
        .map(|value| value == "true");
    let Some((schema, ty)) = type_in_schema(gives, fork, kind, preset) else {
        return Err(format!("fork {fork} has no value of this type"));
    };
    let made = match (form, &page.json, &page.ssz) {
        (BodyFormat::Ssz, Some(json), _) => json_to_ssz(schema, ty, json.body_bytes()),
        (BodyFormat::Json, _, Some(ssz)) => {
            ssz_to_enveloped_json(gives, fork, schema, ty, ssz.body_bytes())
        }
        _ => return Ok(()),
    };
    let made = made.map_err(|error| error.to_string())?.into();
    match form {
        BodyFormat::Json => page.json = Some(made),
        BodyFormat::Ssz => page.ssz = Some(made),
    }
    Ok(())
}

/// Returns the SSZ response of a path, whose method is GET or POST; `None` if it has none.
fn path_route(path: &str) -> Option<SszResponseType> {
    let of = |method: &[u8]| ssz_response_type(method, path.as_bytes()).copied();
    of(b"GET").or_else(|| of(b"POST"))
}

/// Returns the type of a response in a fork; `None` if the fork has no such response.
fn type_in_schema(
    gives: SszResponseType,
    fork: Fork,
    kind: Option<bool>,
    preset: Preset,
) -> Option<(&'static Schema, TypeId)> {
    let name = gives.type_name(fork, kind)?;
    let schema = Schema::for_fork(fork, preset);
    Some((schema, schema.find_type(name)?))
}

fn json_to_ssz(schema: &Schema, ty: TypeId, json: &[u8]) -> Result<Vec<u8>, SszError> {
    let mut reader = JsonToSsz::new(schema, ty, Enveloped::Enveloped);
    reader.feed_json_piece(json)?;
    reader.finish()
}

/// Builds the JSON, with the envelope members that nodes add to the value.
fn ssz_to_enveloped_json(
    gives: SszResponseType,
    fork: Fork,
    schema: &Schema,
    ty: TypeId,
    ssz: &[u8],
) -> Result<Vec<u8>, SszError> {
    let value = ssz_to_json(schema, ty, ssz)?;
    let version = match gives {
        SszResponseType::Same(..) => String::new(),
        _ => format!("\"version\":\"{fork}\","),
    };
    let begin = format!("{{{version}\"execution_optimistic\":false,\"finalized\":false,\"data\":");
    Ok([begin.as_bytes(), &value, b"}"].concat())
}

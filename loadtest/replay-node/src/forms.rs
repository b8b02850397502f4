//! Conversion of a recorded page to the format that was not recorded, by the walkers of sszip's
//! core. The result is no oracle: tests of the walkers supply both formats.

use hyper::header::HeaderValue;
use sszip_core::ssz::{to_json, Error, Fork, Form as Enveloped, Preset, Schema, ToSsz, TypeId};
use sszip_core::transcode::route::{gives, Gives};

use crate::answers::Answers;
use crate::page::{Form, Page, CONSENSUS_VERSION};

/// Formats in which the Beacon API is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Forms {
    /// JSON only
    Json,
    /// SSZ only, where the page has an SSZ type
    Ssz,
    /// The format that the request accepts
    Both,
}

impl Forms {
    pub fn has(self, form: Form) -> bool {
        match self {
            Forms::Json => form == Form::Json,
            Forms::Ssz => form == Form::Ssz,
            Forms::Both => true,
        }
    }
}

/// Leaves each page in these formats, and converts it where one is missing. `warn` receives the
/// pages that can't be converted.
pub fn keep(answers: &mut Answers, forms: Forms, preset: Preset, warn: &mut dyn FnMut(String)) {
    for (path, page) in answers.pages_mut() {
        for form in [Form::Json, Form::Ssz] {
            if forms.has(form) && page.form(form).is_none() {
                if let Err(why) = make(path, page, form, preset) {
                    warn(format!("{path}: {why}"));
                }
            }
        }
        if page.json.is_some() && page.ssz.is_some() {
            page.json.take_if(|_| !forms.has(Form::Json));
            page.ssz.take_if(|_| !forms.has(Form::Ssz));
        }
    }
}

/// Adds the other format of a page; a page that exists only as JSON is unchanged.
fn make(path: &str, page: &mut Page, form: Form, preset: Preset) -> Result<(), String> {
    let Some(gives) = of_path(path) else {
        return Ok(());
    };
    let said = page.field(&CONSENSUS_VERSION).map(HeaderValue::to_str);
    let fork = match (gives, said) {
        (Gives::Same(_, since), _) => since,
        (_, Some(Ok(fork))) => fork.parse().map_err(|unknown| format!("{unknown}"))?,
        _ => return Err("nothing names its fork".to_owned()),
    };
    let kind = gives.kind().and_then(|name| name.parse().ok());
    let kind = kind
        .and_then(|name| page.field(&name))
        .map(|value| value == "true");
    let Some((schema, ty)) = type_of(gives, fork, kind, preset) else {
        return Err(format!("{fork} has no such value"));
    };
    let made = match (form, &page.json, &page.ssz) {
        (Form::Ssz, Some(json), _) => ssz(schema, ty, json.bytes()),
        (Form::Json, _, Some(ssz)) => json(gives, fork, schema, ty, ssz.bytes()),
        _ => return Ok(()),
    };
    let made = made.map_err(|error| error.to_string())?.into();
    match form {
        Form::Json => page.json = Some(made),
        Form::Ssz => page.ssz = Some(made),
    }
    Ok(())
}

fn of_path(path: &str) -> Option<Gives> {
    let of = |method: &[u8]| gives(method, path.as_bytes()).copied();
    of(b"GET").or_else(|| of(b"POST"))
}

fn type_of(
    gives: Gives,
    fork: Fork,
    kind: Option<bool>,
    preset: Preset,
) -> Option<(&'static Schema, TypeId)> {
    let name = gives.name(fork, kind)?;
    let schema = Schema::of(fork, preset);
    Some((schema, schema.find(name)?))
}

fn ssz(schema: &Schema, ty: TypeId, json: &[u8]) -> Result<Vec<u8>, Error> {
    let mut reader = ToSsz::new(schema, ty, Enveloped::Enveloped);
    reader.push(json)?;
    reader.end()
}

/// Builds the JSON, with the envelope members that nodes add to the value.
fn json(
    gives: Gives,
    fork: Fork,
    schema: &Schema,
    ty: TypeId,
    ssz: &[u8],
) -> Result<Vec<u8>, Error> {
    let value = to_json(schema, ty, ssz)?;
    let version = match gives {
        Gives::Same(..) => String::new(),
        _ => format!("\"version\":\"{fork}\","),
    };
    let begin = format!("{{{version}\"execution_optimistic\":false,\"finalized\":false,\"data\":");
    Ok([begin.as_bytes(), &value, b"}"].concat())
}

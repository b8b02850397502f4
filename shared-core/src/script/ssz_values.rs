//! JSON to SSZ and back, checks and roots: the functions of the command line, for values in memory.

use std::ops::Deref;

use crate::ssz::{
    check_ssz, hash_tree_root, locate_value_at_path, read_envelope_version, ssz_to_json,
};
use crate::ssz::{
    Fork, JsonEnvelopeForm, JsonToSsz, Preset, Schema, SszError, SszErrorKind, TypeId,
};
use crate::transcode::{call_types, ssz_routes};

/// The SSZ type of a value, as a program names it in a call of the script API. Empty members are
/// unset.
#[derive(Clone, Copy, Debug, Default)]
pub struct SszTypeSelector<'a> {
    /// A type in the notation of the specifications (`SignedBeaconBlock`, `List[Withdrawal, 16]`);
    /// or a method of JSON-RPC, or the path of a route of the Beacon API, for the type of its
    /// response.
    pub name: &'a str,
    /// The fork. Unset: the fork in the `version` of a response, or any fork if the type is the
    /// same in all.
    pub fork: &'a str,
    /// The preset. Unset: mainnet.
    pub preset: &'a str,
}

/// Parses the form of the JSON: `value`, the value itself; `answer`, an object with the value in
/// `data` or `result`; `auto` or empty: either of them.
fn parse_json_input_form(text: &str) -> Result<JsonEnvelopeForm, String> {
    match text {
        "" | "auto" => Ok(JsonEnvelopeForm::Either),
        "value" => Ok(JsonEnvelopeForm::Bare),
        "answer" => Ok(JsonEnvelopeForm::Enveloped),
        other => Err(format!("form must be auto, value or answer, not {other:?}")),
    }
}

/// A type that a program has named, with the schema that contains it.
struct ResolvedSszType {
    schema: SharedOrOwnSchema,
    ty: TypeId,
}

/// The schema of a type: one that is shared, or one with a type expression of the program.
enum SharedOrOwnSchema {
    /// The schema of the fork.
    Named(&'static Schema),
    /// The schema of the fork, with a type expression added.
    Written(Box<Schema>),
}

impl Deref for SharedOrOwnSchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            SharedOrOwnSchema::Named(schema) => schema,
            SharedOrOwnSchema::Written(schema) => schema,
        }
    }
}

impl SszTypeSelector<'_> {
    /// Returns the preset that the selector names; an empty name is mainnet.
    fn preset(&self) -> Result<Preset, String> {
        match self.preset {
            "" => Ok(Preset::Mainnet),
            name => name.parse().map_err(|unknown| format!("{unknown}")),
        }
    }

    /// Returns the fork, or `None` if it is unset.
    fn named_fork(&self) -> Result<Option<Fork>, String> {
        let named: Option<Fork> = match self.fork {
            "" => None,
            name => Some(name.parse().map_err(|unknown| format!("{unknown}"))?),
        };
        Ok(named)
    }

    /// Returns the name of the type in a fork, or in any fork if it is the same in all.
    fn type_name(&self, fork: Option<Fork>) -> Result<&str, String> {
        let name = self.name;
        let gives = if name.starts_with('/') {
            let target = name.as_bytes();
            let gives = ssz_routes::ssz_response_type(b"GET", target)
                .or_else(|| ssz_routes::ssz_response_type(b"POST", target));
            gives.ok_or_else(|| format!("{name} is not a route with SSZ"))?
        } else if let Some(gives) = call_types::ssz_result_type(name.as_bytes()) {
            gives
        } else {
            return Ok(name);
        };
        if *gives == ssz_routes::SszResponseType::Updates {
            return Err(format!(
                "{name} returns several values, each of its own fork"
            ));
        }
        let newest = Fork::ALL.last().copied().unwrap_or(Fork::Phase0);
        let of = gives.type_name(fork.unwrap_or(newest), None);
        of.ok_or_else(|| format!("{name} returns several types: name the type"))
    }

    /// Finds the type in a fork; `None` if it depends on the fork and none is set.
    fn resolve_type_in_fork(&self, fork: Option<Fork>) -> Result<Option<ResolvedSszType>, String> {
        let (preset, name) = (self.preset()?, self.type_name(fork)?);
        let fork = match fork {
            Some(fork) => fork,
            None if Schema::is_fork_independent(name) => Fork::Phase0,
            None => return Ok(None),
        };
        let known = Schema::for_fork(fork, preset);
        if let Some(ty) = known.find_type(name) {
            let schema = SharedOrOwnSchema::Named(known);
            return Ok(Some(ResolvedSszType { schema, ty }));
        }
        let wrong = |bad| format!("{fork}, {preset}: {bad}");
        let mut schema = Schema::compile_with_constants(fork, preset, &[]).map_err(wrong)?;
        let ty = schema.parse_type(name).map_err(wrong)?;
        let schema = SharedOrOwnSchema::Written(Box::new(schema));
        Ok(Some(ResolvedSszType { schema, ty }))
    }

    /// Returns the type in the named fork, or without a fork the type if it is the same in all
    /// forks.
    fn resolve_type(&self) -> Result<ResolvedSszType, String> {
        let missing = || format!("{} differs between forks: name the fork", self.name);
        self.resolve_type_in_fork(self.named_fork()?)?
            .ok_or_else(missing)
    }
}

fn ssz_error_text(error: SszError) -> String {
    error.to_string()
}

/// Converts a value from JSON to SSZ.
///
/// # Errors
/// The error in the JSON, in `type_name` or in `form`.
pub fn json_value_to_ssz(
    type_name: &SszTypeSelector<'_>,
    form: &str,
    json: &[u8],
) -> Result<Vec<u8>, String> {
    let (form, fork) = (parse_json_input_form(form)?, type_name.named_fork()?);
    let Some(ResolvedSszType { schema, ty }) = type_name.resolve_type_in_fork(fork)? else {
        return response_to_ssz(type_name, form, json);
    };
    let mut reader = JsonToSsz::new(&schema, ty, form);
    let read = reader.feed_json_piece(json);
    if let (Some(fork), Some(version)) = (fork, reader.envelope_version()) {
        if version != fork.name() {
            return Err(format!("the response's version is {version:?}, not {fork}"));
        }
    }
    read.map_err(ssz_error_text)?;
    reader.finish().map_err(ssz_error_text)
}

/// Converts a response to SSZ in the fork that it names, at any position.
fn response_to_ssz(
    type_name: &SszTypeSelector<'_>,
    form: JsonEnvelopeForm,
    json: &[u8],
) -> Result<Vec<u8>, String> {
    if form == JsonEnvelopeForm::Bare {
        return type_name.resolve_type().map(|_| Vec::new());
    }
    let version = read_envelope_version(json).map_err(|error| match error.error_kind() {
        SszErrorKind::NoValue => format!("{error}; a value without its envelope needs a fork"),
        _ => ssz_error_text(error),
    })?;
    let version = version.ok_or("the response has no version: name the fork")?;
    let fork: Fork = version
        .parse()
        .map_err(|unknown| format!("the version {unknown}"))?;
    let (name, schema) = (
        type_name.type_name(Some(fork))?,
        Schema::for_fork(fork, type_name.preset()?),
    );
    let ty = schema.find_type(name);
    let ty = ty.ok_or_else(|| format!("{fork} has no type {name}"))?;
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Enveloped);
    reader.feed_json_piece(json).map_err(ssz_error_text)?;
    reader.finish().map_err(ssz_error_text)
}

/// Converts a value, or its part at a path, from SSZ to JSON.
///
/// # Errors
/// The error in the SSZ, in `type_name` or in the path.
pub fn ssz_value_to_json(
    type_name: &SszTypeSelector<'_>,
    path: &str,
    ssz: &[u8],
) -> Result<Vec<u8>, String> {
    let ResolvedSszType { schema, ty } = type_name.resolve_type()?;
    let (ty, range) = locate_value_at_path(&schema, ty, ssz, path).map_err(ssz_error_text)?;
    let part = ssz.get(range).unwrap_or_default();
    ssz_to_json(&schema, ty, part).map_err(ssz_error_text)
}

/// Checks that `ssz` is a valid value of the type, by all rules of SSZ.
///
/// # Errors
/// The error in the SSZ, or in `type_name`.
pub fn check_ssz_value(type_name: &SszTypeSelector<'_>, ssz: &[u8]) -> Result<(), String> {
    let ResolvedSszType { schema, ty } = type_name.resolve_type()?;
    check_ssz(&schema, ty, ssz).map_err(ssz_error_text)
}

/// Returns the hash tree root of a value, or of its part at a path: `0x` and 64 hex digits.
///
/// # Errors
/// The errors of [`ssz_value_to_json`].
pub fn ssz_value_root(
    type_name: &SszTypeSelector<'_>,
    path: &str,
    ssz: &[u8],
) -> Result<String, String> {
    let ResolvedSszType { schema, ty } = type_name.resolve_type()?;
    let (ty, range) = locate_value_at_path(&schema, ty, ssz, path).map_err(ssz_error_text)?;
    let part = ssz.get(range).unwrap_or_default();
    let root = hash_tree_root(&schema, ty, part).map_err(ssz_error_text)?;
    Ok(format!("0x{}", const_hex::encode(root)))
}

#[cfg(test)]
mod tests {
    use super::{
        check_ssz_value, json_value_to_ssz, ssz_value_root, ssz_value_to_json, SszTypeSelector,
    };

    const JSON: &str = r#"{"epoch":"7","root":"0x1111111111111111111111111111111111111111111111111111111111111111"}"#;

    fn type_named(name: &str) -> SszTypeSelector<'_> {
        SszTypeSelector {
            name,
            ..SszTypeSelector::default()
        }
    }

    #[test]
    fn value_is_unchanged_after_conversion_to_ssz_and_back() {
        let checkpoint = SszTypeSelector {
            fork: "electra",
            ..type_named("Checkpoint")
        };
        let ssz = json_value_to_ssz(&checkpoint, "", JSON.as_bytes()).unwrap();
        assert_eq!(ssz.len(), 40);
        assert_eq!(
            ssz_value_to_json(&checkpoint, "", &ssz).unwrap(),
            JSON.as_bytes()
        );
        assert_eq!(
            ssz_value_to_json(&checkpoint, "epoch", &ssz).unwrap(),
            br#""7""#
        );
        assert_eq!(check_ssz_value(&checkpoint, &ssz), Ok(()));
        assert!(check_ssz_value(&checkpoint, &ssz[1..]).is_err());
        let whole = ssz_value_root(&checkpoint, "", &ssz).unwrap();
        assert_eq!(whole.len(), 66);
        let part = ssz_value_root(&checkpoint, "root", &ssz).unwrap();
        assert_eq!(part, format!("0x{}", "11".repeat(32)));
        let list = SszTypeSelector {
            name: "List[Checkpoint, 4]",
            ..checkpoint
        };
        let two = json_value_to_ssz(&list, "value", format!("[{JSON},{JSON}]").as_bytes()).unwrap();
        assert_eq!(two, [ssz.clone(), ssz].concat());
    }

    #[test]
    fn fork_is_read_from_the_response_and_type_from_the_method() {
        let answer = format!(r#"{{"data":{JSON},"version":"deneb"}}"#);
        assert_eq!(
            json_value_to_ssz(&type_named("Checkpoint"), "", answer.as_bytes())
                .unwrap()
                .len(),
            40
        );
        let code = r#"{"jsonrpc":"2.0","id":1,"result":"0x0102"}"#;
        for name in ["eth_getCode", "ByteString"] {
            let ssz = json_value_to_ssz(&type_named(name), "answer", code.as_bytes()).unwrap();
            assert_eq!(ssz, [1, 2], "{name}");
            assert_eq!(
                ssz_value_to_json(&type_named(name), "", &ssz).unwrap(),
                br#""0x0102""#
            );
        }
        let route = "/eth/v1/beacon/states/head/pending_consolidations";
        let json = r#"{"version":"electra","data":[{"source_index":"1","target_index":"2"}]}"#;
        assert_eq!(
            json_value_to_ssz(&type_named(route), "", json.as_bytes())
                .unwrap()
                .len(),
            16
        );
    }

    #[test]
    fn invalid_type_or_form_is_reported() {
        let of = |name, fork, preset, form| {
            let type_name = SszTypeSelector { name, fork, preset };
            json_value_to_ssz(&type_name, form, JSON.as_bytes()).unwrap_err()
        };
        for (error, why) in [
            (of("Checkpoint", "", "", "value"), "name the fork"),
            (of("Checkpoint", "", "", ""), "needs a fork"),
            (of("Checkpoint", "frontier", "", ""), "frontier"),
            (of("Checkpoint", "electra", "sepolia", ""), "sepolia"),
            (
                of("Checkpoint", "electra", "", "text"),
                "auto, value or answer, not \"text\"",
            ),
            (of("Chickpoint", "electra", "", ""), "Chickpoint"),
            (of("/eth/v1/node/version", "", "", ""), "not a route"),
            (
                of("/eth/v1/beacon/light_client/updates", "", "", ""),
                "several values",
            ),
            (
                of("/eth/v3/validator/blocks/7", "deneb", "", ""),
                "several types",
            ),
            (of("BeaconBlock", "electra", "", ""), "data and result"),
        ] {
            assert!(error.contains(why), "{why}: {error}");
        }
        let answer = format!(r#"{{"version":"deneb","data":{JSON}}}"#);
        let electra = SszTypeSelector {
            fork: "electra",
            ..type_named("Checkpoint")
        };
        let error = json_value_to_ssz(&electra, "", answer.as_bytes()).unwrap_err();
        assert!(error.contains("not electra"), "{error}");
        assert!(ssz_value_root(&type_named("Checkpoint"), "", b"").is_err());
    }
}

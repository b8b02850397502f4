//! JSON as SSZ and back, checks and roots: what the command line has, of values that are
//! in memory.

use std::ops::Deref;

use crate::ssz::{check as check_ssz, hash_tree_root, select, to_json as json_of, version};
use crate::ssz::{Error, Fork, Form, Preset, Problem, Schema, ToSsz, TypeId};
use crate::transcode::{call, route};

/// Which type, as programs say it. What is empty was not said.
#[derive(Clone, Copy, Debug, Default)]
pub struct What<'a> {
    /// As the specs write it (`SignedBeaconBlock`, `List[Withdrawal, 16]`); or a method of
    /// JSON-RPC, or the path of a route of the Beacon API, for what that gives.
    pub name: &'a str,
    /// Of which fork. Without it: of the one that an answer's `version` says, or of any,
    /// if all have the same.
    pub fork: &'a str,
    /// Of which preset; without it: mainnet.
    pub preset: &'a str,
}

/// What the JSON is: `value`, the value itself; `answer`, an object that has it as `data`
/// or `result`; `auto` or nothing: whichever it looks like.
fn form_of(text: &str) -> Result<Form, String> {
    match text {
        "" | "auto" => Ok(Form::Either),
        "value" => Ok(Form::Bare),
        "answer" => Ok(Form::Enveloped),
        other => Err(format!("form {other:?} is none of auto, value and answer")),
    }
}

/// A type among those of its fork.
struct Found {
    schema: Types,
    ty: TypeId,
}

enum Types {
    /// The fork's.
    Named(&'static Schema),
    /// The same, and what was written.
    Written(Box<Schema>),
}

impl Deref for Types {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Types::Named(schema) => schema,
            Types::Written(schema) => schema,
        }
    }
}

impl What<'_> {
    fn preset(&self) -> Result<Preset, String> {
        match self.preset {
            "" => Ok(Preset::Mainnet),
            name => name.parse().map_err(|unknown| format!("{unknown}")),
        }
    }

    /// `None`: it was not said, and each fork has another type of that name.
    fn fork(&self) -> Result<Option<Fork>, String> {
        let named: Option<Fork> = match self.fork {
            "" => None,
            name => Some(name.parse().map_err(|unknown| format!("{unknown}"))?),
        };
        Ok(named)
    }

    /// The type's name in that fork, or, of what is the same in all, in any.
    fn type_name(&self, fork: Option<Fork>) -> Result<&str, String> {
        let name = self.name;
        let gives = if name.starts_with('/') {
            let target = name.as_bytes();
            let gives = route::gives(b"GET", target).or_else(|| route::gives(b"POST", target));
            gives.ok_or_else(|| format!("{name} is no route that gives SSZ"))?
        } else if let Some(gives) = call::gives(name.as_bytes()) {
            gives
        } else {
            return Ok(name);
        };
        if *gives == route::Gives::Updates {
            return Err(format!("{name} gives many values, each of its own fork"));
        }
        let newest = Fork::ALL.last().copied().unwrap_or(Fork::Phase0);
        let of = gives.name(fork.unwrap_or(newest), None);
        of.ok_or_else(|| format!("{name} gives no one type: name that"))
    }

    fn find(&self, fork: Option<Fork>) -> Result<Option<Found>, String> {
        let (preset, name) = (self.preset()?, self.type_name(fork)?);
        let fork = match fork {
            Some(fork) => fork,
            None if Schema::is_of_every_fork(name) => Fork::Phase0,
            None => return Ok(None),
        };
        let known = Schema::of(fork, preset);
        if let Some(ty) = known.find(name) {
            let schema = Types::Named(known);
            return Ok(Some(Found { schema, ty }));
        }
        let wrong = |bad| format!("{fork}, {preset}: {bad}");
        let mut schema = Schema::with_limits(fork, preset, &[]).map_err(wrong)?;
        let ty = schema.parse(name).map_err(wrong)?;
        let schema = Types::Written(Box::new(schema));
        Ok(Some(Found { schema, ty }))
    }

    fn found(&self) -> Result<Found, String> {
        let missing = || format!("{} is another type in each fork: say which fork", self.name);
        self.find(self.fork()?)?.ok_or_else(missing)
    }
}

fn said(error: Error) -> String {
    error.to_string()
}

/// SSZ of JSON.
///
/// # Errors
/// What is wrong with it, or with `what` or `form`.
pub fn to_ssz(what: &What<'_>, form: &str, json: &[u8]) -> Result<Vec<u8>, String> {
    let (form, fork) = (form_of(form)?, what.fork()?);
    let Some(Found { schema, ty }) = what.find(fork)? else {
        return by_version(what, form, json);
    };
    let mut reader = ToSsz::new(&schema, ty, form);
    let read = reader.push(json);
    if let (Some(fork), Some(version)) = (fork, reader.version()) {
        if version != fork.name() {
            return Err(format!("the answer's version is {version:?}, not {fork}"));
        }
    }
    read.map_err(said)?;
    reader.end().map_err(said)
}

/// Of the fork that the answer names, wherever in it.
fn by_version(what: &What<'_>, form: Form, json: &[u8]) -> Result<Vec<u8>, String> {
    if form == Form::Bare {
        return what.found().map(|_| Vec::new());
    }
    let version = version(json).map_err(|error| match error.problem() {
        Problem::NoValue => format!("{error}; a value without its answer needs its fork"),
        _ => said(error),
    })?;
    let version = version.ok_or("the answer has no version: say which fork")?;
    let fork: Fork = version
        .parse()
        .map_err(|unknown| format!("the version {unknown}"))?;
    let (name, schema) = (
        what.type_name(Some(fork))?,
        Schema::of(fork, what.preset()?),
    );
    let ty = schema.find(name);
    let ty = ty.ok_or_else(|| format!("{fork} has no {name}"))?;
    let mut reader = ToSsz::new(schema, ty, Form::Enveloped);
    reader.push(json).map_err(said)?;
    reader.end().map_err(said)
}

/// JSON of SSZ, or of the part of it that a path leads to.
///
/// # Errors
/// What is wrong with it, with `what` or with the path.
pub fn to_json(what: &What<'_>, path: &str, ssz: &[u8]) -> Result<Vec<u8>, String> {
    let Found { schema, ty } = what.found()?;
    let (ty, range) = select(&schema, ty, ssz, path).map_err(said)?;
    let part = ssz.get(range).unwrap_or_default();
    json_of(&schema, ty, part).map_err(said)
}

/// Whether it is a value of that type, by each rule.
///
/// # Errors
/// What is wrong with it, or with `what`.
pub fn check(what: &What<'_>, ssz: &[u8]) -> Result<(), String> {
    let Found { schema, ty } = what.found()?;
    check_ssz(&schema, ty, ssz).map_err(said)
}

/// Its root (`hash_tree_root`), or that of the part that a path leads to: `0x` and 64 hex
/// digits.
///
/// # Errors
/// As of [`to_json`].
pub fn root(what: &What<'_>, path: &str, ssz: &[u8]) -> Result<String, String> {
    let Found { schema, ty } = what.found()?;
    let (ty, range) = select(&schema, ty, ssz, path).map_err(said)?;
    let part = ssz.get(range).unwrap_or_default();
    let root = hash_tree_root(&schema, ty, part).map_err(said)?;
    Ok(format!("0x{}", const_hex::encode(root)))
}

#[cfg(test)]
mod tests {
    use super::{check, root, to_json, to_ssz, What};

    const JSON: &str = r#"{"epoch":"7","root":"0x1111111111111111111111111111111111111111111111111111111111111111"}"#;

    fn what(name: &str) -> What<'_> {
        What {
            name,
            ..What::default()
        }
    }

    #[test]
    fn a_value_goes_there_and_back() {
        let checkpoint = What {
            fork: "electra",
            ..what("Checkpoint")
        };
        let ssz = to_ssz(&checkpoint, "", JSON.as_bytes()).unwrap();
        assert_eq!(ssz.len(), 40);
        assert_eq!(to_json(&checkpoint, "", &ssz).unwrap(), JSON.as_bytes());
        assert_eq!(to_json(&checkpoint, "epoch", &ssz).unwrap(), br#""7""#);
        assert_eq!(check(&checkpoint, &ssz), Ok(()));
        assert!(check(&checkpoint, &ssz[1..]).is_err());
        let whole = root(&checkpoint, "", &ssz).unwrap();
        assert_eq!(whole.len(), 66);
        let part = root(&checkpoint, "root", &ssz).unwrap();
        assert_eq!(part, format!("0x{}", "11".repeat(32)));
        let list = What {
            name: "List[Checkpoint, 4]",
            ..checkpoint
        };
        let two = to_ssz(&list, "value", format!("[{JSON},{JSON}]").as_bytes()).unwrap();
        assert_eq!(two, [ssz.clone(), ssz].concat());
    }

    #[test]
    fn an_answer_says_its_fork_and_a_method_its_type() {
        let answer = format!(r#"{{"data":{JSON},"version":"deneb"}}"#);
        assert_eq!(
            to_ssz(&what("Checkpoint"), "", answer.as_bytes())
                .unwrap()
                .len(),
            40
        );
        let code = r#"{"jsonrpc":"2.0","id":1,"result":"0x0102"}"#;
        for name in ["eth_getCode", "ByteString"] {
            let ssz = to_ssz(&what(name), "answer", code.as_bytes()).unwrap();
            assert_eq!(ssz, [1, 2], "{name}");
            assert_eq!(to_json(&what(name), "", &ssz).unwrap(), br#""0x0102""#);
        }
        let route = "/eth/v1/beacon/states/head/pending_consolidations";
        let json = r#"{"version":"electra","data":[{"source_index":"1","target_index":"2"}]}"#;
        assert_eq!(to_ssz(&what(route), "", json.as_bytes()).unwrap().len(), 16);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let of = |name, fork, preset, form| {
            let what = What { name, fork, preset };
            to_ssz(&what, form, JSON.as_bytes()).unwrap_err()
        };
        for (error, why) in [
            (of("Checkpoint", "", "", "value"), "say which fork"),
            (of("Checkpoint", "", "", ""), "needs its fork"),
            (of("Checkpoint", "frontier", "", ""), "frontier"),
            (of("Checkpoint", "electra", "sepolia", ""), "sepolia"),
            (
                of("Checkpoint", "electra", "", "text"),
                "\"text\" is none of",
            ),
            (of("Chickpoint", "electra", "", ""), "Chickpoint"),
            (of("/eth/v1/node/version", "", "", ""), "no route"),
            (
                of("/eth/v1/beacon/light_client/updates", "", "", ""),
                "many values",
            ),
            (
                of("/eth/v3/validator/blocks/7", "deneb", "", ""),
                "no one type",
            ),
            (of("BeaconBlock", "electra", "", ""), "neither data"),
        ] {
            assert!(error.contains(why), "{why}: {error}");
        }
        let answer = format!(r#"{{"version":"deneb","data":{JSON}}}"#);
        let electra = What {
            fork: "electra",
            ..what("Checkpoint")
        };
        let error = to_ssz(&electra, "", answer.as_bytes()).unwrap_err();
        assert!(error.contains("not electra"), "{error}");
        assert!(root(&what("Checkpoint"), "", b"").is_err());
    }
}

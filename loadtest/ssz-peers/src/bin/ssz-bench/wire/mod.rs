//! A client on the wire, for `loadtest/bench/run --suite wire`: `ssz-bench wire
//! SPEC.json` does one thing in a process of its own and says what it took.

mod answer;
mod values;

use std::error::Error;
use std::fs;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ssz_peers::peers::libssz::{BeaconState, ExecutionWitness, SignedBeaconBlock};
use ssz_peers::peers::{Serde, Value};

use self::answer::{Answer, Request};

/// The first argument of such a process.
pub const CHILD: &str = "wire";

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Spec {
    /// Writes values in JSON, as an answer has them, and in SSZ.
    Values(values::Values),
    /// Asks, one request after the other over one connection.
    Fetch(Fetch),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fetch {
    /// `IP:PORT` or `unix:PATH`.
    to: String,
    requests: Vec<Request>,
    /// The last answer must be one of these files, without its coding.
    #[serde(default)]
    same_as: Vec<String>,
    /// Where it is written to.
    write: Option<String>,
    /// How it is decoded once it is there, one way after the other, those that
    /// fit what it says it is.
    #[serde(default)]
    decode: Vec<How>,
    /// What it is.
    of: Option<Type>,
    /// What comes of decoding must be this file's SSZ, or is written to it.
    ssz: Option<String>,
    #[serde(default)]
    writes_ssz: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
enum How {
    #[serde(rename = "serde_json")]
    SerdeJson,
    #[serde(rename = "sonic-rs")]
    SonicRs,
    #[serde(rename = "libssz")]
    Ssz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Type {
    BeaconState,
    SignedBeaconBlock,
    ExecutionWitness,
}

/// What the value is in.
#[derive(Deserialize)]
struct Enveloped<T> {
    #[serde(alias = "result")]
    data: T,
}

/// What a process says.
#[derive(Serialize)]
struct Fetched {
    #[serde(flatten)]
    answer: Answer,
    /// Bytes without the coding.
    bytes: usize,
    /// The index of the file that it is.
    is: Option<usize>,
    /// Wall time of each way of decoding.
    decode_ns: Vec<(How, u64)>,
}

/// Does what the file says.
pub fn child(spec: Option<String>) -> Result<(), Box<dyn Error>> {
    let spec = spec.ok_or("wire SPEC.json")?;
    match serde_json::from_slice(&fs::read(spec)?)? {
        Spec::Values(values) => values.write(),
        Spec::Fetch(fetch) => {
            println!("{}", serde_json::to_string(&fetch.run()?)?);
            Ok(())
        }
    }
}

impl Fetch {
    fn run(&self) -> Result<Fetched, Box<dyn Error>> {
        let (answer, body) = answer::ask(&self.to, &self.requests)?;
        let mut is = None;
        for (at, name) in self.same_as.iter().enumerate() {
            if fs::read(name)? == body {
                is = Some(at);
                break;
            }
        }
        if is.is_none() && !self.same_as.is_empty() {
            return Err(format!("not what was expected: {answer:?}, {} bytes", body.len()).into());
        }
        if let Some(name) = &self.write {
            fs::write(name, &body)?;
        }
        let mut decode_ns = Vec::new();
        let is_ssz = answer.is_ssz();
        let ways = self.decode.iter();
        for how in ways.filter(|how| (**how == How::Ssz) == is_ssz) {
            let (took, ssz) = self.decode(*how, &body)?;
            decode_ns.push((*how, took));
            match &self.ssz {
                Some(name) if self.writes_ssz => fs::write(name, ssz)?,
                Some(name) if fs::read(name)? != ssz => {
                    return Err(format!("{how:?}: decodes to something else").into());
                }
                _ => (),
            }
        }
        Ok(Fetched {
            bytes: body.len(),
            answer,
            is,
            decode_ns,
        })
    }

    fn decode(&self, how: How, body: &[u8]) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
        match self.of.ok_or("what is it?")? {
            Type::BeaconState => decode::<BeaconState>(how, body),
            Type::SignedBeaconBlock => decode::<SignedBeaconBlock>(how, body),
            Type::ExecutionWitness => decode::<ExecutionWitness>(how, body),
        }
    }
}

/// What decoding took, without making SSZ again.
fn decode<T: Value + DeserializeOwned>(
    how: How,
    body: &[u8],
) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
    let begin = Instant::now();
    let value = match how {
        How::SerdeJson => Serde::SerdeJson.read::<Enveloped<T>>(body)?.data,
        How::SonicRs => Serde::SonicRs.read::<Enveloped<T>>(body)?.data,
        How::Ssz => T::decode(body)?,
    };
    let took = begin.elapsed().as_nanos() as u64;
    Ok((took, value.encode()))
}

//! Params of calls, parsed as strictly as by geth.

use serde_json::value::RawValue;
use serde_json::Value;

use crate::rpc::Failure;
use crate::sample::values::{Fixed, Word};

/// The block that a call's parameter names: number, tag or hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    Number(u64),
    Earliest,
    Finalized,
    Safe,
    Latest,
    Pending,
    Hash { hash: Word, canonical: bool },
}

/// The positional params of one call, parsed on access.
#[derive(Debug)]
pub struct Params(Vec<Value>);

impl Params {
    /// Parses params; absent ones are empty, params by name are refused.
    pub fn new(params: Option<&RawValue>) -> Result<Self, Failure> {
        let Some(params) = params.filter(|params| params.get() != "null") else {
            return Ok(Self(Vec::new()));
        };
        let params = serde_json::from_str(params.get());
        params
            .map(Self)
            .map_err(|_| Failure::params("non-array args"))
    }

    /// Returns a param that is present and not null.
    pub fn get(&self, index: usize) -> Option<&Value> {
        self.0.get(index).filter(|value| !value.is_null())
    }

    pub fn required(&self, index: usize) -> Result<&Value, Failure> {
        self.get(index)
            .ok_or_else(|| Failure::params(&format!("missing value for required argument {index}")))
    }

    /// Returns a number or a tag; a hash is invalid.
    pub fn number(&self, index: usize) -> Result<Reference, Failure> {
        number(self.required(index)?).map_err(|why| invalid(index, &why))
    }

    /// Returns a block reference: a number, a tag, a hash, or an object of EIP-1898; absent is
    /// `latest`.
    pub fn block(&self, index: usize) -> Result<Reference, Failure> {
        match self.get(index) {
            Some(value) => reference(value).map_err(|why| invalid(index, &why)),
            None => Ok(Reference::Latest),
        }
    }

    /// Returns bytes of a fixed length.
    pub fn fixed<const N: usize>(&self, index: usize) -> Result<Fixed<N>, Failure> {
        fixed(self.required(index)?).map_err(|why| invalid(index, &why))
    }

    /// Returns a quantity, in hex or, where geth accepts it, as a number.
    pub fn quantity(&self, index: usize) -> Result<u64, Failure> {
        let value = self.required(index)?;
        match value.as_u64() {
            Some(number) => Ok(number),
            None => quantity(value).map_err(|why| invalid(index, &why)),
        }
    }

    /// Returns a storage slot: up to 32 bytes, with or without leading zeros.
    pub fn slot(&self, index: usize) -> Result<Word, Failure> {
        let digits = digits(self.required(index)?).map_err(|why| invalid(index, &why))?;
        let padded = format!("{digits:0>64}");
        let mut word = [0; 32];
        hex::decode_to_slice(padded, &mut word)
            .map_err(|_| invalid(index, "unable to decode storage key"))?;
        Ok(word.into())
    }

    /// Returns a flag; absent is false.
    pub fn flag(&self, index: usize) -> Result<bool, Failure> {
        let value = self.get(index).map(|value| {
            value
                .as_bool()
                .ok_or_else(|| invalid(index, "not a boolean"))
        });
        value.unwrap_or(Ok(false))
    }
}

fn invalid(index: usize, why: &str) -> Failure {
    Failure::params(&format!("invalid argument {index}: {why}"))
}

/// Parses a number or a tag.
pub fn number(value: &Value) -> Result<Reference, String> {
    Ok(match value.as_str() {
        Some("earliest") => Reference::Earliest,
        Some("finalized") => Reference::Finalized,
        Some("safe") => Reference::Safe,
        Some("latest") => Reference::Latest,
        Some("pending") => Reference::Pending,
        _ => Reference::Number(quantity(value)?),
    })
}

/// Parses any block reference.
pub fn reference(value: &Value) -> Result<Reference, String> {
    if let Value::Object(members) = value {
        let canonical = match members.get("requireCanonical") {
            None | Some(Value::Null) => false,
            Some(flag) => flag.as_bool().ok_or("requireCanonical is not a boolean")?,
        };
        let of = |name: &str| members.get(name).filter(|value| !value.is_null());
        return match (of("blockHash"), of("blockNumber")) {
            (Some(_), Some(_)) => {
                let why = "cannot specify both BlockHash and BlockNumber, choose one or the other";
                Err(why.to_owned())
            }
            (Some(hash), None) => Ok(Reference::Hash {
                hash: fixed(hash)?,
                canonical,
            }),
            (None, Some(value)) => number(value),
            (None, None) => Err("neither blockHash nor blockNumber".to_owned()),
        };
    }
    match value.as_str().filter(|text| text.len() == 66) {
        Some(_) => Ok(Reference::Hash {
            hash: fixed(value)?,
            canonical: false,
        }),
        None => number(value),
    }
}

fn digits(value: &Value) -> Result<&str, String> {
    let text = value.as_str().ok_or("not a string")?;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    Ok(digits.ok_or("hex string without 0x prefix")?)
}

/// Parses bytes of a fixed length.
pub fn fixed<const N: usize>(value: &Value) -> Result<Fixed<N>, String> {
    let digits = digits(value)?;
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes)
        .map_err(|_| format!("hex string has length {}, want {}", digits.len(), 2 * N))?;
    Ok(bytes.into())
}

fn quantity(value: &Value) -> Result<u64, String> {
    let digits = digits(value)?;
    if digits.is_empty() {
        return Err("hex string \"0x\"".to_owned());
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err("hex number with leading zero digits".to_owned());
    }
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("invalid hex string".to_owned());
    }
    let number = u64::from_str_radix(digits, 16).map_err(|_| "hex number > 64 bits")?;
    match i64::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err("block number larger than int64".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn block_reference_is_parsed_in_every_notation() {
        let hash = Word::from([0xab; 32]);
        let of_hash = |canonical| Reference::Hash { hash, canonical };
        let cases = [
            (json!("0x0"), Reference::Number(0)),
            (json!("0xAb"), Reference::Number(0xab)),
            (json!("earliest"), Reference::Earliest),
            (json!("finalized"), Reference::Finalized),
            (json!("safe"), Reference::Safe),
            (json!("latest"), Reference::Latest),
            (json!("pending"), Reference::Pending),
            (json!(hash.to_string()), of_hash(false)),
            (json!({"blockNumber": "0x5"}), Reference::Number(5)),
            (json!({"blockNumber": "latest"}), Reference::Latest),
            (json!({"blockHash": hash.to_string()}), of_hash(false)),
            (
                json!({"blockHash": hash.to_string(), "requireCanonical": true}),
                of_hash(true),
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(reference(&value), Ok(expected), "{value}");
        }
    }

    #[test]
    fn invalid_block_reference_is_refused() {
        let hash = Word::from([0xab; 32]).to_string();
        let cases = [
            json!(5),
            json!("5"),
            json!("0x"),
            json!("0x05"),
            json!("0x-5"),
            json!("0x+5"),
            json!("0x10000000000000000"),
            json!("0xffffffffffffffff"),
            json!("newest"),
            json!({}),
            json!({"blockHash": hash, "blockNumber": "0x5"}),
            json!({"blockHash": "0x5"}),
            json!({"blockHash": hash, "requireCanonical": "yes"}),
            json!(["latest"]),
            json!(true),
        ];
        for value in cases {
            reference(&value).unwrap_err();
        }
    }
}

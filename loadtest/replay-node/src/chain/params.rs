//! Params of calls, parsed as strictly as by geth.

use serde_json::value::RawValue;
use serde_json::Value;

use crate::rpc::RpcError;
use crate::sample::values::{FixedBytes, Word};

/// The block that a param of a call names: a number, a tag or a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedBlockParam {
    Number(u64),
    Earliest,
    Finalized,
    Safe,
    Latest,
    Pending,
    Hash { hash: Word, canonical: bool },
}

/// The positional params of a JSON-RPC call, parsed on access.
#[derive(Debug)]
pub struct CallParams(Vec<Value>);

impl CallParams {
    /// Parses params; absent ones are empty, params by name are refused.
    pub fn new(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let Some(params) = params.filter(|params| params.get() != "null") else {
            return Ok(Self(Vec::new()));
        };
        let params = serde_json::from_str(params.get());
        params
            .map(Self)
            .map_err(|_| RpcError::invalid_params("non-array args"))
    }

    /// Returns a param that is present and not null.
    pub fn optional_param(&self, index: usize) -> Option<&Value> {
        self.0.get(index).filter(|value| !value.is_null())
    }

    pub fn required_param(&self, index: usize) -> Result<&Value, RpcError> {
        self.optional_param(index).ok_or_else(|| {
            RpcError::invalid_params(&format!("missing value for required argument {index}"))
        })
    }

    /// Returns a number or a tag; a hash is invalid.
    pub fn parse_block_number(&self, index: usize) -> Result<ParsedBlockParam, RpcError> {
        parse_block_number(self.required_param(index)?).map_err(|why| invalid_param(index, &why))
    }

    /// Returns a block reference: a number, a tag, a hash, or an object of EIP-1898; absent is
    /// `latest`.
    pub fn block_reference_param(&self, index: usize) -> Result<ParsedBlockParam, RpcError> {
        match self.optional_param(index) {
            Some(value) => parse_block_reference(value).map_err(|why| invalid_param(index, &why)),
            None => Ok(ParsedBlockParam::Latest),
        }
    }

    /// Returns bytes of a fixed length.
    pub fn parse_fixed_bytes<const N: usize>(
        &self,
        index: usize,
    ) -> Result<FixedBytes<N>, RpcError> {
        parse_fixed_bytes(self.required_param(index)?).map_err(|why| invalid_param(index, &why))
    }

    /// Returns a quantity, in hex or, where geth accepts it, as a number.
    pub fn parse_quantity(&self, index: usize) -> Result<u64, RpcError> {
        let value = self.required_param(index)?;
        match value.as_u64() {
            Some(number) => Ok(number),
            None => parse_quantity(value).map_err(|why| invalid_param(index, &why)),
        }
    }

    /// Returns a storage slot: up to 32 bytes, with or without leading zeros.
    pub fn storage_slot_param(&self, index: usize) -> Result<Word, RpcError> {
        let digits =
            hex_digits(self.required_param(index)?).map_err(|why| invalid_param(index, &why))?;
        let padded = format!("{digits:0>64}");
        let mut word = [0; 32];
        hex::decode_to_slice(padded, &mut word)
            .map_err(|_| invalid_param(index, "unable to decode storage key"))?;
        Ok(word.into())
    }

    /// Returns a flag; absent is false.
    pub fn flag_param(&self, index: usize) -> Result<bool, RpcError> {
        let value = self.optional_param(index).map(|value| {
            value
                .as_bool()
                .ok_or_else(|| invalid_param(index, "not a boolean"))
        });
        value.unwrap_or(Ok(false))
    }
}

fn invalid_param(index: usize, why: &str) -> RpcError {
    RpcError::invalid_params(&format!("invalid argument {index}: {why}"))
}

/// Parses a block number in hex, or one of the five tags.
pub fn parse_block_number(value: &Value) -> Result<ParsedBlockParam, String> {
    Ok(match value.as_str() {
        Some("earliest") => ParsedBlockParam::Earliest,
        Some("finalized") => ParsedBlockParam::Finalized,
        Some("safe") => ParsedBlockParam::Safe,
        Some("latest") => ParsedBlockParam::Latest,
        Some("pending") => ParsedBlockParam::Pending,
        _ => ParsedBlockParam::Number(parse_quantity(value)?),
    })
}

/// Parses a number, a tag, a hash, or an object of EIP-1898.
pub fn parse_block_reference(value: &Value) -> Result<ParsedBlockParam, String> {
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
            (Some(hash), None) => Ok(ParsedBlockParam::Hash {
                hash: parse_fixed_bytes(hash)?,
                canonical,
            }),
            (None, Some(value)) => parse_block_number(value),
            (None, None) => Err("neither blockHash nor blockNumber".to_owned()),
        };
    }
    match value.as_str().filter(|text| text.len() == 66) {
        Some(_) => Ok(ParsedBlockParam::Hash {
            hash: parse_fixed_bytes(value)?,
            canonical: false,
        }),
        None => parse_block_number(value),
    }
}

/// Returns the digits after `0x` or `0X`; they are not checked.
fn hex_digits(value: &Value) -> Result<&str, String> {
    let text = value.as_str().ok_or("not a string")?;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    Ok(digits.ok_or("hex string without 0x prefix")?)
}

/// Parses bytes of a fixed length.
pub fn parse_fixed_bytes<const N: usize>(value: &Value) -> Result<FixedBytes<N>, String> {
    let digits = hex_digits(value)?;
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes)
        .map_err(|_| format!("hex string has length {}, want {}", digits.len(), 2 * N))?;
    Ok(bytes.into())
}

/// Parses a quantity as strictly as geth: with a prefix, without leading zeros, and at most 64
/// bits.
fn parse_quantity(value: &Value) -> Result<u64, String> {
    let digits = hex_digits(value)?;
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
        let of_hash = |canonical| ParsedBlockParam::Hash { hash, canonical };
        let cases = [
            (json!("0x0"), ParsedBlockParam::Number(0)),
            (json!("0xAb"), ParsedBlockParam::Number(0xab)),
            (json!("earliest"), ParsedBlockParam::Earliest),
            (json!("finalized"), ParsedBlockParam::Finalized),
            (json!("safe"), ParsedBlockParam::Safe),
            (json!("latest"), ParsedBlockParam::Latest),
            (json!("pending"), ParsedBlockParam::Pending),
            (json!(hash.to_string()), of_hash(false)),
            (json!({"blockNumber": "0x5"}), ParsedBlockParam::Number(5)),
            (json!({"blockNumber": "latest"}), ParsedBlockParam::Latest),
            (json!({"blockHash": hash.to_string()}), of_hash(false)),
            (
                json!({"blockHash": hash.to_string(), "requireCanonical": true}),
                of_hash(true),
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(parse_block_reference(&value), Ok(expected), "{value}");
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
            parse_block_reference(&value).unwrap_err();
        }
    }
}

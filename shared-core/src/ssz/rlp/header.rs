//! Conversion of a block header from JSON (execution-apis, `Block`) to the RLP that its hash
//! covers. Witnesses of geth contain headers as objects.

use serde::Deserialize;
use sha3::{Digest, Keccak256};

use super::prefix::{rlp_string_prefix, write_rlp_prefix};

/// A block header as nodes write it in JSON, with its fields as texts. Fields of later forks are
/// missing or null in earlier ones.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonBlockHeader {
    parent_hash: String,
    sha3_uncles: String,
    miner: String,
    state_root: String,
    transactions_root: String,
    receipts_root: String,
    logs_bloom: String,
    difficulty: String,
    number: String,
    gas_limit: String,
    gas_used: String,
    timestamp: String,
    extra_data: String,
    mix_hash: String,
    nonce: String,
    base_fee_per_gas: Option<String>,
    withdrawals_root: Option<String>,
    blob_gas_used: Option<String>,
    excess_blob_gas: Option<String>,
    parent_beacon_block_root: Option<String>,
    requests_hash: Option<String>,
    block_access_list_hash: Option<String>,
    slot_number: Option<String>,
    hash: String,
}

/// The text of one field of a block header in JSON, by the kind of RLP string that it is encoded
/// as.
enum RlpFieldText<'h> {
    /// Fixed number of bytes.
    Bytes(&'h str, usize),
    /// Any number of bytes.
    Data(&'h str),
    /// A number without leading zeros.
    Quantity(&'h str),
}

impl JsonBlockHeader {
    /// Lists the fields that the header has, with their JSON names, in the order of the RLP.
    fn list_header_rlp_fields(&self) -> Vec<(&'static str, RlpFieldText<'_>)> {
        use RlpFieldText::{Bytes, Data, Quantity};
        let mut fields = vec![
            ("parentHash", Bytes(&self.parent_hash, 32)),
            ("sha3Uncles", Bytes(&self.sha3_uncles, 32)),
            ("miner", Bytes(&self.miner, 20)),
            ("stateRoot", Bytes(&self.state_root, 32)),
            ("transactionsRoot", Bytes(&self.transactions_root, 32)),
            ("receiptsRoot", Bytes(&self.receipts_root, 32)),
            ("logsBloom", Bytes(&self.logs_bloom, 256)),
            ("difficulty", Quantity(&self.difficulty)),
            ("number", Quantity(&self.number)),
            ("gasLimit", Quantity(&self.gas_limit)),
            ("gasUsed", Quantity(&self.gas_used)),
            ("timestamp", Quantity(&self.timestamp)),
            ("extraData", Data(&self.extra_data)),
            ("mixHash", Bytes(&self.mix_hash, 32)),
            ("nonce", Bytes(&self.nonce, 8)),
        ];
        let later = [
            ("baseFeePerGas", &self.base_fee_per_gas, 0),
            ("withdrawalsRoot", &self.withdrawals_root, 32),
            ("blobGasUsed", &self.blob_gas_used, 0),
            ("excessBlobGas", &self.excess_blob_gas, 0),
            ("parentBeaconBlockRoot", &self.parent_beacon_block_root, 32),
            ("requestsHash", &self.requests_hash, 32),
            ("blockAccessListHash", &self.block_access_list_hash, 32),
            ("slotNumber", &self.slot_number, 0),
        ];
        for (name, value, len) in later {
            if let Some(value) = value {
                fields.push(match len {
                    0 => (name, Quantity(value)),
                    len => (name, Bytes(value, len)),
                });
            }
        }
        fields
    }
}

/// Encodes a header as RLP, and verifies the hash that the object names.
///
/// # Errors
/// The reason why the header is invalid. A field that is not known here results in another hash.
pub(in crate::ssz) fn encode_block_header(json: &[u8]) -> Result<Vec<u8>, String> {
    let header: JsonBlockHeader =
        serde_json::from_slice(json).map_err(|bad| format!("not a header: {bad}"))?;
    let mut content = Vec::new();
    for (name, field) in header.list_header_rlp_fields() {
        let bytes = match field {
            RlpFieldText::Bytes(text, len) => decode_hex(text).filter(|bytes| bytes.len() == len),
            RlpFieldText::Data(text) => decode_hex(text),
            RlpFieldText::Quantity(text) => decode_quantity_to_bytes(text),
        };
        let Some(bytes) = bytes else {
            return Err(format!("not a header: {name} is invalid"));
        };
        if let Some(prefix) = rlp_string_prefix(&bytes) {
            content.extend(prefix);
        }
        content.extend(bytes);
    }
    let mut rlp = Vec::new();
    write_rlp_prefix(true, content.len() as u64, &mut rlp);
    rlp.extend(content);
    let hash = Keccak256::digest(&rlp);
    match decode_hex(&header.hash) {
        Some(named) if named == hash[..] => Ok(rlp),
        _ => Err(format!(
            "the hash of the header is 0x{}, not {}",
            const_hex::encode(hash),
            header.hash
        )),
    }
}

/// Decodes `0x` and hex digits; `None` for any other text.
fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?;
    const_hex::decode(digits)
        .ok()
        .filter(|_| !digits.starts_with("0x"))
}

/// Decodes a hex number to big-endian bytes without leading zeros, as RLP has it.
fn decode_quantity_to_bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text
        .strip_prefix("0x")
        .filter(|digits| !digits.is_empty())?;
    let even = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
    let bytes = decode_hex(&format!("0x{even}"))?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of Mainnet's genesis block, whose hash is well known.
    fn genesis() -> serde_json::Value {
        let zero = |len: usize| format!("0x{}", "00".repeat(len));
        serde_json::json!({
            "parentHash": zero(32),
            "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
            "miner": zero(20),
            "stateRoot": "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544",
            "transactionsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
            "receiptsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
            "logsBloom": zero(256),
            "difficulty": "0x400000000",
            "number": "0x0",
            "gasLimit": "0x1388",
            "gasUsed": "0x0",
            "timestamp": "0x0",
            "extraData": "0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa",
            "mixHash": zero(32),
            "nonce": "0x0000000000000042",
            "baseFeePerGas": null,
            "hash": "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3",
        })
    }

    fn encoded(header: &serde_json::Value) -> Result<Vec<u8>, String> {
        encode_block_header(header.to_string().as_bytes())
    }

    #[test]
    fn header_is_rejected_when_its_hash_differs() {
        assert_eq!(encoded(&genesis()).map(|rlp| rlp.len()), Ok(535));
        for (field, value) in [
            ("number", "0x1".into()),
            ("baseFeePerGas", "0x7".into()),
            ("nonce", "0x42".into()),
            ("gasLimit", "0x".into()),
            ("gasLimit", "1388".into()),
            ("hash", "0x00".into()),
            ("miner", serde_json::Value::Null),
        ] {
            let mut header = genesis();
            header[field] = value;
            assert!(encoded(&header).is_err(), "{header}");
        }
    }
}

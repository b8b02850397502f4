//! Ethereum's JSON values: hex data and quantities.

use std::fmt::{self, LowerHex};

use serde::{Serialize, Serializer};

/// Bytes of a fixed length, serialized as `0x` and all hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedBytes<const N: usize>(pub [u8; N]);

/// The address of an account.
pub type Address = FixedBytes<20>;
/// A hash, or a word of the EVM.
pub type Word = FixedBytes<32>;

impl<const N: usize> Serialize for FixedBytes<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex_prefixed(&self.0))
    }
}

impl<const N: usize> Default for FixedBytes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> From<[u8; N]> for FixedBytes<N> {
    fn from(bytes: [u8; N]) -> Self {
        Self(bytes)
    }
}

impl<const N: usize> fmt::Display for FixedBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex_prefixed(&self.0))
    }
}

/// Bytes of any length, serialized as `0x` and all hex digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HexSerializedBytes(pub Vec<u8>);

impl Serialize for HexSerializedBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex_prefixed(&self.0))
    }
}

/// A number, serialized as `0x` and hex digits without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity<T>(pub T);

impl<T: LowerHex> Serialize for Quantity<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:#x}", self.0))
    }
}

/// A 256-bit number, serialized as a quantity: r and s of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BigQuantity(pub [u8; 32]);

impl Serialize for BigQuantity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let digits = hex::encode(self.0);
        let significant = digits.trim_start_matches('0');
        let shown = if significant.is_empty() {
            "0"
        } else {
            significant
        };
        to.serialize_str(&format!("0x{shown}"))
    }
}

impl From<Address> for Word {
    fn from(address: Address) -> Self {
        let mut word = [0; 32];
        word[12..].copy_from_slice(&address.0);
        FixedBytes(word)
    }
}

impl From<u128> for Word {
    fn from(number: u128) -> Self {
        let mut word = [0; 32];
        word[16..].copy_from_slice(&number.to_be_bytes());
        FixedBytes(word)
    }
}

pub fn hex_prefixed(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_no_leading_zeros_and_data_all_digits() {
        let mut number = [0; 32];
        assert_eq!(
            serde_json::to_string(&BigQuantity(number)).unwrap(),
            "\"0x0\""
        );
        number[1] = 0x0a;
        let expected = format!("\"0xa{}\"", "0".repeat(60));
        assert_eq!(
            serde_json::to_string(&BigQuantity(number)).unwrap(),
            expected
        );
        assert_eq!(serde_json::to_string(&Quantity(0u64)).unwrap(), "\"0x0\"");
        assert_eq!(
            serde_json::to_string(&FixedBytes([0, 1])).unwrap(),
            "\"0x0001\""
        );
        assert_eq!(
            serde_json::to_string(&HexSerializedBytes::default()).unwrap(),
            "\"0x\""
        );
    }
}

//! The compared types as structs of each peer.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::Serialize;

pub mod ethereum_ssz;
pub mod libssz;
pub mod ssz_rs;

/// A value of a container type that a compared SSZ crate (peer) encodes and decodes.
pub trait PeerSszCodec: Sized {
    /// Decodes SSZ.
    ///
    /// # Errors
    /// Returns the peer's error as text.
    fn decode_ssz(ssz: &[u8]) -> Result<Self, String>;

    /// Encodes the value as SSZ.
    fn encode_ssz(&self) -> Vec<u8>;

    /// Returns the value's `hash_tree_root`; `mut` because ssz_rs requires it.
    fn hash_root(&mut self) -> [u8; 32];
}

/// A compared library that reads and writes JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonLibrary {
    /// serde_json.
    SerdeJson,
    /// sonic-rs.
    SonicRs,
}

impl JsonLibrary {
    /// Both libraries.
    pub const ALL: [Self; 2] = [Self::SerdeJson, Self::SonicRs];

    /// Parses JSON.
    ///
    /// # Errors
    /// Returns the library's error as text.
    pub fn parse_peer_json<T: DeserializeOwned>(self, json: &[u8]) -> Result<T, String> {
        match self {
            Self::SerdeJson => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Self::SonicRs => sonic_rs::from_slice(json).map_err(|error| error.to_string()),
        }
    }

    /// Serializes a value as JSON.
    ///
    /// # Errors
    /// Returns the library's error as text; the compared types cause none.
    pub fn serialize_to_json<T: Serialize>(self, value: &T) -> Result<Vec<u8>, String> {
        match self {
            Self::SerdeJson => serde_json::to_vec(value).map_err(|error| error.to_string()),
            Self::SonicRs => sonic_rs::to_vec(value).map_err(|error| error.to_string()),
        }
    }
}

impl fmt::Display for JsonLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SerdeJson => "serde_json",
            Self::SonicRs => "sonic-rs",
        })
    }
}

/// The functions of one peer for one container type, without the Rust type.
pub struct PeerTypeCodec {
    /// Name of the type, equal to the struct's.
    pub name: &'static str,
    /// Decodes SSZ and encodes the value again.
    pub recode: fn(&[u8]) -> Result<Vec<u8>, String>,
    /// Decodes SSZ and returns the root of the value.
    pub root: fn(&[u8]) -> Result<[u8; 32], String>,
    /// JSON functions, if the peer has any here.
    pub json: Option<PeerJsonFunctions>,
}

/// The conversions between JSON and SSZ through a peer's struct.
#[derive(Clone, Copy)]
pub struct PeerJsonFunctions {
    /// Converts JSON to SSZ.
    pub to_ssz: fn(&[u8], JsonLibrary) -> Result<Vec<u8>, String>,
    /// Converts SSZ to JSON.
    pub from_ssz: fn(&[u8], JsonLibrary) -> Result<Vec<u8>, String>,
}

impl PeerJsonFunctions {
    const fn for_type<T: PeerSszCodec + Serialize + DeserializeOwned>() -> Self {
        Self {
            to_ssz: |json, serde| Ok(serde.parse_peer_json::<T>(json)?.encode_ssz()),
            from_ssz: |ssz, serde| serde.serialize_to_json(&T::decode_ssz(ssz)?),
        }
    }
}

impl PeerTypeCodec {
    const fn for_type<T: PeerSszCodec>(
        name: &'static str,
        json: Option<PeerJsonFunctions>,
    ) -> Self {
        Self {
            name,
            recode: |ssz| Ok(T::decode_ssz(ssz)?.encode_ssz()),
            root: |ssz| Ok(T::decode_ssz(ssz)?.hash_root()),
            json,
        }
    }
}

/// Returns all peers by name, with their types.
pub fn peer_codecs_by_name() -> [(&'static str, &'static [PeerTypeCodec]); 3] {
    // functions, so that the generated code is compiled once, with this crate
    [
        ("libssz", libssz::codecs()),
        ("ethereum_ssz", ethereum_ssz::codecs()),
        ("ssz_rs", ssz_rs::codecs()),
    ]
}

/// Length of the only vectors whose length is not a power of 2.
const DEPOSIT_PROOF_LENGTH: usize = 33;

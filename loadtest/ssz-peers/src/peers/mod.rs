//! The same types for each peer, in its own terms.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::Serialize;

pub mod ethereum_ssz;
pub mod libssz;
pub mod ssz_rs;

/// A value of a type that a peer holds.
pub trait Value: Sized {
    /// # Errors
    /// The peer's, as it prints them.
    fn decode(ssz: &[u8]) -> Result<Self, String>;

    /// In SSZ.
    fn encode(&self) -> Vec<u8>;

    /// Its `hash_tree_root`. (`mut`: ssz_rs wants that.)
    fn root(&mut self) -> [u8; 32];
}

/// What reads and writes JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serde {
    /// serde_json.
    SerdeJson,
    /// sonic-rs.
    SonicRs,
}

impl Serde {
    /// Both.
    pub const ALL: [Self; 2] = [Self::SerdeJson, Self::SonicRs];

    /// # Errors
    /// What is wrong with it.
    pub fn read<T: DeserializeOwned>(self, json: &[u8]) -> Result<T, String> {
        match self {
            Self::SerdeJson => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Self::SonicRs => sonic_rs::from_slice(json).map_err(|error| error.to_string()),
        }
    }

    /// # Errors
    /// None of our types has any.
    pub fn write<T: Serialize>(self, value: &T) -> Result<Vec<u8>, String> {
        match self {
            Self::SerdeJson => serde_json::to_vec(value).map_err(|error| error.to_string()),
            Self::SonicRs => sonic_rs::to_vec(value).map_err(|error| error.to_string()),
        }
    }
}

impl fmt::Display for Serde {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SerdeJson => "serde_json",
            Self::SonicRs => "sonic-rs",
        })
    }
}

/// One type of a peer, for those who don't care for its Rust type.
pub struct Codec {
    /// The type, as the structs are called.
    pub name: &'static str,
    /// Decodes SSZ, and encodes what it got.
    pub recode: fn(&[u8]) -> Result<Vec<u8>, String>,
    /// Decodes SSZ, and hashes what it got.
    pub root: fn(&[u8]) -> Result<[u8; 32], String>,
    /// Its JSON, if it has any here.
    pub json: Option<Json>,
}

/// From JSON to SSZ and back, by way of a struct.
#[derive(Clone, Copy)]
pub struct Json {
    /// To SSZ.
    pub to_ssz: fn(&[u8], Serde) -> Result<Vec<u8>, String>,
    /// From SSZ.
    pub from_ssz: fn(&[u8], Serde) -> Result<Vec<u8>, String>,
}

impl Json {
    const fn of<T: Value + Serialize + DeserializeOwned>() -> Self {
        Self {
            to_ssz: |json, serde| Ok(serde.read::<T>(json)?.encode()),
            from_ssz: |ssz, serde| serde.write(&T::decode(ssz)?),
        }
    }
}

impl Codec {
    const fn of<T: Value>(name: &'static str, json: Option<Json>) -> Self {
        Self {
            name,
            recode: |ssz| Ok(T::decode(ssz)?.encode()),
            root: |ssz| Ok(T::decode(ssz)?.root()),
            json,
        }
    }
}

/// All peers by their names, with their types.
pub fn peers() -> [(&'static str, &'static [Codec]); 3] {
    // functions, so that what they point at is compiled once, with this crate
    [
        ("libssz", libssz::codecs()),
        ("ethereum_ssz", ethereum_ssz::codecs()),
        ("ssz_rs", ssz_rs::codecs()),
    ]
}

/// Vectors that are no power of 2 long.
const DEPOSIT_PROOF_LENGTH: usize = 33;

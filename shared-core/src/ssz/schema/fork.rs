//! Forks, presets, and the tables of each.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use super::Schema;

macro_rules! forks {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// A fork of the consensus layer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fork {
            $($(#[$doc])* $name,)*
        }

        impl Fork {
            /// In their order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As `Eth-Consensus-Version` and `version` name it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Its own table: what it adds or changes.
            pub(super) fn table(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../forks/", $text, ".types")),)*
                }
            }
        }
    };
}

forks! {
    /// Of the genesis.
    Phase0 "phase0",
    /// Of sync committees.
    Altair "altair",
    /// Of the merge.
    Bellatrix "bellatrix",
    /// Of withdrawals.
    Capella "capella",
    /// Of blobs.
    Deneb "deneb",
    /// Of execution requests.
    Electra "electra",
    /// Of data columns.
    Fulu "fulu",
    /// Of payloads apart from blocks. Not final.
    Gloas "gloas",
    /// Of inclusion lists. Not final.
    Heze "heze",
}

/// What does not change with the consensus layer's forks.
pub(super) const EXECUTION: &str = include_str!("../forks/execution.types");

/// A set of constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preset {
    /// Ethereum's and its test networks'.
    Mainnet,
    /// For tests.
    Minimal,
    /// Gnosis Chain's.
    Gnosis,
}

impl Preset {
    /// In the order of the tables' columns.
    pub const ALL: &[Self] = &[Self::Mainnet, Self::Minimal, Self::Gnosis];

    /// As configurations name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mainnet => "mainnet",
            Self::Minimal => "minimal",
            Self::Gnosis => "gnosis",
        }
    }
}

/// No fork or preset is called that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    name: String,
    known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is none of {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

impl FromStr for Fork {
    type Err = UnknownName;

    /// Reads a fork's name in any letter case: header fields, envelopes and command lines
    /// name forks by this one rule.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find(Self::ALL, Self::name, &name.to_ascii_lowercase())
    }
}

impl FromStr for Preset {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find(Self::ALL, Self::name, name)
    }
}

fn find<T: Copy>(all: &[T], name: fn(T) -> &'static str, wanted: &str) -> Result<T, UnknownName> {
    let found = all.iter().find(|one| name(**one) == wanted);
    found.copied().ok_or_else(|| UnknownName {
        name: wanted.into(),
        known: all.iter().map(|one| name(*one)).collect(),
    })
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Schema {
    /// Whether a type, as it is written, does not depend on the fork.
    pub fn is_of_every_fork(name: &str) -> bool {
        Self::from_table(EXECUTION).is_ok_and(|mut schema| schema.parse(name).is_ok())
    }

    /// The types of a fork and preset, compiled when they are first asked for.
    ///
    /// # Panics
    /// If a table of this crate is wrong, which its tests rule out.
    #[allow(clippy::panic)]
    pub fn of(fork: Fork, preset: Preset) -> &'static Self {
        static SCHEMAS: [[OnceLock<Schema>; Preset::ALL.len()]; Fork::ALL.len()] =
            [const { [const { OnceLock::new() }; Preset::ALL.len()] }; Fork::ALL.len()];
        SCHEMAS[fork as usize][preset as usize].get_or_init(|| {
            Self::with_limits(fork, preset, &[])
                .unwrap_or_else(|bad| panic!("the types of {fork}, {preset}: {bad}"))
        })
    }
}

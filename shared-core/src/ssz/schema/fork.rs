//! Forks, presets, and their type tables.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use super::Schema;

macro_rules! forks {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// A fork of the consensus layer whose types this crate has, in chronological order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fork {
            $($(#[$doc])* $name,)*
        }

        impl Fork {
            /// All forks in their order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the fork's name in lower case, as `Eth-Consensus-Version` and `version` have
            /// it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the text of the fork's type table, which contains its additions and changes
            /// to the earlier forks.
            pub(super) fn fork_type_table(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../forks/", $text, ".types")),)*
                }
            }
        }
    };
}

forks! {
    /// The genesis fork.
    Phase0 "phase0",
    /// Adds sync committees.
    Altair "altair",
    /// Adds execution payloads (the merge).
    Bellatrix "bellatrix",
    /// Adds withdrawals.
    Capella "capella",
    /// Adds blobs.
    Deneb "deneb",
    /// Adds execution requests.
    Electra "electra",
    /// Adds data columns.
    Fulu "fulu",
    /// Separates payloads from blocks. Not final.
    Gloas "gloas",
    /// Adds inclusion lists. Not final.
    Heze "heze",
}

/// Type table that does not depend on the fork of the consensus layer.
pub(super) const EXECUTION_TYPE_TABLE: &str = include_str!("../forks/execution.types");

/// A set of constants of the consensus specifications, which determines lengths and limits of
/// types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preset {
    /// The preset of Ethereum Mainnet and its test networks.
    Mainnet,
    /// The preset for tests.
    Minimal,
    /// The preset of Gnosis Chain.
    Gnosis,
}

impl Preset {
    /// All presets in the order of the tables' columns.
    pub const ALL: &[Self] = &[Self::Mainnet, Self::Minimal, Self::Gnosis];

    /// Returns the name of the preset in configurations and in `PRESET_BASE`.
    pub fn preset_name(self) -> &'static str {
        match self {
            Self::Mainnet => "mainnet",
            Self::Minimal => "minimal",
            Self::Gnosis => "gnosis",
        }
    }
}

/// The error of parsing a name that is no fork, or no preset; its text lists the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownForkOrPreset {
    name: String,
    known: Vec<&'static str>,
}

impl fmt::Display for UnknownForkOrPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownForkOrPreset {}

impl FromStr for Fork {
    type Err = UnknownForkOrPreset;

    /// Parses a fork's name in any letter case. Headers, envelopes and command lines share this
    /// rule.
    fn from_str(name: &str) -> Result<Self, UnknownForkOrPreset> {
        find_by_name(Self::ALL, Self::name, &name.to_ascii_lowercase())
    }
}

impl FromStr for Preset {
    type Err = UnknownForkOrPreset;

    fn from_str(name: &str) -> Result<Self, UnknownForkOrPreset> {
        find_by_name(Self::ALL, Self::preset_name, name)
    }
}

/// Returns the item of `all` with this name; the error lists all known names.
fn find_by_name<T: Copy>(
    all: &[T],
    name: fn(T) -> &'static str,
    wanted: &str,
) -> Result<T, UnknownForkOrPreset> {
    let found = all.iter().find(|one| name(**one) == wanted);
    found.copied().ok_or_else(|| UnknownForkOrPreset {
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
        f.write_str(self.preset_name())
    }
}

impl Schema {
    /// Whether a type expression is valid in every fork.
    pub fn is_fork_independent(name: &str) -> bool {
        Self::compile_type_table(EXECUTION_TYPE_TABLE)
            .is_ok_and(|mut schema| schema.parse_type(name).is_ok())
    }

    /// Returns the types of a fork and preset, which are compiled on first use.
    ///
    /// # Panics
    /// Panics if a table of this crate is invalid, which its tests exclude.
    #[allow(clippy::panic)]
    pub fn for_fork(fork: Fork, preset: Preset) -> &'static Self {
        static SCHEMAS: [[OnceLock<Schema>; Preset::ALL.len()]; Fork::ALL.len()] =
            [const { [const { OnceLock::new() }; Preset::ALL.len()] }; Fork::ALL.len()];
        SCHEMAS[fork as usize][preset as usize].get_or_init(|| {
            Self::compile_with_constants(fork, preset, &[])
                .unwrap_or_else(|bad| panic!("the types of {fork}, {preset}: {bad}"))
        })
    }
}

//! The type that the arguments name.

use sszip_core::ssz::schema::SchemaError;
use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use crate::args::SszTypeOptions;
use crate::CommandError;

/// Words in type expressions other than names of types and constants.
const WORDS: [&str; 13] = [
    "Bitlist",
    "Bitvector",
    "ByteList",
    "ByteVector",
    "CompatibleUnion",
    "Enum",
    "List",
    "Optional",
    "ProgressiveBitlist",
    "ProgressiveByteList",
    "ProgressiveList",
    "Text",
    "Vector",
];

impl SszTypeOptions {
    /// Resolves the arguments to a schema and a type, and returns the fork if they name one.
    pub fn resolve_type_arguments(&self) -> Result<(Schema, TypeId, Option<Fork>), CommandError> {
        let fork = match self.fork {
            Some(fork) => fork,
            None if Schema::is_fork_independent(&self.name) => Fork::Phase0,
            None => return Err(self.missing_fork_error()),
        };
        let usage = |bad: SchemaError| {
            let suggestion = suggest_type(&self.name, Some(fork), self.preset);
            CommandError::Usage(format!("{fork}, {}: {bad}{suggestion}", self.preset))
        };
        let (schema, ty) = self.resolve_in_fork(fork, self.preset).map_err(usage)?;
        Ok((schema, ty, self.fork))
    }

    /// Resolves the type of the arguments in the given fork and preset.
    pub fn resolve_in_fork(
        &self,
        fork: Fork,
        preset: Preset,
    ) -> Result<(Schema, TypeId), SchemaError> {
        let limits: Vec<(&str, u64)> = self
            .limits
            .iter()
            .map(|(name, number)| (name.as_str(), *number))
            .collect();
        let mut schema = Schema::compile_with_constants(fork, preset, &limits)?;
        let ty = schema.parse_type(&self.name)?;
        Ok((schema, ty))
    }

    /// Returns the name of the type, if some fork has it.
    pub fn known_type_name(&self) -> Result<&str, CommandError> {
        let name = self.name.as_str();
        if forks_with_type(name, self.preset).next().is_some() {
            return Ok(name);
        }
        let suggestion = suggest_type(name, None, self.preset);
        Err(CommandError::Usage(format!(
            "no fork has the type {name}{suggestion}"
        )))
    }

    fn missing_fork_error(&self) -> CommandError {
        let name = &self.name;
        match suggest_type(name, None, self.preset) {
            suggestion if suggestion.is_empty() => {
                CommandError::Usage(format!("{name} differs between forks; add --fork"))
            }
            suggestion => CommandError::Usage(format!("no fork has the type {name}{suggestion}")),
        }
    }
}

/// Returns a hint for a type expression with an unknown name; empty if all names are known.
pub fn suggest_type(text: &str, fork: Option<Fork>, preset: Preset) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(|c| !is_word(c)).filter(|word| {
        word.contains(|c: char| c.is_ascii_lowercase())
            && word.starts_with(|c: char| c.is_ascii_alphabetic())
            && !WORDS.contains(word)
            && !["boolean", "floorlog2"].contains(word)
            && !word.starts_with("uint")
    });
    for name in names {
        let forks: Vec<Fork> = forks_with_type(name, preset).collect();
        match (forks.as_slice(), fork) {
            ([], _) => {}
            ([_, ..], None) => continue,
            (forks, Some(fork)) if forks.contains(&fork) => continue,
            ([only], _) => return format!("; {only} has it"),
            ([first, .., last], _) => return format!("; {first} to {last} have it"),
        }
        let forks = fork.map_or(Fork::ALL.to_vec(), |fork| vec![fork]);
        let known = forks
            .iter()
            .flat_map(|fork| Schema::for_fork(*fork, preset).named_types());
        let known = known.map(|(known, _)| known).chain(WORDS);
        return match nearest_name(name, known) {
            Some(known) => format!("; did you mean {known}?"),
            None => String::new(),
        };
    }
    String::new()
}

/// Returns the forks that have a type with this name.
fn forks_with_type(name: &str, preset: Preset) -> impl Iterator<Item = Fork> + '_ {
    let forks = Fork::ALL.iter().copied();
    forks.filter(move |fork| Schema::for_fork(*fork, preset).find_type(name).is_some())
}

/// Returns the known name with the smallest edit distance, if that is small enough.
fn nearest_name<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_ascii_lowercase();
    let known = known.map(|known| (edit_distance(&lower, &known.to_ascii_lowercase()), known));
    let (distance, known) = known.min()?;
    (distance <= 1 + name.len() / 4).then_some(known)
}

/// Computes the Levenshtein distance of two names.
fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in (1..).zip(one.bytes()) {
        let mut before = std::mem::replace(&mut row[0], n);
        for (m, b) in (1..).zip(other.bytes()) {
            let changed = before + usize::from(a != b);
            before = row[m];
            row[m] = changed.min(before + 1).min(row[m - 1] + 1);
        }
    }
    row[other.len()]
}

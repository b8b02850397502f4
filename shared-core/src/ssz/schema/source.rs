//! Parser of type tables.
//!
//! ```text
//! # a constant: one value, or one each for mainnet, minimal and gnosis
//! SLOTS_PER_EPOCH = 32, 8, 16
//! # a name for a type
//! Gwei = uint64
//! # a container; "jsonName" is the field's name in JSON, if it differs
//! class Withdrawal(Container):
//!     index: uint64
//!     validator_index "validatorIndex": uint64
//! # the fields of the earlier fork, and more after them; they are active if it is
//! # a ProgressiveContainer, to which fields are only ever appended (EIP-7495)
//! class BeaconState(BeaconState):
//!     proposer_lookahead: ProposerLookahead
//! # the fields of another container of this table, and more after them
//! class ExecutionPayloadShanghai(ExecutionPayloadParis):
//!     withdrawals: List[EngineWithdrawal, MAX_WITHDRAWALS]
//! # a type that this fork removes
//! del BlindedBeaconBlock
//! ```

use std::collections::BTreeMap;

use super::fork::Preset;
use super::tokens::{SchemaError, TypeToken, TypeTokenizer};

/// The definition of one name in the type tables, by the newest fork that defines it.
#[derive(Clone, Debug)]
pub(super) struct SchemaDefinition {
    /// Table and line of the definition.
    pub(super) place: (&'static str, usize),
    pub(super) means: DefinitionKind,
}

/// The content of a definition, as its table writes it: expressions are not evaluated yet.
#[derive(Clone, Debug)]
pub(super) enum DefinitionKind {
    /// An expression.
    Constant(String),
    /// A type's expression.
    Alias(String),
    Class {
        /// The list of `active_fields`.
        active: Option<String>,
        /// Whether the fields continue the fields of an earlier table, so that each new one is
        /// active.
        extends: bool,
        fields: Vec<SchemaFieldLine>,
    },
}

/// One line of a class in a type table: the name of a field, and its type's expression.
#[derive(Clone, Debug)]
pub(super) struct SchemaFieldLine {
    /// Table and line of the field, which may be in the table of an earlier fork.
    pub(super) place: (&'static str, usize),
    pub(super) name: String,
    pub(super) json_name: String,
    pub(super) ty: String,
}

/// Reads a type table, and adds its definitions to the definitions of earlier tables.
pub(super) fn read_type_table(
    source: &'static str,
    text: &str,
    preset: Preset,
    all: &mut BTreeMap<String, SchemaDefinition>,
) -> Result<(), SchemaError> {
    // definitions of this table only, so that duplicates are found
    let mut here: BTreeMap<String, SchemaDefinition> = BTreeMap::new();
    let mut class: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.split('#').next().unwrap_or_default();
        if content.trim().is_empty() {
            continue;
        }
        let place = (source, number);
        let read = if content.starts_with(' ') {
            match class.as_ref().and_then(|class| here.get_mut(class)) {
                Some(class) => read_field(class, place, content),
                None => Err(SchemaError::new("a field outside of a container")),
            }
        } else if let Some(gone) = content.strip_prefix("del ") {
            class = None;
            remove_deleted_definition(gone, all)
        } else {
            read_definition(content, preset, all, &here).and_then(|(name, means)| {
                class = matches!(means, DefinitionKind::Class { .. }).then(|| name.clone());
                match here.insert(name.clone(), SchemaDefinition { place, means }) {
                    Some(_) => Err(SchemaError::new(format!("{name} occurs twice"))),
                    None => Ok(()),
                }
            })
        };
        read.map_err(|bad| bad.with_location(source, number))?;
    }
    all.extend(here);
    Ok(())
}

/// Reads the name after `del`, and removes its definition by an earlier table.
fn remove_deleted_definition(
    text: &str,
    all: &mut BTreeMap<String, SchemaDefinition>,
) -> Result<(), SchemaError> {
    let mut tokens = TypeTokenizer::new(text);
    let name = tokens.expect_name()?;
    tokens.expect_end()?;
    match all.remove(name) {
        Some(_) => Ok(()),
        None => Err(SchemaError::new(format!("unknown name {name}"))),
    }
}

/// Reads a line that defines a constant, an alias or a class, and returns its name with it.
fn read_definition(
    line: &str,
    preset: Preset,
    all: &BTreeMap<String, SchemaDefinition>,
    here: &BTreeMap<String, SchemaDefinition>,
) -> Result<(String, DefinitionKind), SchemaError> {
    let mut tokens = TypeTokenizer::new(line);
    let name = tokens.expect_name()?;
    if name == "class" {
        return read_class(tokens, all, here);
    }
    tokens.expect_punctuation('=')?;
    let rest = tokens.remaining_text();
    let is_constant = name.chars().all(|c| !c.is_ascii_lowercase());
    if !is_constant {
        return Ok((name.into(), DefinitionKind::Alias(rest.into())));
    }
    let values: Vec<&str> = rest.split(',').map(str::trim).collect();
    let value = match values.len() {
        1 => values[0],
        n if n == Preset::ALL.len() => values[preset as usize],
        _ => {
            return Err(SchemaError::new(
                "a constant must have one value, or three for mainnet, minimal and gnosis",
            ))
        }
    };
    Ok((name.into(), DefinitionKind::Constant(value.into())))
}

/// Reads the head of a class after `class`: its name, its base, and the fields that it inherits.
fn read_class(
    mut tokens: TypeTokenizer<'_>,
    all: &BTreeMap<String, SchemaDefinition>,
    here: &BTreeMap<String, SchemaDefinition>,
) -> Result<(String, DefinitionKind), SchemaError> {
    let name = tokens.expect_name()?.to_owned();
    tokens.expect_punctuation('(')?;
    let base = tokens.expect_name()?;
    let (active, extends, fields) = match base {
        "Container" => (None, false, Vec::new()),
        base if base == name => match all.get(base).map(|earlier| &earlier.means) {
            Some(DefinitionKind::Class { active, fields, .. }) => {
                (active.clone(), true, fields.clone())
            }
            _ => return Err(SchemaError::new(format!("unknown container {name}"))),
        },
        "ProgressiveContainer" => {
            tokens.expect_punctuation('(')?;
            if tokens.expect_name()? != "active_fields" {
                return Err(SchemaError::new("active_fields= is missing"));
            }
            tokens.expect_punctuation('=')?;
            let rest = tokens.remaining_text();
            let end = rest
                .strip_suffix(":")
                .map(str::trim_end)
                .and_then(|rest| rest.strip_suffix("))"));
            let Some(list) = end else {
                return Err(SchemaError::new("\")):\" is missing at the end"));
            };
            let means = DefinitionKind::Class {
                active: Some(list.to_owned()),
                extends: false,
                fields: Vec::new(),
            };
            return Ok((name, means));
        }
        base => match here.get(base).map(|other| &other.means) {
            Some(DefinitionKind::Class {
                active: None,
                fields,
                ..
            }) => (None, false, fields.clone()),
            _ => return Err(SchemaError::new(format!("{base} has no fields"))),
        },
    };
    tokens.expect_punctuation(')')?;
    tokens.expect_punctuation(':')?;
    tokens.expect_end()?;
    let means = DefinitionKind::Class {
        active,
        extends,
        fields,
    };
    Ok((name, means))
}

/// Reads the line of a field, and adds the field to its class.
fn read_field(
    class: &mut SchemaDefinition,
    place: (&'static str, usize),
    text: &str,
) -> Result<(), SchemaError> {
    let DefinitionKind::Class {
        active,
        extends,
        fields,
    } = &mut class.means
    else {
        return Err(SchemaError::new("a field of a type without fields"));
    };
    let mut tokens = TypeTokenizer::new(text);
    let name = tokens.expect_name()?.to_owned();
    let mut json_name = name.clone();
    if let Some(TypeToken::Quoted(text)) = tokens.peek_token()? {
        tokens.next_token()?;
        json_name = text.into();
    }
    tokens.expect_punctuation(':')?;
    if fields
        .iter()
        .any(|field| field.name == name || field.json_name == json_name)
    {
        return Err(SchemaError::new(format!("{name} occurs twice")));
    }
    if let (Some(active), true) = (active, extends) {
        active.push_str(" + [1]");
    }
    fields.push(SchemaFieldLine {
        place,
        name,
        json_name,
        ty: tokens.remaining_text().into(),
    });
    Ok(())
}

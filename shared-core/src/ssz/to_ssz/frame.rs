//! Open objects and arrays, whose ends are not read yet.

use super::envelope::Envelope;
use super::output::Output;
use crate::ssz::error::{SszErrorKind, Step};
use crate::ssz::schema::{Container, Kind, Schema, Type, TypeId};

/// An object or array of the input that is open: its end is not read yet.
#[derive(Debug)]
pub(super) enum Frame<'s> {
    Container(Fields<'s>),
    List(Elements<'s>),
    Union(Union<'s>),
    Envelope(Envelope),
}

/// Index that stands for no field.
pub(super) const NONE: usize = usize::MAX;

/// The progress of an open container, whose fields may be in any order.
#[derive(Debug)]
pub(super) struct Fields<'s> {
    pub(super) container: &'s Container,
    /// Position of its fixed part in the output.
    pub(super) base: usize,
    /// Bit set of the fields that were read.
    pub(super) seen: u64,
    /// Index after the last field that was read.
    pub(super) next: usize,
    /// Index of the field that is being read.
    pub(super) field: usize,
    /// The value returned by [`Output::begin_container`].
    pub(super) parts: usize,
    /// Whether all fields have a fixed size.
    pub(super) is_fixed: bool,
}

/// The progress of an open list or vector, and the position of its elements in the output.
#[derive(Debug)]
pub(super) struct Elements<'s> {
    pub(super) of: &'s Type,
    /// Position of the list in the output.
    pub(super) base: usize,
    pub(super) count: u64,
    /// Maximum number of elements.
    pub(super) most: u64,
    /// Whether the maximum is also the minimum.
    pub(super) exactly: bool,
    pub(super) places: ElementPositions,
}

/// The way in which the elements of an open list or vector are placed in the output: in reserved
/// room, appended, or appended with offsets.
#[derive(Clone, Copy, Debug)]
pub(super) enum ElementPositions {
    /// Fixed size in bytes, with reserved room for all elements.
    Made(usize),
    /// Fixed size in bytes, appended one after another.
    Added(usize),
    /// Variable size, with the value returned by [`Output::begin_list`].
    Variable(usize),
}

/// An open union: `{"selector": ..., "data": ...}`.
#[derive(Debug)]
pub(super) struct Union<'s> {
    pub(super) options: &'s [(u8, TypeId)],
    /// The type that the selector names.
    pub(super) chosen: Option<TypeId>,
    pub(super) has_data: bool,
}

impl Fields<'_> {
    /// Adds the optional fields that the object lacks, as empty lists, because the Engine API omits
    /// members that are null. Errors: another field is missing.
    #[cold]
    fn add_missing_fields(&self, schema: &Schema, output: &mut Output) -> Result<(), SszErrorKind> {
        for (n, field) in self.container.fields.iter().enumerate() {
            if self.seen >> n & 1 == 1 {
                continue;
            }
            let Kind::Optional(_) = schema.get(field.ty).kind else {
                let why = format!("{} is missing", field.json_name);
                return Err(SszErrorKind::Because(why));
            };
            output.begin_field(n)?;
        }
        Ok(())
    }
}

impl Frame<'_> {
    pub(super) fn is_object(&self) -> bool {
        !matches!(self, Self::List(_))
    }

    /// Marks the element or field that was being read as complete.
    pub(super) fn end_value(&mut self) {
        match self {
            Self::Container(fields) => fields.field = NONE,
            Self::Envelope(envelope) => envelope.is_inside = false,
            Self::List(_) | Self::Union(_) => {}
        }
    }

    /// Returns the step of an error's path for the element or field that is being read.
    pub(super) fn step(&self) -> Option<Step> {
        match self {
            Self::Container(fields) => {
                let field = fields.container.fields.get(fields.field)?;
                Some(Step::Field(field.json_name.as_ref().into()))
            }
            Self::List(elements) => elements.count.checked_sub(1).map(Step::Element),
            Self::Union(union) => union.has_data.then(|| Step::Field("data".into())),
            Self::Envelope(envelope) => envelope.step(),
        }
    }

    /// Ends the object or array in the output. Errors: a field or an element is missing.
    pub(super) fn close(self, schema: &Schema, output: &mut Output) -> Result<(), SszErrorKind> {
        match self {
            Self::Container(fields) => {
                let all = u64::MAX >> (64 - fields.container.fields.len());
                if fields.seen != all {
                    fields.add_missing_fields(schema, output)?;
                }
                if fields.is_fixed {
                    return Ok(());
                }
                let slot = |field: usize| fields.container.fields[field].offset;
                output.end_container(fields.parts, fields.base, slot)
            }
            Self::List(elements) => {
                if elements.exactly && elements.count != elements.most {
                    let Elements { count, most, .. } = elements;
                    return Err(SszErrorKind::Because(format!(
                        "{count} elements, not {most}"
                    )));
                }
                match elements.places {
                    ElementPositions::Variable(list) => output.end_list(list, elements.base),
                    ElementPositions::Made(_) | ElementPositions::Added(_) => Ok(()),
                }
            }
            Self::Union(union) if union.has_data => Ok(()),
            Self::Union(_) => Err(SszErrorKind::Because("data is missing".into())),
            Self::Envelope(envelope) => envelope.close(),
        }
    }
}

//! Open objects and arrays, whose ends are not read yet.

use super::envelope::OpenEnvelope;
use super::output::SszOutput;
use crate::ssz::error::{ErrorPathStep, SszErrorKind};
use crate::ssz::schema::{ContainerLayout, Schema, SszType, TypeId, TypeKind};

/// An object or array of the input that is open: its end is not read yet.
#[derive(Debug)]
pub(super) enum OpenJsonValue<'s> {
    Container(OpenContainer<'s>),
    List(OpenSszList<'s>),
    Union(OpenUnion<'s>),
    Envelope(OpenEnvelope),
}

/// Index that stands for no field.
pub(super) const NO_FIELD: usize = usize::MAX;

/// The progress of an open container, whose fields may be in any order.
#[derive(Debug)]
pub(super) struct OpenContainer<'s> {
    pub(super) container: &'s ContainerLayout,
    /// Position of its fixed part in the output.
    pub(super) base: usize,
    /// Bit set of the fields that were read.
    pub(super) seen: u64,
    /// Index after the last field that was read.
    pub(super) next: usize,
    /// Index of the field that is being read.
    pub(super) field: usize,
    /// The value returned by [`SszOutput::begin_ssz_container`].
    pub(super) parts: usize,
    /// Whether all fields have a fixed size.
    pub(super) is_fixed: bool,
}

/// The progress of an open list or vector, and the position of its elements in the output.
#[derive(Debug)]
pub(super) struct OpenSszList<'s> {
    pub(super) of: &'s SszType,
    /// Position of the list in the output.
    pub(super) base: usize,
    pub(super) count: u64,
    /// Maximum number of elements.
    pub(super) most: u64,
    /// Whether the maximum is also the minimum.
    pub(super) exactly: bool,
    pub(super) places: ListElementPlacement,
}

/// The way in which the elements of an open list or vector are placed in the output: in reserved
/// room, appended, or appended with offsets.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListElementPlacement {
    /// Fixed size in bytes, with reserved room for all elements.
    Made(usize),
    /// Fixed size in bytes, appended one after another.
    Added(usize),
    /// Variable size, with the value returned by [`SszOutput::begin_variable_list`].
    Variable(usize),
}

/// The progress of an open union, `{"selector": ..., "data": ...}`.
#[derive(Debug)]
pub(super) struct OpenUnion<'s> {
    pub(super) options: &'s [(u8, TypeId)],
    /// The type that the selector names.
    pub(super) chosen: Option<TypeId>,
    pub(super) has_data: bool,
}

impl OpenContainer<'_> {
    /// Adds the optional fields that the object lacks, as empty lists, because the Engine API omits
    /// members that are null. Errors: another field is missing.
    #[cold]
    fn add_missing_optional_fields(
        &self,
        schema: &Schema,
        output: &mut SszOutput,
    ) -> Result<(), SszErrorKind> {
        for (n, field) in self.container.fields.iter().enumerate() {
            if self.seen >> n & 1 == 1 {
                continue;
            }
            let TypeKind::Optional(_) = schema.type_by_id(field.ty).kind else {
                let why = format!("{} is missing", field.json_name);
                return Err(SszErrorKind::Because(why));
            };
            output.record_field_start(n)?;
        }
        Ok(())
    }
}

impl OpenJsonValue<'_> {
    pub(super) fn is_object(&self) -> bool {
        !matches!(self, Self::List(_))
    }

    /// Marks the element or field that was being read as complete.
    pub(super) fn mark_value_complete(&mut self) {
        match self {
            Self::Container(fields) => fields.field = NO_FIELD,
            Self::Envelope(envelope) => envelope.is_inside = false,
            Self::List(_) | Self::Union(_) => {}
        }
    }

    /// Returns the step of an error's path for the element or field that is being read.
    pub(super) fn current_error_path_step(&self) -> Option<ErrorPathStep> {
        match self {
            Self::Container(fields) => {
                let field = fields.container.fields.get(fields.field)?;
                Some(ErrorPathStep::Field(field.json_name.as_ref().into()))
            }
            Self::List(elements) => elements.count.checked_sub(1).map(ErrorPathStep::Element),
            Self::Union(union) => union.has_data.then(|| ErrorPathStep::Field("data".into())),
            Self::Envelope(envelope) => envelope.current_error_path_step(),
        }
    }

    /// Ends the object or array in the output. Errors: a field or an element is missing.
    pub(super) fn close_value(
        self,
        schema: &Schema,
        output: &mut SszOutput,
    ) -> Result<(), SszErrorKind> {
        match self {
            Self::Container(fields) => {
                let all = u64::MAX >> (64 - fields.container.fields.len());
                if fields.seen != all {
                    fields.add_missing_optional_fields(schema, output)?;
                }
                if fields.is_fixed {
                    return Ok(());
                }
                let slot = |field: usize| fields.container.fields[field].offset;
                output.end_ssz_container(fields.parts, fields.base, slot)
            }
            Self::List(elements) => {
                if elements.exactly && elements.count != elements.most {
                    let OpenSszList { count, most, .. } = elements;
                    return Err(SszErrorKind::Because(format!(
                        "{count} elements, not {most}"
                    )));
                }
                match elements.places {
                    ListElementPlacement::Variable(list) => {
                        output.end_variable_list(list, elements.base)
                    }
                    ListElementPlacement::Made(_) | ListElementPlacement::Added(_) => Ok(()),
                }
            }
            Self::Union(union) if union.has_data => Ok(()),
            Self::Union(_) => Err(SszErrorKind::Because("data is missing".into())),
            Self::Envelope(envelope) => envelope.check_complete(),
        }
    }
}

//! What is open: objects and arrays whose end has not come.

use super::envelope::Envelope;
use super::output::Output;
use crate::ssz::error::{Problem, Step};
use crate::ssz::schema::{Container, Kind, Schema, Type, TypeId};

/// One of them.
#[derive(Debug)]
pub(super) enum Frame<'s> {
    Container(Fields<'s>),
    List(Elements<'s>),
    Union(Union<'s>),
    Envelope(Envelope),
}

/// No field.
pub(super) const NONE: usize = usize::MAX;

/// A container.
#[derive(Debug)]
pub(super) struct Fields<'s> {
    pub(super) container: &'s Container,
    /// Where its fixed part begins.
    pub(super) base: usize,
    /// Which fields came: a bit for each.
    pub(super) seen: u64,
    /// Which one follows the last that came.
    pub(super) next: usize,
    /// Which one is being read.
    pub(super) field: usize,
    /// Of [`Output::begin_container`].
    pub(super) parts: usize,
    /// All its fields have their places.
    pub(super) is_fixed: bool,
}

/// A list or vector.
#[derive(Debug)]
pub(super) struct Elements<'s> {
    pub(super) of: &'s Type,
    /// Where it begins.
    pub(super) base: usize,
    pub(super) count: u64,
    /// So many elements are allowed.
    pub(super) most: u64,
    /// No fewer are.
    pub(super) exactly: bool,
    pub(super) places: Places,
}

/// Where elements go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Places {
    /// Of so many bytes each, where there is room for all.
    Made(usize),
    /// Of so many bytes each, one after the other.
    Added(usize),
    /// Of any size. Of [`Output::begin_list`].
    Variable(usize),
}

/// `{"selector": ..., "data": ...}`.
#[derive(Debug)]
pub(super) struct Union<'s> {
    pub(super) options: &'s [(u8, TypeId)],
    /// The one that its selector has named.
    pub(super) chosen: Option<TypeId>,
    pub(super) has_data: bool,
}

impl Fields<'_> {
    /// Not all fields came: the Engine API leaves out what is null.
    #[cold]
    fn miss(&self, schema: &Schema, output: &mut Output) -> Result<(), Problem> {
        for (n, field) in self.container.fields.iter().enumerate() {
            if self.seen >> n & 1 == 1 {
                continue;
            }
            let Kind::Optional(_) = schema.get(field.ty).kind else {
                let why = format!("{} is missing", field.json_name);
                return Err(Problem::Because(why));
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

    /// The value that was being read is over.
    pub(super) fn end_value(&mut self) {
        match self {
            Self::Container(fields) => fields.field = NONE,
            Self::Envelope(envelope) => envelope.is_inside = false,
            Self::List(_) | Self::Union(_) => {}
        }
    }

    /// Where in it the input is.
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

    /// It is over.
    pub(super) fn close(self, schema: &Schema, output: &mut Output) -> Result<(), Problem> {
        match self {
            Self::Container(fields) => {
                let all = u64::MAX >> (64 - fields.container.fields.len());
                if fields.seen != all {
                    fields.miss(schema, output)?;
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
                    return Err(Problem::Because(format!("{count} elements, not {most}")));
                }
                match elements.places {
                    Places::Variable(list) => output.end_list(list, elements.base),
                    Places::Made(_) | Places::Added(_) => Ok(()),
                }
            }
            Self::Union(union) if union.has_data => Ok(()),
            Self::Union(_) => Err(Problem::Because("data is missing".into())),
            Self::Envelope(envelope) => envelope.close(),
        }
    }
}

//! The stage: JSON goes in as it comes, and at its end there is SSZ.

use super::route::{Gives, BLINDED};
use super::why::Why;
use super::VERSION;
use crate::ssz::{Fork, Form, Preset, Schema, ToSsz};

/// One body on its way from JSON to SSZ.
#[derive(Debug)]
pub struct Transcoder {
    reader: ToSsz<'static>,
    /// Of the answer's head; `None`: its envelope will say.
    fork: Option<Fork>,
    /// Whether the answer has one to say.
    is_of_a_fork: bool,
    max_size: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Made {
    /// The value.
    pub ssz: Vec<u8>,
    /// The fork that only the envelope has named: the head is to say so.
    pub fork: Option<&'static str>,
}

impl Transcoder {
    /// For an answer with that head. No more than `max_size` bytes are made.
    ///
    /// # Errors
    /// It is known already that it can't be.
    pub fn new<'a>(
        gives: Gives,
        preset: Preset,
        max_size: u64,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Why> {
        let (mut version, mut blinded) = (None, None);
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(VERSION.as_bytes()) {
                version = Some(value);
            } else if name.eq_ignore_ascii_case(BLINDED.as_bytes()) {
                blinded = value
                    .eq_ignore_ascii_case(b"true")
                    .then_some(true)
                    .or(value.eq_ignore_ascii_case(b"false").then_some(false));
            }
        }
        let named = match (gives, version) {
            (Gives::Same(_, fork), _) => Some(fork),
            (_, Some(version)) => Some(fork_of(version)?),
            (_, None) => None,
        };
        let reader = match named {
            Some(fork) => reader_of(gives, fork, preset, blinded)?,
            None => {
                let name = gives.name_in_any().ok_or(Why::NoVersion)?;
                ToSsz::by_version(preset, name)
            }
        };
        let is_of_a_fork = !matches!(gives, Gives::Same(..));
        Ok(Self {
            reader,
            fork: named.filter(|_| is_of_a_fork),
            is_of_a_fork,
            max_size,
        })
    }

    /// A piece of the JSON, of any size.
    ///
    /// # Errors
    /// Why it can't be, and nothing of it can.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Why> {
        self.reader.push(piece)?;
        if self.reader.written() as u64 > self.max_size {
            return Err(Why::Length(self.max_size));
        }
        Ok(())
    }

    /// Bytes of SSZ so far.
    pub fn written(&self) -> usize {
        self.reader.written()
    }

    /// Bytes that it takes for them.
    pub fn room(&self) -> usize {
        self.reader.room()
    }

    /// The JSON has ended.
    ///
    /// # Errors
    /// It was no whole value, or names another fork than its head.
    pub fn finish(self) -> Result<Made, Why> {
        let said = self.reader.version().map(str::to_owned);
        let ssz = self.reader.end()?;
        if !self.is_of_a_fork {
            return Ok(Made { ssz, fork: None });
        }
        let fork = match (self.fork, said) {
            (Some(head), Some(body)) if head.name() != body => {
                return Err(Why::TwoVersions(head.name(), body));
            }
            (None, Some(body)) => Some(fork_of(body.as_bytes())?.name()),
            _ => None,
        };
        Ok(Made { ssz, fork })
    }
}

fn fork_of(name: &[u8]) -> Result<Fork, Why> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    name.parse().map_err(|_| Why::Fork(name))
}

fn reader_of(
    gives: Gives,
    fork: Fork,
    preset: Preset,
    blinded: Option<bool>,
) -> Result<ToSsz<'static>, Why> {
    let none = || Why::Fork(fork.name().into());
    let name = gives.name(fork, blinded).ok_or_else(none)?;
    let schema = Schema::of(fork, preset);
    let ty = schema.find(name).ok_or_else(none)?;
    Ok(ToSsz::new(schema, ty, Form::Enveloped))
}

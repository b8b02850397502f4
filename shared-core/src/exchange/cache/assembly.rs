//! The answer to a batch of which the node was asked a part.
//!
//! Each call gets its stored answer or the node's, as the node wrote it, in the request's
//! order. Where the node's response can't be used, each call that was asked gets an error
//! of its own: the stored answers are sent in any case.

use super::pairing::{pair, Pairing};
use super::part::{Loss, Member, Mixed, Refused};
use crate::cache::entry::batch::Element;
use crate::cache::entry::Entry;
use crate::exchange::machine::Exchange;
use crate::gzip::splice::Body;
use crate::jsonrpc::elements::{read, Element as Answer, Elements, Shape};

/// What the client gets.
#[derive(Debug)]
pub(super) enum Assembled {
    /// The node's response as it came: it was asked for all.
    AsItCame,
    /// That, and whether anything of it is the node's.
    Merged(Body, bool),
}

/// What the node's response comes to.
enum Reading {
    /// An answer for each call, or for most.
    Answers(Elements),
    /// One error (the span of its value) for all calls that were asked.
    ErrorForAll(std::ops::Range<usize>),
    /// Nothing that can be sent.
    Nothing(Loss),
}

impl Exchange {
    /// The node's answers and the stored ones together.
    ///
    /// Whatever makes the stored answers unfit to be sent beside the node's is to be
    /// found out here, between `read_part` and the loop over the places: all of both is
    /// there.
    pub(super) fn assemble(&self, mixed: &Mixed) -> Result<Assembled, Refused> {
        let text = &mixed.held.body[..];
        let reading = read_part(mixed)?;
        let most = mixed.most();
        let is_short = most.is_none_or(|most| text.len() as u64 <= most);
        let is_array = matches!(&reading, Reading::Answers(them) if them.shape == Shape::Array && them.is_whole);
        let is_usable = mixed.lost.is_none() && !mixed.is_cut;
        if mixed.is_all_asked() && is_usable && is_short && !is_array {
            return Ok(Assembled::AsItCame);
        }
        let none = Elements::none();
        let answers = match &reading {
            Reading::Answers(answers) => answers,
            _ => &none,
        };
        let pairing = pair(&mixed.places, answers, text)?;
        let unusable = unusable(mixed.node_status);
        let parts = Parts {
            mixed,
            reading: &reading,
            answers,
            pairing: &pairing,
            too_long: self.config.policy().map(|policy| &**policy.too_long()),
            unusable: unusable.as_bytes(),
        };
        let mut elements: Vec<Element<'_>> = Vec::new();
        let count = mixed.places.len() + pairing.others.len();
        elements.try_reserve(count).map_err(|_| Refused)?;
        let places = mixed.places.iter().zip(&pairing.of_call);
        elements.extend(places.filter_map(|(place, answer)| parts.element(place, *answer)));
        // what nobody asked for is not ours to drop
        let others = pairing
            .others
            .iter()
            .map(|at| &text[answers.all[*at].span.clone()]);
        let may_be_sent = |one: &&[u8]| most.is_none_or(|most| one.len() as u64 <= most);
        elements.extend(others.filter(may_be_sent).map(Element::Text));
        let is_of_node = !matches!(reading, Reading::Nothing(_));
        let body = self.batch_of(&elements, mixed.gzip).ok_or(Refused)?;
        Ok(Assembled::Merged(body, is_of_node))
    }
}

/// What each place of the batch is filled from.
struct Parts<'a> {
    mixed: &'a Mixed,
    reading: &'a Reading,
    answers: &'a Elements,
    pairing: &'a Pairing,
    too_long: Option<&'a Entry>,
    /// The error of a call whose answer can't be used.
    unusable: &'a [u8],
}

impl<'a> Parts<'a> {
    /// The answer to a call; `None`: the node has left it out.
    fn element(&self, place: &'a Member, answer: Option<usize>) -> Option<Element<'a>> {
        let (id, most) = match place {
            Member::Stored(entry, id) | Member::Denied(entry, id) => {
                return Some(Element::Stored(entry, id));
            }
            Member::Asked(id, most) => (&id[..], *most),
        };
        let text = &self.mixed.held.body[..];
        let is_too_long = |length: usize| most.is_some_and(|most| length as u64 > most);
        let too_long = || self.too_long.map(|entry| Element::Stored(entry, id));
        let built = |member, value: &'a [u8]| Element::Built { id, member, value };
        if let Some(answer) = answer.and_then(|at| self.answers.all.get(at)) {
            if is_too_long(answer.span.len()) {
                return too_long();
            }
            return Some(match self.result_without_id(answer) {
                Some(result) => built("result", result),
                None => Element::Text(&text[answer.span.clone()]),
            });
        }
        match self.reading {
            Reading::ErrorForAll(error) if is_too_long(error.len()) => too_long(),
            Reading::ErrorForAll(error) => Some(built("error", &text[error.clone()])),
            Reading::Nothing(Loss::Length) if most.is_some() => too_long(),
            Reading::Answers(them) if them.shape == Shape::Array && them.is_whole => {
                // one of those that are too long to be sent may be its answer
                let others = self.pairing.others.iter();
                let mut lengths = others.map(|at| self.answers.all[*at].span.len());
                lengths.any(is_too_long).then(too_long).flatten()
            }
            Reading::Answers(_) | Reading::Nothing(_) => Some(built("error", self.unusable)),
        }
    }

    /// The result of the one call that the node was asked for, if it has answered by an
    /// object without the id.
    fn result_without_id(&self, answer: &Answer) -> Option<&'a [u8]> {
        let text = &self.mixed.held.body[..];
        let is_named = self.answers.shape == Shape::Array || names_a_call(answer, text);
        let result = answer.result.clone().filter(|_| !is_named)?;
        Some(&text[result])
    }
}

/// Reads the node's response.
fn read_part(mixed: &Mixed) -> Result<Reading, Refused> {
    let text = &mixed.held.body[..];
    if let Some(loss) = mixed.lost {
        return Ok(Reading::Nothing(loss));
    }
    if mixed.is_all_stored() && text.trim_ascii().is_empty() {
        // as it should, if it was notified only
        return Ok(Reading::Answers(Elements::none()));
    }
    let elements = read(text).map_err(|_| Refused)?;
    Ok(match elements.shape {
        Shape::Array => Reading::Answers(elements),
        Shape::Object if elements.is_whole => one_object(elements, text),
        Shape::Object | Shape::Other => Reading::Nothing(Loss::Unreadable),
    })
}

/// An object in place of an array: the answer to the one call that it names, or an error
/// for the whole batch.
fn one_object(elements: Elements, text: &[u8]) -> Reading {
    let Some(one) = elements.all.first() else {
        return Reading::Nothing(Loss::Unreadable);
    };
    let error = one
        .error
        .clone()
        .filter(|error| text[error.clone()].starts_with(b"{"));
    match error {
        _ if names_a_call(one, text) => Reading::Answers(elements),
        Some(error) => Reading::ErrorForAll(error),
        None if one.result.is_some() => Reading::Answers(elements),
        None => Reading::Nothing(Loss::Unreadable),
    }
}

/// Whether an answer has an id that says whose it is.
fn names_a_call(answer: &Answer, text: &[u8]) -> bool {
    let id = answer.id.as_ref();
    id.is_some_and(|id| &text[id.clone()] != b"null")
}

const NO_ANSWER: &str =
    r#"{"code":-32603,"message":"the response of the node has no answer that can be read"}"#;

/// The error of a call to which the node's response has no answer that can be sent.
fn unusable(status: u16) -> String {
    match status {
        0 | 200..=299 => NO_ANSWER.to_owned(),
        status => {
            format!(r#"{{"code":-32603,"message":"the node answered with status {status}"}}"#)
        }
    }
}

//! What a host is to do, and the work that it is given.

use std::ffi::CStr;

use super::cache::fill::Fill;
use super::machine::Exchange;
use crate::mode::Mode;
use crate::panics::caught;

/// What a host is to do next.
#[derive(Debug)]
pub enum Step {
    /// Nothing, until something happens: what was shown was taken.
    Await,
    /// Send the request to the node.
    Forward,
    /// The same, with [`Exchange::request_body`] as its body.
    ForwardRewritten,
    /// Send a stored answer: [`Exchange::status`], [`Exchange::head_edits`] as
    /// the whole head, and [`Exchange::body`].
    Respond,
    /// Look up again when this request is woken, or when its
    /// [time](super::drive::Driver::next_timer) is over.
    Wait,
    /// Send the head, with the head edits, and the body as it comes.
    Pass,
    /// The same, and show each piece of the body to [`Driver::piece`](super::drive::Driver::piece).
    Show,
    /// Keep the head back, and show the body to [`Driver::piece`](super::drive::Driver::piece).
    Hold,
    /// Send the head, with the head edits, and the body through
    /// [`Driver::stream`](super::drive::Driver::stream), with the piece that was shown last.
    Stream,
    /// Send the head, with the head edits, and [`Exchange::body`], which is all
    /// of it.
    Send,
    /// The same, then the piece that was shown last, and the rest as it comes.
    SendThenPass,
    /// Run this on a thread that serves no connections, then give it to
    /// [`Driver::done`](super::drive::Driver::done).
    OffLoop(Job),
    /// Nothing was sent, and there is nothing to send: answer 502.
    Fail(Lack),
}

/// What is lacking where there is nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The node's answer is not whole.
    Short,
    /// Memory was refused to what can't be sent as it came.
    Memory,
    /// It can't be had in the format that was asked for, and is too long to have
    /// been kept as it was.
    Format,
    /// Its head was not judged, and it may be what the client does not take.
    Judgement,
    /// The node switches to another protocol, in which calls would not be judged.
    Protocol,
}

impl Lack {
    /// Of an exchange with that mode, which has nothing to send.
    pub(super) fn of(mode: Mode) -> Self {
        match mode {
            Mode::SszVersion | Mode::SszFork | Mode::SszInvalid | Mode::SszLength => Lack::Format,
            Mode::SszBusy | Mode::Encoded | Mode::Failed => Lack::Format,
            _ => Lack::Memory,
        }
    }

    /// As a word, for hosts whose logs have one for each reply of theirs.
    pub const fn name(self) -> &'static str {
        match self {
            Lack::Short => "sszip_cut_short",
            Lack::Memory => "sszip_memory",
            Lack::Format => "sszip_format",
            Lack::Judgement => "sszip_not_judged",
            Lack::Protocol => "sszip_protocol",
        }
    }

    /// For logs.
    pub const fn text(self) -> &'static CStr {
        match self {
            Lack::Short => c"the response ended before its length was reached",
            Lack::Memory => c"no memory for the whole answer",
            Lack::Format => c"the response can't be had as SSZ, and was longer than ssz_hold",
            Lack::Judgement => c"the response was not judged, and is to be sent as SSZ only",
            Lack::Protocol => c"the node switches protocols (101) where calls are judged",
        }
    }
}

/// Work that takes too long for an event loop. It can go to any thread.
#[derive(Debug)]
pub struct Job(pub(super) Work);

#[derive(Debug)]
pub(super) enum Work {
    /// An answer is coded, or decoded.
    Answer(Box<Exchange>),
    /// What is to be stored of an answer that is out.
    Store(Box<Fill>),
    /// An answer that is out is forgotten.
    Forget(Option<Box<Exchange>>),
}

/// Bytes of an answer that are given back to the system when it is forgotten: that takes
/// a tenth of a millisecond for each megabyte.
/// Less is given back at once, so that whoever comes next has the memory.
pub(super) const LONG_TO_FORGET: usize = 32 << 20;

impl Job {
    /// How many a process should run at once, at most: a core is left to the event
    /// loop, where there is more than one.
    pub fn at_once() -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.saturating_sub(1).max(1)
    }

    /// Milliseconds for each megabyte.
    pub fn run(&mut self) {
        match &mut self.0 {
            Work::Answer(exchange) => code(exchange),
            // what could not be made is not stored
            Work::Store(fill) => caught(|| fill.build()).unwrap_or_default(),
            Work::Forget(exchange) => drop(exchange.take()),
        }
    }

    /// Whether it is to be run though its client has gone.
    pub fn is_to_be_stored(&self) -> bool {
        match &self.0 {
            Work::Answer(exchange) => exchange.is_filling(),
            Work::Store(_) | Work::Forget(_) => true,
        }
    }

    /// Of one that nobody waits for, once it has run: stores what it has made,
    /// at `now` of the look-ups' clock.
    pub fn store(self, now: u64) {
        match self.0 {
            Work::Answer(_) | Work::Forget(_) => {}
            Work::Store(fill) => caught(|| fill.publish(now)).unwrap_or_default(),
        }
    }
}

/// Runs the coder; if it fails inside, the body is the original.
pub(super) fn code(exchange: &mut Exchange) {
    let coded = caught(|| exchange.code());
    // it is in a state to be coded, or to give up
    let _ = coded.unwrap_or_else(|| exchange.give_up(Mode::Failed));
}

/// What others of the host's filters make of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// They change its body.
    Changed,
    /// They change its body, and what the node sends of it is to be shown to
    /// [`Driver::node_piece`](super::drive::Driver::node_piece).
    Apart,
}

/// Stores it, or says who is to prepare it.
pub(super) fn stored(mut fill: Box<Fill>, now: u64) -> Option<Job> {
    if fill.is_long() {
        return Some(Job(Work::Store(fill)));
    }
    caught(|| {
        fill.build();
        fill.publish(now);
    });
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::{Job, Step, Work};
    use crate::config::Directives;
    use crate::exchange::drive::{BodyLength, Driver, RequestBody};
    use crate::exchange::transitions::State;
    use crate::exchange::{Asked, Exchange, Field, RequestHead, ResponseHead};
    use crate::memory::Budget;
    use crate::mode::Mode;

    const JSON: Field<'static> = (b"Content-Type", b"application/json");

    /// Exchange whose response, with these header fields, waits for the coder.
    fn before_coding(most: Option<&[u8]>, fields: &[Field<'_>], body: &[u8]) -> Box<Exchange> {
        let mut directives = Directives::default();
        directives.set("enable", &[b"on"]).unwrap();
        if let Some(most) = most {
            directives.set("max_answer", &[b"eth_*", most]).unwrap();
        }
        let mut driver = Driver::new(Arc::new(directives.resolve(Budget::new())));
        let head = RequestHead {
            method: b"POST",
            target: b"/",
            fields: [JSON, (b"Accept-Encoding", b"gzip")].into_iter(),
        };
        driver.request_head(head).unwrap();
        let call = br#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs"}"#;
        driver.need(BodyLength::Known(call.len() as u64));
        let asked = Asked {
            coding_allowed: true,
            ..Asked::default()
        };
        driver.look_up(RequestBody::Whole(call), asked).unwrap();
        let head = ResponseHead {
            status: 200,
            content_length: Some(body.len() as u64),
            fields: fields.iter().copied(),
            delimited: true,
            now: 0,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
        };
        assert!(matches!(driver.response_head(head), Ok(Step::Hold)));
        driver.piece(body).unwrap();
        match driver.end().unwrap() {
            Step::OffLoop(Job(Work::Answer(exchange))) => exchange,
            step => panic!("{step:?}"),
        }
    }

    fn body(exchange: &Exchange) -> Vec<u8> {
        exchange.body().flatten().copied().collect()
    }

    #[test]
    fn response_whose_coder_fails_is_sent_as_it_came_if_it_is_short_enough() {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
            "a".repeat(2 << 20)
        );
        for most in [None, Some(&b"3m"[..])] {
            let mut exchange = before_coding(most, &[JSON], text.as_bytes());
            exchange.give_up(Mode::Failed).unwrap();
            let state = (exchange.state(), exchange.mode());
            assert_eq!(state, (State::Ready, Mode::Failed), "{most:?}");
            assert!(body(&exchange) == text.as_bytes());
        }
    }

    #[test]
    fn compressed_response_whose_length_could_not_be_measured_is_an_error() {
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        coder.write_all(&vec![b' '; 8 << 20]).unwrap();
        let fields = [JSON, (b"Content-Encoding", b"gzip")];
        let coded = coder.finish().unwrap();
        let mut exchange = before_coding(Some(b"3m"), &fields, &coded);
        exchange.give_up(Mode::Failed).unwrap();
        let state = (exchange.state(), exchange.mode());
        assert_eq!(state, (State::Ready, Mode::Denied));
        let error = body(&exchange);
        assert!(error.windows(6).any(|it| it == b"-32005"), "{error:?}");
    }
}

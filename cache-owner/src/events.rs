//! The event stream of a process (`text/event-stream`, WHATWG HTML, 9.2).

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use sszip_core::cache::owner::processes::{Event, Next, Stream};
use tokio::time::{sleep, Sleep};

use crate::clock::now;
use crate::engine::Engine;

/// Bytes of events that are sent at a time.
const PIECE: usize = 16 << 10;

/// What goes to one process. Its end is the end of the stream.
pub struct EventStream {
    engine: Arc<Engine>,
    stream: Stream,
    waker: Arc<AtomicWaker>,
    sleep: Pin<Box<Sleep>>,
}

impl EventStream {
    /// Of a stream that has arrived; `waker` is woken when there is something
    /// to be sent.
    pub fn new(engine: Arc<Engine>, stream: Stream, waker: Arc<AtomicWaker>) -> Self {
        Self {
            engine,
            stream,
            waker,
            sleep: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// The next bytes; none after the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // first, so that what comes while we look is not missed
        self.waker.register(context.waker());
        let mut text = String::new();
        if self.engine.is_stopping() {
            return Poll::Ready(None);
        }
        loop {
            let now = now();
            match self.engine.owner.next(self.stream, now) {
                Next::Event(event) => {
                    write(&mut text, &event);
                    if text.len() < PIECE {
                        continue;
                    }
                }
                _ if !text.is_empty() => {}
                Next::Close => return Poll::Ready(None),
                Next::Idle(until) => {
                    let wait = Duration::from_millis(until.saturating_sub(now.monotonic));
                    self.sleep
                        .as_mut()
                        .reset(tokio::time::Instant::now() + wait);
                    ready!(self.sleep.as_mut().poll(context));
                    continue;
                }
            }
            return Poll::Ready(Some(text.into()));
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.engine.leave(self.stream);
    }
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EventStream").field(&self.stream).finish()
    }
}

fn write(to: &mut String, event: &Event) {
    // a String takes all
    let _ = match event {
        Event::Hello { generation, until } => write!(
            to,
            "event: hello\ndata: {{\"version\":1,\"generation\":{generation},\"until\":{until}}}\n\n"
        ),
        Event::Lease { generation, until } => write!(
            to,
            "event: lease\ndata: {{\"generation\":{generation},\"until\":{until}}}\n\n"
        ),
        Event::Filled(key) => write!(to, "event: filled\ndata: {}\n\n", hex::encode(key)),
        Event::GivenUp(key) => write!(to, "event: given-up\ndata: {}\n\n", hex::encode(key)),
        Event::Chain { namespace, state } => {
            // numbers and names always can be
            let state = serde_json::to_string(state).unwrap_or_default();
            let rest = state.strip_prefix('{').unwrap_or("}");
            write!(
                to,
                "event: chain\ndata: {{\"namespace\":\"{}\",{rest}\n\n",
                hex::encode(namespace)
            )
        }
        Event::Purge {
            generation,
            key: None,
        } => write!(to, "event: purge\ndata: {{\"generation\":{generation}}}\n\n"),
        Event::Purge {
            generation,
            key: Some(key),
        } => write!(
            to,
            "event: purge\ndata: {{\"generation\":{generation},\"key\":\"{}\"}}\n\n",
            hex::encode(key)
        ),
    };
}

#[cfg(test)]
mod tests {
    use super::{write, Event};

    #[test]
    fn events_read_as_the_protocol_says() {
        let mut text = String::new();
        for event in [
            Event::Hello {
                generation: 1,
                until: 2,
            },
            Event::Lease {
                generation: 3,
                until: 4,
            },
            Event::Filled([0xab; 32]),
            Event::GivenUp([0; 32]),
            Event::Purge {
                generation: 5,
                key: None,
            },
            Event::Purge {
                generation: 6,
                key: Some([0xcd; 32]),
            },
        ] {
            write(&mut text, &event);
        }
        let expected = format!(
            "event: hello\ndata: {{\"version\":1,\"generation\":1,\"until\":2}}\n\n\
             event: lease\ndata: {{\"generation\":3,\"until\":4}}\n\n\
             event: filled\ndata: {}\n\n\
             event: given-up\ndata: {}\n\n\
             event: purge\ndata: {{\"generation\":5}}\n\n\
             event: purge\ndata: {{\"generation\":6,\"key\":\"{}\"}}\n\n",
            "ab".repeat(32),
            "00".repeat(32),
            "cd".repeat(32)
        );
        assert_eq!(text, expected);
    }
}

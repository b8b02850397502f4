//! Connections to the owner, on a thread of their own. The core decides about
//! the bytes; this module opens, reads, writes and closes the connections.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::{read, write, Errno};
use rustix::net::{
    connect, sendmsg, socket_with, AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use sszip_core::cache::link::{ConnectionAction, Link};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::wake::Wake;

use crate::abi::LogLevel;
use crate::clock::monotonic;
use crate::envoy::log;
use crate::process::PROCESS;

/// Maximum length of an entry of any filter or route, including future ones.
/// Bytes.
const LONGEST: u64 = 1 << 30;

/// Maximum number of bytes read from a connection before the others are served.
const AT_ONCE: usize = 256 << 10;

/// Maximum number of pieces per write.
const PIECES: usize = 16;

/// Links the process to the owner that listens, or will listen, at that path.
///
/// # Errors
/// No thread or file descriptor is available, or the path is not valid for a
/// socket.
pub fn start(path: &str) -> Result<Arc<Link>, std::io::Error> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let bell = Arc::new(LinkWaker(eventfd(0, flags)?));
    let link = Link::for_process(LONGEST).with_driver(Arc::clone(&bell) as Arc<dyn Wake>, 0);
    let link = Arc::new(link);
    let driver = LinkDriver {
        link: Arc::clone(&link),
        bell,
        address: SocketAddrUnix::new(path)?,
        path: path.to_owned(),
        connections: Vec::new(),
        why_not: None,
        tick_at: 0,
    };
    let thread = std::thread::Builder::new().name("sszip-link".into());
    thread.spawn(|| driver.run())?;
    PROCESS
        .shared
        .join(Arc::clone(&link) as Arc<dyn OwnerClient>);
    Ok(link)
}

/// The waker of the link's thread: an eventfd on which the thread polls.
#[derive(Debug)]
struct LinkWaker(OwnedFd);

impl Wake for LinkWaker {
    fn wake(&self, _id: usize) {
        // a counter that is full wakes the thread, too
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    fn cancel(&self, _id: usize) {}
}

struct LinkDriver {
    link: Arc<Link>,
    bell: Arc<LinkWaker>,
    address: SocketAddrUnix,
    path: String,
    /// Connections by slot.
    connections: Vec<Option<Connection>>,
    /// Error of the last failed connection.
    why_not: Option<Errno>,
    /// Time of the next tick in milliseconds of the monotonic clock; 0: none.
    tick_at: u64,
}

struct Connection {
    socket: OwnedFd,
    /// The socket accepts no more bytes at present.
    is_full: bool,
}

impl LinkDriver {
    fn run(mut self) {
        loop {
            let turned = catch_unwind(AssertUnwindSafe(|| self.poll_once()));
            if turned.is_err() {
                let _ = catch_unwind(|| {
                    log(
                        LogLevel::Error,
                        "internal error: the link to the cache's owner has panicked",
                    );
                });
                // limits the rate of repeated panics
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Performs the actions of the link that are due, and waits for the next
    /// event.
    fn poll_once(&mut self) {
        while let Some(need) = self.link.next_action() {
            match need {
                ConnectionAction::Connect(slot) => self.connect(slot),
                ConnectionAction::Write(slot) => self.write(slot),
                ConnectionAction::Close(slot) => drop(self.take(slot)),
                ConnectionAction::Tick => self.tick(),
            }
        }
        for (slot, events) in self.wait() {
            if events.intersects(PollFlags::OUT) {
                self.write(slot);
            }
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.read(slot);
            }
        }
        if self.tick_at != 0 && monotonic() >= self.tick_at {
            self.tick();
        }
    }

    /// Waits for events, and returns them by slot.
    fn wait(&mut self) -> Vec<(usize, PollFlags)> {
        let open = self.connections.iter().enumerate();
        let open = open.filter_map(|(slot, it)| it.as_ref().map(|it| (slot, it)));
        let (mut slots, mut polled) = (Vec::new(), Vec::new());
        polled.push(PollFd::new(&self.bell.0, PollFlags::IN));
        for (slot, connection) in open {
            let wanted = match connection.is_full {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            slots.push(slot);
            polled.push(PollFd::new(&connection.socket, wanted));
        }
        let patience = (self.tick_at != 0).then(|| {
            let left = self.tick_at.saturating_sub(monotonic());
            Timespec::try_from(Duration::from_millis(left)).unwrap_or_default()
        });
        if poll(&mut polled, patience.as_ref()).is_err() {
            // a signal interrupted the call: the caller calls again
            return Vec::new();
        }
        let revents = polled.iter().map(PollFd::revents);
        let revents: Vec<_> = revents.collect();
        let (bell, revents) = revents
            .split_first()
            .map_or((PollFlags::empty(), &[][..]), |(bell, revents)| {
                (*bell, revents)
            });
        if !bell.is_empty() {
            let _ = read(&self.bell.0, &mut [0; 8]);
        }
        let ready = slots.into_iter().zip(revents.iter().copied());
        ready.filter(|(_, events)| !events.is_empty()).collect()
    }

    fn connect(&mut self, slot: usize) {
        let now = monotonic();
        let opened = self.open();
        self.why_not = opened.as_ref().err().copied();
        // other errors mean that the owner is busy or unreachable
        if let Some(Errno::CONNREFUSED | Errno::NOENT) = self.why_not {
            self.link.connection_refused(&PROCESS.shared, now);
        }
        let is_open = opened.is_ok();
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        self.connections[slot] = opened.ok().map(|socket| Connection {
            socket,
            is_full: false,
        });
        self.link.connected(&PROCESS.shared, slot, is_open, now);
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &self.address)?;
        Ok(socket)
    }

    fn write(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else {
            return;
        };
        connection.is_full = false;
        let mut went = Ok(0);
        loop {
            self.link.write(slot, |pieces| {
                let pieces: Vec<_> = pieces.take(PIECES).map(IoSlice::new).collect();
                went = match pieces.is_empty() {
                    true => Ok(0),
                    false => send(&connection.socket, &pieces),
                };
                went.unwrap_or(0)
            });
            match std::mem::replace(&mut went, Ok(0)) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    connection.is_full = true;
                    return;
                }
                Err(_) => return self.connection_lost(slot),
            }
        }
    }

    fn read(&mut self, slot: usize) {
        let mut total = 0;
        while total < AT_ONCE {
            let Some(Some(connection)) = self.connections.get(slot) else {
                return;
            };
            let mut result = Err(Errno::CONNRESET);
            let mut is_all = false;
            let has_room = self.link.read_buffer(slot, |room| {
                let most = room.len().min(AT_ONCE - total);
                let room = &mut room[..most];
                result = read(&connection.socket, &mut *room).map(|(init, _)| init.len());
                is_all = result.is_ok_and(|length| length < most);
            });
            match result {
                Err(Errno::INTR) if has_room => continue,
                Err(Errno::AGAIN) if has_room => return,
                Ok(bytes @ 1..) => {
                    total += bytes;
                    filled(&self.link, slot, bytes);
                }
                _ => return self.connection_lost(slot),
            }
            if is_all {
                return;
            }
        }
    }

    fn take(&mut self, slot: usize) -> Option<Connection> {
        self.connections.get_mut(slot)?.take()
    }

    fn connection_lost(&mut self, slot: usize) {
        drop(self.take(slot));
        self.link.closed(&PROCESS.shared, slot, monotonic());
    }

    /// Calls the core's tick, and schedules the next one.
    fn tick(&mut self) {
        let now = monotonic();
        let after = self.link.tick(&PROCESS.shared, now);
        self.tick_at = if after == 0 { 0 } else { now + after };
        let Some(news) = self.link.news(now) else {
            return;
        };
        let line = format!("the cache's owner at unix:{} {}", self.path, news.text());
        match (news.is_bad(), self.why_not) {
            (true, Some(why)) => log(LogLevel::Error, &format!("{line} ({why})")),
            (true, None) => log(LogLevel::Error, &line),
            (false, _) => log(LogLevel::Info, &line),
        }
    }
}

/// Sends without a signal if the owner closed the connection.
fn send(socket: impl AsFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut nothing = SendAncillaryBuffer::default();
    sendmsg(socket, pieces, &mut nothing, SendFlags::NOSIGNAL)
}

#[allow(unsafe_code)]
fn filled(link: &Link, slot: usize, bytes: usize) {
    // SAFETY: the system wrote the bytes, and only this thread uses the buffer.
    unsafe { link.bytes_read(&PROCESS.shared, slot, bytes, monotonic()) };
}

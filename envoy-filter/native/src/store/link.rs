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
use sszip_core::cache::link::{LinkConnectionAction, OwnerLink};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::wake::EventLoopWaker;

use crate::abi::LogLevel;
use crate::clock::monotonic_ms;
use crate::envoy::write_envoy_log;
use crate::process::PROCESS;

/// Maximum length of an entry of any filter or route, including future ones.
/// Bytes.
const MAX_ENTRY_BYTES: u64 = 1 << 30;

/// Maximum number of bytes read from a connection before the others are served.
const MAX_READ_BYTES: usize = 256 << 10;

/// Maximum number of pieces per write.
const MAX_WRITE_PIECES: usize = 16;

/// Creates the link to the owner that listens, or will listen, at that path, and starts its thread.
///
/// # Errors
/// No thread or file descriptor is available, or the path is not valid for a
/// socket.
pub fn start_owner_link(path: &str) -> Result<Arc<OwnerLink>, std::io::Error> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let bell = Arc::new(LinkWaker(eventfd(0, flags)?));
    let link = OwnerLink::link_for_process(MAX_ENTRY_BYTES)
        .attach_driver_waker(Arc::clone(&bell) as Arc<dyn EventLoopWaker>, 0);
    let link = Arc::new(link);
    let driver = OwnerLinkThread {
        link: Arc::clone(&link),
        bell,
        address: SocketAddrUnix::new(path)?,
        path: path.to_owned(),
        connections: Vec::new(),
        why_not: None,
        tick_at: 0,
    };
    let thread = std::thread::Builder::new().name("sszip-link".into());
    thread.spawn(|| driver.run_link_loop())?;
    PROCESS
        .shared
        .set_owner_client(Arc::clone(&link) as Arc<dyn OwnerClient>);
    Ok(link)
}

/// The waker of the link's thread: an eventfd on which the thread polls.
#[derive(Debug)]
struct LinkWaker(OwnedFd);

impl EventLoopWaker for LinkWaker {
    fn wake(&self, _id: usize) {
        // a counter that is full wakes the thread, too
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    fn cancel_wakeup(&self, _id: usize) {}
}

/// The thread that opens the link's connections to the owner, and carries its bytes.
struct OwnerLinkThread {
    link: Arc<OwnerLink>,
    bell: Arc<LinkWaker>,
    address: SocketAddrUnix,
    path: String,
    /// Connections by slot.
    connections: Vec<Option<OwnerConnection>>,
    /// Error of the last failed connection.
    why_not: Option<Errno>,
    /// Time of the next tick in milliseconds of the monotonic clock; 0: none.
    tick_at: u64,
}

/// An open connection to the owner.
struct OwnerConnection {
    socket: OwnedFd,
    /// The socket accepts no more bytes at present.
    is_full: bool,
}

impl OwnerLinkThread {
    fn run_link_loop(mut self) {
        loop {
            let turned = catch_unwind(AssertUnwindSafe(|| self.run_link_loop_iteration()));
            if turned.is_err() {
                let _ = catch_unwind(|| {
                    write_envoy_log(
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
    fn run_link_loop_iteration(&mut self) {
        while let Some(need) = self.link.next_connection_action() {
            match need {
                LinkConnectionAction::Connect(slot) => self.open_connection(slot),
                LinkConnectionAction::Write(slot) => self.write_to_owner(slot),
                LinkConnectionAction::Close(slot) => drop(self.take_connection(slot)),
                LinkConnectionAction::Tick => self.tick_link(),
            }
        }
        for (slot, events) in self.wait_for_events() {
            if events.intersects(PollFlags::OUT) {
                self.write_to_owner(slot);
            }
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.read_from_owner(slot);
            }
        }
        if self.tick_at != 0 && monotonic_ms() >= self.tick_at {
            self.tick_link();
        }
    }

    /// Waits for readable, writable or closed sockets, and returns their events by slot.
    fn wait_for_events(&mut self) -> Vec<(usize, PollFlags)> {
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
            let left = self.tick_at.saturating_sub(monotonic_ms());
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

    fn open_connection(&mut self, slot: usize) {
        let now = monotonic_ms();
        let opened = self.open_socket();
        self.why_not = opened.as_ref().err().copied();
        // other errors mean that the owner is busy or unreachable
        if let Some(Errno::CONNREFUSED | Errno::NOENT) = self.why_not {
            self.link.handle_connection_refused(&PROCESS.shared, now);
        }
        let is_open = opened.is_ok();
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        self.connections[slot] = opened.ok().map(|socket| OwnerConnection {
            socket,
            is_full: false,
        });
        self.link
            .handle_connection_opened(&PROCESS.shared, slot, is_open, now);
    }

    fn open_socket(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &self.address)?;
        Ok(socket)
    }

    fn write_to_owner(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else {
            return;
        };
        connection.is_full = false;
        let mut went = Ok(0);
        loop {
            self.link.pass_unwritten_pieces(slot, |pieces| {
                let pieces: Vec<_> = pieces.take(MAX_WRITE_PIECES).map(IoSlice::new).collect();
                went = match pieces.is_empty() {
                    true => Ok(0),
                    false => send_without_signal(&connection.socket, &pieces),
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
                Err(_) => return self.drop_lost_connection(slot),
            }
        }
    }

    fn read_from_owner(&mut self, slot: usize) {
        let mut total = 0;
        while total < MAX_READ_BYTES {
            let Some(Some(connection)) = self.connections.get(slot) else {
                return;
            };
            let mut result = Err(Errno::CONNRESET);
            let mut is_all = false;
            let has_room = self.link.pass_read_buffer(slot, |room| {
                let most = room.len().min(MAX_READ_BYTES - total);
                let room = &mut room[..most];
                result = read(&connection.socket, &mut *room).map(|(init, _)| init.len());
                is_all = result.is_ok_and(|length| length < most);
            });
            match result {
                Err(Errno::INTR) if has_room => continue,
                Err(Errno::AGAIN) if has_room => return,
                Ok(bytes @ 1..) => {
                    total += bytes;
                    report_filled_buffer(&self.link, slot, bytes);
                }
                _ => return self.drop_lost_connection(slot),
            }
            if is_all {
                return;
            }
        }
    }

    fn take_connection(&mut self, slot: usize) -> Option<OwnerConnection> {
        self.connections.get_mut(slot)?.take()
    }

    fn drop_lost_connection(&mut self, slot: usize) {
        drop(self.take_connection(slot));
        self.link
            .connection_closed(&PROCESS.shared, slot, monotonic_ms());
    }

    /// Calls the link's tick, and schedules the next one.
    fn tick_link(&mut self) {
        let now = monotonic_ms();
        let after = self.link.send_and_expire_requests(&PROCESS.shared, now);
        self.tick_at = if after == 0 { 0 } else { now + after };
        let Some(news) = self.link.take_owner_health_change(now) else {
            return;
        };
        let line = format!(
            "the cache's owner at unix:{} {}",
            self.path,
            news.owner_health_log_text()
        );
        match (news.is_owner_outage(), self.why_not) {
            (true, Some(why)) => write_envoy_log(LogLevel::Error, &format!("{line} ({why})")),
            (true, None) => write_envoy_log(LogLevel::Error, &line),
            (false, _) => write_envoy_log(LogLevel::Info, &line),
        }
    }
}

/// Sends bytes without a SIGPIPE if the owner has closed the connection.
fn send_without_signal(socket: impl AsFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut nothing = SendAncillaryBuffer::default();
    sendmsg(socket, pieces, &mut nothing, SendFlags::NOSIGNAL)
}

#[allow(unsafe_code)]
fn report_filled_buffer(link: &OwnerLink, slot: usize, bytes: usize) {
    // SAFETY: the system wrote the bytes, and only this thread uses the buffer.
    unsafe { link.report_bytes_read(&PROCESS.shared, slot, bytes, monotonic_ms()) };
}

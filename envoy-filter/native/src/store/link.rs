//! The connection to the owner, on a thread of its own. The core decides about
//! the bytes; this module opens, reads, writes and closes the connection.

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
use sszip_core::cache::link::{LinkAction, OwnerLink};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::wake::EventLoopWaker;

use super::direct_owner::DirectOwnerFunctions;
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
/// `direct` are the functions of the owner that may run in this process.
///
/// # Errors
/// No thread or file descriptor is available, or the path is not valid for a
/// socket.
pub fn start_owner_link(
    path: &str,
    direct: Option<DirectOwnerFunctions>,
) -> Result<Arc<OwnerLink>, std::io::Error> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let waker = Arc::new(LinkWaker(eventfd(0, flags)?));
    let mut link = OwnerLink::link_for_process(MAX_ENTRY_BYTES)
        .attach_driver_waker(Arc::clone(&waker) as Arc<dyn EventLoopWaker>, 0);
    if let Some(direct) = direct {
        link = link.attach_direct_owner(Arc::new(direct), &PROCESS.shared);
    }
    let link = Arc::new(link);
    let driver = OwnerLinkThread {
        link: Arc::clone(&link),
        waker,
        address: SocketAddrUnix::new(path)?,
        path: path.to_owned(),
        connection: None,
        last_connect_error: None,
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

/// The thread that opens the link's connection to the owner, and carries its bytes.
struct OwnerLinkThread {
    link: Arc<OwnerLink>,
    waker: Arc<LinkWaker>,
    address: SocketAddrUnix,
    path: String,
    /// The connection, while it is open.
    connection: Option<OwnerConnection>,
    /// Error of the last failed connection.
    last_connect_error: Option<Errno>,
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
    /// Runs the link until the process ends; a panic of one iteration is logged.
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
        while let Some(action) = self.link.next_action() {
            match action {
                LinkAction::Connect => self.open_connection(),
                LinkAction::Write => self.write_to_owner(),
                LinkAction::Close => self.connection = None,
                LinkAction::Tick => self.tick_link(),
            }
        }
        let events = self.wait_for_events();
        if events.intersects(PollFlags::OUT) {
            self.write_to_owner();
        }
        if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.read_from_owner();
        }
        if self.tick_at != 0 && monotonic_ms() >= self.tick_at {
            self.tick_link();
        }
    }

    /// Waits until the socket is readable, writable or closed, a request is queued, or a tick is due.
    /// Returns the events of the socket.
    fn wait_for_events(&self) -> PollFlags {
        let mut polled = vec![PollFd::new(&self.waker.0, PollFlags::IN)];
        if let Some(connection) = &self.connection {
            let wanted = match connection.is_full {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            polled.push(PollFd::new(&connection.socket, wanted));
        }
        let timeout = (self.tick_at != 0).then(|| {
            let left = self.tick_at.saturating_sub(monotonic_ms());
            Timespec::try_from(Duration::from_millis(left)).unwrap_or_default()
        });
        if poll(&mut polled, timeout.as_ref()).is_err() {
            // a signal interrupted the call: the caller calls again
            return PollFlags::empty();
        }
        let mut events = polled.iter().map(PollFd::revents);
        if events.next().is_some_and(|waker| !waker.is_empty()) {
            let _ = read(&self.waker.0, &mut [0; 8]);
        }
        events.next().unwrap_or(PollFlags::empty())
    }

    /// Connects to the owner, and reports the result to the link. A missing socket is reported as a
    /// refusal, so that the link does not wait for a busy owner.
    fn open_connection(&mut self) {
        let now = monotonic_ms();
        let opened = self.open_socket();
        self.last_connect_error = opened.as_ref().err().copied();
        // other errors mean that the owner is busy or unreachable
        if let Some(Errno::CONNREFUSED | Errno::NOENT) = self.last_connect_error {
            self.link.handle_connection_refused(&PROCESS.shared, now);
        }
        let is_open = opened.is_ok();
        self.connection = opened.ok().map(|socket| OwnerConnection {
            socket,
            is_full: false,
        });
        self.link
            .handle_connection_opened(&PROCESS.shared, is_open, now);
    }

    /// Connects a nonblocking socket to the owner.
    fn open_socket(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &self.address)?;
        Ok(socket)
    }

    /// Writes until the link has no more bytes or the socket is full. A lost connection is closed.
    fn write_to_owner(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        connection.is_full = false;
        loop {
            let mut sent = Ok(0);
            let shared = &PROCESS.shared;
            self.link
                .pass_unwritten_pieces(shared, monotonic_ms(), |pieces| {
                    let pieces: Vec<_> = pieces.take(MAX_WRITE_PIECES).map(IoSlice::new).collect();
                    if !pieces.is_empty() {
                        sent = send_without_signal(&connection.socket, &pieces);
                    }
                    sent.unwrap_or(0)
                });
            match sent {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    connection.is_full = true;
                    return;
                }
                Err(_) => return self.drop_lost_connection(),
            }
        }
    }

    /// Reads until the socket is empty, but at most [`MAX_READ_BYTES`]. A lost connection is
    /// closed.
    fn read_from_owner(&mut self) {
        let mut total = 0;
        while total < MAX_READ_BYTES {
            let Some(connection) = &self.connection else {
                return;
            };
            let mut result = Err(Errno::CONNRESET);
            let mut is_all = false;
            let has_room = self.link.pass_read_buffer(|room| {
                let most = room.len().min(MAX_READ_BYTES - total);
                let room = room.get_mut(..most).unwrap_or(&mut []);
                result = read(&connection.socket, room);
                is_all = result.is_ok_and(|length| length < most);
            });
            match result {
                Err(Errno::INTR) if has_room => continue,
                Err(Errno::AGAIN) if has_room => return,
                Ok(bytes @ 1..) => {
                    total += bytes;
                    self.link
                        .report_read_bytes(&PROCESS.shared, bytes, monotonic_ms());
                }
                _ => return self.drop_lost_connection(),
            }
            if is_all {
                return;
            }
        }
    }

    fn drop_lost_connection(&mut self) {
        self.connection = None;
        self.link
            .handle_connection_closed(&PROCESS.shared, monotonic_ms());
    }

    /// Calls the link's tick, and schedules the next one.
    fn tick_link(&mut self) {
        let now = monotonic_ms();
        let after = self.link.tick(&PROCESS.shared, now);
        self.tick_at = if after == 0 { 0 } else { now + after };
        let Some(change) = self.link.take_owner_health_change(now) else {
            return;
        };
        let line = format!(
            "the cache's owner at unix:{} {}",
            self.path,
            change.owner_health_log_text()
        );
        match (change.is_owner_outage(), self.last_connect_error) {
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

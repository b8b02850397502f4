//! A host of several event loops: each has a thread and requests of its own, while encoders,
//! nodes and an owner run on other threads. No timer runs: a follower waits until it is woken.

use sszip_core::hash_keys::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sszip_core::cache::process::wake::{EventLoopId, EventLoopWaker};
use sszip_core::cache::process::ProcessResources;
use sszip_core::exchange::drive::OffLoopJob;

use super::host::{
    ClientResponse, HostRequest, NextAction, NodeFunction, NodeResponse, RequestTask, TestHost,
};
use super::owner::{OwnerReplies, OwnerThread};

/// Longer than any request takes here: a request that waits so long was never woken.
const WAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a task, or the reason why it failed.
type Result<T> = std::result::Result<T, String>;

/// An event in the queue of an event loop.
enum LoopEvent {
    Request(usize, Box<HostRequest>, Sender<Result<ClientResponse>>),
    /// The client has left.
    Abort(usize),
    Woken(usize),
    JobDone(usize, OffLoopJob),
    Answered(usize, Vec<u8>, Option<NodeResponse>),
    End,
}

/// Work that takes too long for an event loop, and runs on another thread.
enum OffLoopTask {
    Code(Sender<LoopEvent>, usize, OffLoopJob),
    /// Stores a fill, and then sends the response to the client.
    Store(
        OffLoopJob,
        u64,
        Sender<Result<ClientResponse>>,
        ClientResponse,
    ),
    Fetch(Sender<LoopEvent>, usize, Vec<u8>, NodeFunction),
}

/// The waker of an event loop, which puts wakeups into its queue.
#[derive(Debug)]
struct LoopWaker(Sender<LoopEvent>);

impl EventLoopWaker for LoopWaker {
    fn wake(&self, id: usize) {
        // after the end of its loop no request is woken
        let _ = self.0.send(LoopEvent::Woken(id));
    }

    /// The event loop itself knows which clients have left.
    fn cancel_wakeup(&self, _id: usize) {}
}

/// A host in memory with several event loops, each on a thread, and threads for jobs.
pub struct EventLoopsHost {
    pub process: ProcessResources,
    pub owner: Option<OwnerThread>,
    events: Vec<Sender<LoopEvent>>,
    longs: Option<Vec<Sender<OffLoopTask>>>,
    threads: Vec<JoinHandle<()>>,
    /// Number of the next task; each is used once.
    names: AtomicUsize,
}

/// The parts that a host is created with: event loops, a hot tier, an owner.
#[derive(Clone, Copy)]
pub struct HostOptions {
    pub event_loops: usize,
    /// Capacity of the hot tier in bytes, if it has one.
    pub memory: Option<u64>,
    pub owner: Option<OwnerReplies>,
}

impl EventLoopsHost {
    pub fn new(has: HostOptions) -> Self {
        let process = ProcessResources::default();
        match has.memory {
            Some(bytes) => process
                .shared
                .start_hot_tier(bytes, bytes / 16, has.event_loops),
            None => process.shared.split_tables_by_loop(has.event_loops),
        }
        let owner = has
            .owner
            .map(|replies| OwnerThread::start(&process.shared, replies));
        let mut threads = Vec::new();
        let mut longs = Vec::new();
        for _ in 0..2 {
            let (sender, receiver) = channel();
            longs.push(sender);
            threads.push(std::thread::spawn(move || run_long_tasks(&receiver)));
        }
        let mut events = Vec::new();
        for number in 0..has.event_loops {
            let (sender, receiver) = channel();
            let waker = Arc::new(LoopWaker(sender.clone()));
            let here = LoopState {
                event_loop: process.shared.add_event_loop(waker),
                events: sender.clone(),
                longs: longs.clone(),
                number,
                tasks: HashMap::default(),
            };
            events.push(sender);
            threads.push(std::thread::spawn(move || here.run_event_loop(&receiver)));
        }
        Self {
            process,
            owner,
            events,
            longs: Some(longs),
            threads,
            names: AtomicUsize::new(1),
        }
    }

    /// Starts a request on one of the event loops, in turn.
    pub fn start_request(&self, request: HostRequest) -> PendingClient<'_> {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        let event_loop = &self.events[name % self.events.len()];
        let (reply, answer) = channel();
        let event = LoopEvent::Request(name, Box::new(request), reply);
        event_loop.send(event).unwrap();
        PendingClient {
            name,
            event_loop,
            await_response: answer,
        }
    }
}

/// A client whose request is in flight on an event loop.
pub struct PendingClient<'a> {
    name: usize,
    event_loop: &'a Sender<LoopEvent>,
    await_response: Receiver<Result<ClientResponse>>,
}

impl PendingClient<'_> {
    pub fn answer(self) -> Result<ClientResponse> {
        match self.await_response.recv_timeout(WAKE_TIMEOUT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err("nobody woke it".into()),
            Err(RecvTimeoutError::Disconnected) => Err("its event loop has ended".into()),
        }
    }

    pub fn abort(self) {
        self.event_loop.send(LoopEvent::Abort(self.name)).unwrap();
    }
}

impl TestHost for EventLoopsHost {
    fn request(&self, request: HostRequest) -> Result<ClientResponse> {
        self.start_request(request).answer()
    }
}

impl Drop for EventLoopsHost {
    fn drop(&mut self) {
        for events in &self.events {
            // a loop may have ended by a panic, which `join` reports
            let _ = events.send(LoopEvent::End);
        }
        self.longs.take();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// The state of one event loop, with its tasks.
struct LoopState {
    event_loop: EventLoopId,
    events: Sender<LoopEvent>,
    longs: Vec<Sender<OffLoopTask>>,
    number: usize,
    tasks: HashMap<usize, (RequestTask, Sender<Result<ClientResponse>>)>,
}

impl LoopState {
    fn run_event_loop(mut self, events: &Receiver<LoopEvent>) {
        for event in events {
            match event {
                LoopEvent::Request(name, request, reply) => match RequestTask::new(*request) {
                    Ok(task) => {
                        self.tasks.insert(name, (task, reply));
                        self.look_up(name);
                    }
                    Err(problem) => reply_to_client(&reply, Err(problem)),
                },
                LoopEvent::Abort(name) => drop(self.tasks.remove(&name)),
                LoopEvent::Woken(name) => self.look_up(name),
                LoopEvent::JobDone(name, job) => self.resume_task(name, |task| task.done(job)),
                LoopEvent::Answered(name, request_body, node) => {
                    self.handle_node_response(name, request_body, node);
                }
                LoopEvent::End => return,
            }
        }
    }

    fn look_up(&mut self, name: usize) {
        let waiter = self.event_loop.waiter_of_request(name);
        self.resume_task(name, |task| task.look_up(Some(waiter)));
    }

    fn long_task_queue(&self, name: usize) -> &Sender<OffLoopTask> {
        &self.longs[(name + self.number) % self.longs.len()]
    }

    /// Resumes a task, unless its client has left, and starts the next action.
    fn resume_task(
        &mut self,
        name: usize,
        how: impl FnOnce(&mut RequestTask) -> Result<NextAction>,
    ) {
        let Some((task, reply)) = self.tasks.get_mut(&name) else {
            return;
        };
        let long = match how(task) {
            Ok(NextAction::Wait) => return,
            Ok(NextAction::Run(job)) => OffLoopTask::Code(self.events.clone(), name, job),
            Ok(NextAction::FetchFromNode(body)) => {
                OffLoopTask::Fetch(self.events.clone(), name, body, task.at_node())
            }
            Ok(NextAction::Respond(answer)) => {
                reply_to_client(reply, Ok(answer));
                self.tasks.remove(&name);
                return;
            }
            Err(problem) => {
                reply_to_client(reply, Err(problem));
                self.tasks.remove(&name);
                return;
            }
        };
        self.long_task_queue(name).send(long).unwrap();
    }

    fn handle_node_response(
        &mut self,
        name: usize,
        request_body: Vec<u8>,
        node: Option<NodeResponse>,
    ) {
        let Some((mut task, reply)) = self.tasks.remove(&name) else {
            return;
        };
        let answered = match node {
            Some(node) => task.answered(request_body, &node),
            None => Err("the node is asked".into()),
        };
        match answered {
            Ok((answer, Some(job))) => {
                let store = OffLoopTask::Store(job, task.now(), reply, answer);
                self.long_task_queue(name).send(store).unwrap();
            }
            Ok((answer, None)) => reply_to_client(&reply, Ok(answer)),
            Err(problem) => reply_to_client(&reply, Err(problem)),
        }
    }
}

/// Sends the response to the client, if it has not left.
fn reply_to_client(reply: &Sender<Result<ClientResponse>>, answer: Result<ClientResponse>) {
    let _ = reply.send(answer);
}

/// Runs the jobs and the node's functions of a queue.
fn run_long_tasks(longs: &Receiver<OffLoopTask>) {
    for long in longs {
        // an event loop that has ended receives no event
        let _ = match long {
            OffLoopTask::Code(events, name, mut job) => {
                job.run_job();
                events.send(LoopEvent::JobDone(name, job))
            }
            OffLoopTask::Store(mut job, now, reply, answer) => {
                job.run_job();
                job.store_built_entry(now);
                reply_to_client(&reply, Ok(answer));
                Ok(())
            }
            OffLoopTask::Fetch(events, name, body, at_node) => {
                let node = at_node(&body);
                events.send(LoopEvent::Answered(name, body, node))
            }
        };
    }
}

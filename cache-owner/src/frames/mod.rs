//! Sessions of processes that send frames, on the owner's socket.
//!
//! The rules of sessions are in the core (`sszip_core::cache::owner::session`); this module carries
//! the bytes and runs the tasks.
//!
//! | module         | concern                                          |
//! |----------------|--------------------------------------------------|
//! | [`connection`] | a connection that carries frames                 |
//! | `output`       | bytes that wait to be written to a connection    |
//! | `tasks`        | tasks of a session, which may wait for a disk    |
//! | `open_session` | an open session, its waker and its end           |

pub mod connection;
mod open_session;
mod output;
mod tasks;

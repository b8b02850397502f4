//! Sessions of processes that send frames, on the owner's socket.
//!
//! The rules of sessions are in the core (`sszip_core::cache::owner::session`); this module carries
//! the bytes and runs the tasks.
//!
//! | module             | concern                                       |
//! |--------------------|-----------------------------------------------|
//! | [`connection`]     | a connection that carries frames              |
//! | `socket`           | its socket                                    |
//! | `callout`          | callouts that carry frames                    |
//! | [`polled_session`] | sessions between callouts                     |
//! | `open_session`     | an open session, its waker and its end        |
//! | `tasks`            | tasks of a session, which may wait for a disk |

pub(crate) mod callout;
pub mod connection;
mod open_session;
pub mod polled_session;
mod socket;
mod tasks;

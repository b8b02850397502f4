//! Frames and messages between a process and the owner.
//!
//! Sans-I/O, and the same for all transports. The chapter "Frames" of `docs/owner-protocol.md`
//! specifies the bytes. All lengths are checked before memory is allocated for them, and a refused
//! allocation is an error. The modules:
//!
//! | module              | concern                                                     |
//! |---------------------|-------------------------------------------------------------|
//! | [`protocol_error`]  | errors of bytes that this version does not define           |
//! | [`message_body`]    | bodies of messages: own bytes, then shared ones             |
//! | [`frame`]           | frames as they are received: preface, lengths, raw messages |
//! | [`outgoing_frame`]  | frames to be sent, as pieces that are not joined            |
//! | [`body_assembler`]  | bodies that arrive in several messages                      |
//! | [`callout_envelope`] | bodies of callouts and of their answers                    |
//! | [`connection_output`] | bytes that wait to be written to a connection             |
//! | [`client_name`]     | names of processes                                          |
//! | `message_head`      | heads of messages in postcard's format                      |
//! | [`process_message`] | messages from a process to the owner                        |
//! | [`owner_message`]   | messages from the owner to a process                        |

pub mod body_assembler;
pub mod call_kind;
pub mod callout_envelope;
pub mod client_name;
pub mod connection_output;
pub mod frame;
pub mod message_body;
mod message_head;
pub mod outgoing_frame;
pub mod owner_message;
pub mod process_message;
pub mod protocol_error;

#[cfg(test)]
mod tests;

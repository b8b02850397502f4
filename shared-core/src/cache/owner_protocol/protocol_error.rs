//! Errors of bytes that this version of the protocol does not define.

/// The reason why received bytes are rejected. The session or the transport that they arrived on
/// ends; messages before the rejected one were valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The bytes begin with another preface.
    #[error("the peer uses another protocol")]
    UnknownPreface,
    /// The preface has another version.
    #[error("the peer uses version {0} of the owner protocol")]
    OtherVersion(u8),
    /// The frame is longer than its transport permits, or shorter than its own header.
    #[error("invalid frame length {0}")]
    FrameLength(u32),
    /// The number of messages in the frame is zero or too high.
    #[error("invalid number of messages {0}")]
    MessageCount(u16),
    /// The frame has flags that this version does not define.
    #[error("unknown frame flags {0:#06x}")]
    FrameFlags(u16),
    /// The head or the body of a message is longer than the limit.
    #[error("message of kind {0:#04x} is too long")]
    MessageLength(u8),
    /// The frame ends within a message, or continues after its last message.
    #[error("the messages do not fill the frame")]
    FrameContents,
    /// The kind is unknown, and must not be skipped.
    #[error("unknown message kind {0:#04x}")]
    UnknownKind(u8),
    /// The id or the head of a message is invalid.
    #[error("invalid head of a message of kind {0:#04x}")]
    InvalidHead(u8),
    /// The body of a message is invalid.
    #[error("invalid body of a message of kind {0:#04x}")]
    InvalidBody(u8),
    /// Memory was refused.
    #[error("out of memory")]
    OutOfMemory,
}

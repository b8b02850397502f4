//! Limits of the replies of a fleet server, for clients that buffer whole replies.
//!
//! A reply of the Redis protocol (RESP2 and RESP3) declares its lengths before its bytes. A client
//! that buffers a reply until it is complete allocates memory of a length that the server chooses:
//! [`ReplyLengthGuard`] reads the same bytes before the client does, and fails at the first length
//! above the limits, or for which there is no memory: the client can't report a refusal. It buffers
//! nothing.

use crate::memory::{can_allocate_now, MAX_RESERVE_ALLOCATION};

/// Maximum length of a line in bytes: a simple string, an error or a number.
const MAX_LINE: u32 = 64 << 10;

/// Maximum number of digits of a declared length.
const MAX_DIGITS: u8 = 19;

/// Maximum number of aggregates that contain each other.
const MAX_DEPTH: usize = 8;

/// Maximum number of copies of a value that a client has at a time: the buffer of the connection
/// before and after it has grown, and the value.
const MAX_COPIES: usize = 3;

/// The limits of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Maximum length of a bulk string in bytes.
    pub bulk: u64,
    /// Maximum number of elements, including the elements of nested aggregates.
    pub elements: u64,
    /// Maximum length in bytes, including types, lengths and line ends.
    pub reply: u64,
}

named_enum! {
    /// The reason why the bytes of a server are rejected.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    ReplyViolation
    /// A bulk string is longer than the limit.
    Bulk "a value is longer than the limit",
    /// A reply has more elements than the limit.
    Elements "a reply has more elements than the limit",
    /// A reply is longer than the limit.
    Reply "a reply is longer than the limit",
    /// A line is longer than the limit.
    Line "a line is longer than the limit",
    /// Aggregates contain each other to a greater depth than the limit.
    Depth "a reply is nested deeper than the limit",
    /// The type of a value is unknown, or is not accepted: a number of any length, or a pushed
    /// message, which would take the place of a reply.
    Type "a reply has an unknown type",
    /// A declared length is not a number, or must not be negative.
    Length "a reply has an invalid length",
    /// A bulk string is longer than its declared length.
    Terminator "a value is longer than its declared length",
    /// The memory for a bulk string is refused.
    Memory "there is no memory for a value",
}

/// The values whose length is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeclaredType {
    /// A string of bytes; `is_nullable`: the length may be -1.
    Bulk { is_nullable: bool },
    /// An aggregate with `factor` elements for each unit of the length, and `extra` more;
    /// `is_nullable`: the length may be -1.
    Aggregate {
        factor: u8,
        extra: u8,
        is_nullable: bool,
    },
}

impl DeclaredType {
    fn is_nullable(self) -> bool {
        match self {
            Self::Bulk { is_nullable } | Self::Aggregate { is_nullable, .. } => is_nullable,
        }
    }
}

/// The number that a line of a declared length contains up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeclaredLength {
    value_type: DeclaredType,
    value: u64,
    digits: u8,
    is_negative: bool,
    /// Whether the previous byte was a carriage return.
    ends: bool,
}

/// The part of a reply that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// The type of a value.
    Type,
    /// A line without a length. `ends`: the previous byte was a carriage return.
    Line { length: u32, ends: bool },
    /// The line of a declared length.
    Length(DeclaredLength),
    /// The bytes of a bulk string; `missing`: number of bytes that have not been scanned.
    Payload { missing: u64 },
    /// The end of a bulk string's line. `ends`: the previous byte was a carriage return.
    PayloadEnd { ends: bool },
    /// An earlier byte was rejected.
    Rejected(ReplyViolation),
}

/// The scanner of the bytes that a server sends: it fails at the first declared length above its
/// limits, however the bytes are split into pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyLengthGuard {
    limits: ReplyLimits,
    state: ScanState,
    /// Missing elements of the aggregates that contain the next value, the innermost one last.
    missing: [u64; MAX_DEPTH],
    depth: usize,
    /// Number of declared elements of the present reply.
    elements: u64,
    /// Number of scanned bytes of the present reply.
    length: u64,
}

impl ReplyLengthGuard {
    /// Creates a guard for a new connection.
    pub fn new(limits: ReplyLimits) -> Self {
        Self {
            limits,
            state: ScanState::Type,
            missing: [0; MAX_DEPTH],
            depth: 0,
            elements: 0,
            length: 0,
        }
    }

    /// Scans the next bytes of the connection.
    ///
    /// # Errors
    /// The bytes of this call or of an earlier one violate a limit: the client must not receive the
    /// bytes of this call, nor later ones.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<(), ReplyViolation> {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            let scanned = match self.state {
                // within the limits, which were checked when the length was declared
                ScanState::Payload { missing } => {
                    let available = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    let skipped = missing.min(available);
                    self.length = self.length.saturating_add(skipped);
                    self.state = match missing - skipped {
                        0 => ScanState::PayloadEnd { ends: false },
                        missing => ScanState::Payload { missing },
                    };
                    let skipped = usize::try_from(skipped).unwrap_or(rest.len());
                    rest = rest.get(skipped..).unwrap_or_default();
                    continue;
                }
                ScanState::Rejected(violation) => return Err(violation),
                _ => self.scan_byte(byte),
            };
            if let Err(violation) = scanned {
                self.state = ScanState::Rejected(violation);
                return Err(violation);
            }
            rest = after;
        }
        match self.state {
            ScanState::Rejected(violation) => Err(violation),
            _ => Ok(()),
        }
    }

    /// Scans a byte outside of a payload.
    fn scan_byte(&mut self, byte: u8) -> Result<(), ReplyViolation> {
        self.length = self.length.saturating_add(1);
        if self.length > self.limits.reply {
            return Err(ReplyViolation::Reply);
        }
        match self.state {
            ScanState::Type => {
                self.state = state_after_type(byte).ok_or(ReplyViolation::Type)?;
            }
            ScanState::Line { length, ends } => match (ends, byte) {
                (true, b'\n') => self.complete_value(),
                _ if length >= MAX_LINE => return Err(ReplyViolation::Line),
                _ => {
                    self.state = ScanState::Line {
                        length: length + 1,
                        ends: byte == b'\r',
                    };
                }
            },
            ScanState::Length(declared) => self.scan_length(declared, byte)?,
            ScanState::PayloadEnd { ends } => match (ends, byte) {
                (false, b'\r') => self.state = ScanState::PayloadEnd { ends: true },
                (true, b'\n') => self.complete_value(),
                _ => return Err(ReplyViolation::Terminator),
            },
            // `scan` handles these
            ScanState::Payload { .. } | ScanState::Rejected(_) => {}
        }
        Ok(())
    }

    /// Scans a byte of the line of a declared length.
    fn scan_length(&mut self, declared: DeclaredLength, byte: u8) -> Result<(), ReplyViolation> {
        let mut next = declared;
        match byte {
            b'\n' if declared.ends => return self.begin_declared_value(declared),
            _ if declared.ends => return Err(ReplyViolation::Length),
            b'\r' if declared.digits > 0 => next.ends = true,
            b'-' if declared.digits == 0
                && !declared.is_negative
                && declared.value_type.is_nullable() =>
            {
                next.is_negative = true;
            }
            b'0'..=b'9' if declared.digits < MAX_DIGITS => {
                next.digits += 1;
                let digit = u64::from(byte - b'0');
                next.value = declared.value.saturating_mul(10).saturating_add(digit);
                match next.is_negative {
                    // the length of a null
                    true if next.value != 1 => return Err(ReplyViolation::Length),
                    true => {}
                    false => self.check_declared_length(next.value_type, next.value)?,
                }
            }
            _ => return Err(ReplyViolation::Length),
        }
        self.state = ScanState::Length(next);
        Ok(())
    }

    /// Compares a declared length with the limits, as soon as its digits exceed them.
    fn check_declared_length(
        &self,
        value_type: DeclaredType,
        length: u64,
    ) -> Result<(), ReplyViolation> {
        match value_type {
            DeclaredType::Bulk { .. } if length > self.limits.bulk => Err(ReplyViolation::Bulk),
            DeclaredType::Bulk { .. } if self.length.saturating_add(length) > self.limits.reply => {
                Err(ReplyViolation::Reply)
            }
            DeclaredType::Aggregate { factor, extra, .. }
                if self
                    .elements
                    .saturating_add(element_count(length, factor, extra))
                    > self.limits.elements =>
            {
                Err(ReplyViolation::Elements)
            }
            _ => Ok(()),
        }
    }

    /// Begins the value whose length was declared by the line that ends here.
    fn begin_declared_value(&mut self, declared: DeclaredLength) -> Result<(), ReplyViolation> {
        match declared.value_type {
            _ if declared.is_negative => self.complete_value(),
            // the line that ends has made the reply longer since its digits were checked
            value_type @ DeclaredType::Bulk { .. } => {
                self.check_declared_length(value_type, declared.value)?;
                check_memory(declared.value)?;
                self.state = match declared.value {
                    0 => ScanState::PayloadEnd { ends: false },
                    missing => ScanState::Payload { missing },
                };
            }
            DeclaredType::Aggregate { factor, extra, .. } => {
                match element_count(declared.value, factor, extra) {
                    0 => self.complete_value(),
                    count => {
                        let missing = self.missing.get_mut(self.depth);
                        *missing.ok_or(ReplyViolation::Depth)? = count;
                        self.depth += 1;
                        self.elements = self.elements.saturating_add(count);
                        self.state = ScanState::Type;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a value, and the aggregates whose last element it is.
    fn complete_value(&mut self) {
        self.state = ScanState::Type;
        while let Some(innermost) = self.depth.checked_sub(1) {
            if let Some(missing) = self.missing.get_mut(innermost) {
                *missing = missing.saturating_sub(1);
                if *missing > 0 {
                    return;
                }
            }
            self.depth = innermost;
        }
        self.elements = 0;
        self.length = 0;
    }
}

/// Returns the state after the type of a value; `None`: the type is unknown or not accepted. No
/// client of a fleet subscribes: it ignores pushed messages, and waits for a reply.
fn state_after_type(byte: u8) -> Option<ScanState> {
    let aggregate = |factor, extra, is_nullable| DeclaredType::Aggregate {
        factor,
        extra,
        is_nullable,
    };
    let value_type = match byte {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' => {
            return Some(ScanState::Line {
                length: 0,
                ends: false,
            })
        }
        b'$' => DeclaredType::Bulk { is_nullable: true },
        // errors and texts with a length
        b'!' | b'=' => DeclaredType::Bulk { is_nullable: false },
        b'*' => aggregate(1, 0, true),
        b'~' => aggregate(1, 0, false),
        b'%' => aggregate(2, 0, false),
        // attributes are followed by the value that they describe
        b'|' => aggregate(2, 1, false),
        _ => return None,
    };
    Some(ScanState::Length(DeclaredLength {
        value_type,
        value: 0,
        digits: 0,
        is_negative: false,
        ends: false,
    }))
}

/// Checks that a client can allocate a value of this length.
fn check_memory(length: u64) -> Result<(), ReplyViolation> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let needed = length.saturating_mul(MAX_COPIES);
    match needed <= MAX_RESERVE_ALLOCATION || can_allocate_now(needed) {
        true => Ok(()),
        false => Err(ReplyViolation::Memory),
    }
}

fn element_count(length: u64, factor: u8, extra: u8) -> u64 {
    length
        .saturating_mul(factor.into())
        .saturating_add(extra.into())
}

#[cfg(test)]
mod tests;

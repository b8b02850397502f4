use proptest::collection::vec;
use proptest::prelude::*;

use super::{ReplyLengthGuard, ReplyLimits, ReplyViolation, MAX_DEPTH, MAX_DIGITS, MAX_LINE};

const LIMITS: ReplyLimits = ReplyLimits {
    bulk: 20,
    elements: 12,
    reply: 120,
};

fn scan_whole(bytes: &[u8]) -> Result<(), ReplyViolation> {
    ReplyLengthGuard::new(LIMITS).scan(bytes)
}

/// Returns the number of bytes before the one that is rejected.
fn accepted_length(bytes: &[u8]) -> usize {
    let mut guard = ReplyLengthGuard::new(LIMITS);
    let rejected = bytes.iter().position(|byte| guard.scan(&[*byte]).is_err());
    rejected.unwrap_or(bytes.len())
}

#[test]
fn replies_of_all_types_within_the_limits_are_accepted() {
    for reply in [
        "+OK\r\n",
        "-ERR a \r b \n c\r\n",
        ":-12\r\n",
        "_\r\n,1.5\r\n#t\r\n",
        "$-1\r\n*-1\r\n",
        "$0\r\n\r\n",
        "$2\r\n\r\n\r\n",
        "$20\r\n01234567890123456789\r\n",
        "!5\r\nERR a\r\n=7\r\ntxt:abc\r\n",
        "*0\r\n%0\r\n~0\r\n",
        "*2\r\n$1\r\na\r\n*2\r\n:1\r\n+b\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n",
        "|1\r\n+a\r\n:1\r\n$1\r\na\r\n",
        "*12\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "+the line \r\r\n",
    ] {
        // the limits are of one reply each
        assert_eq!(scan_whole(reply.repeat(40).as_bytes()), Ok(()), "{reply:?}");
    }
}

#[test]
fn reply_is_rejected_at_the_first_byte_that_violates_a_limit() {
    use ReplyViolation as Violation;
    for (accepted, rejected, violation) in [
        ("$2", "1\r\n", Violation::Bulk),
        ("$00002", "1\r\n", Violation::Bulk),
        ("$9", "999999999\r\n", Violation::Bulk),
        ("!9", "9\r\n", Violation::Bulk),
        ("=9", "9\r\n", Violation::Bulk),
        ("*1", "3\r\n", Violation::Elements),
        ("*10", "00000000\r\n", Violation::Elements),
        ("%", "7\r\n", Violation::Elements),
        ("|", "6\r\n", Violation::Elements),
        ("~9", "9\r\n", Violation::Elements),
        ("*6\r\n*6\r\n*", "1\r\n", Violation::Elements),
        ("", "(123\r\n", Violation::Type),
        ("", ">2\r\n+message\r\n+x\r\n", Violation::Type),
        ("*1\r\n", ">0\r\n", Violation::Type),
        ("+OK\r\n", "HTTP/1.1 400 Bad Request\r\n", Violation::Type),
        ("$-", "2\r\n", Violation::Length),
        ("$-1", "0\r\n", Violation::Length),
        ("%", "-1\r\n", Violation::Length),
        ("!", "-1\r\n", Violation::Length),
        ("$", "\r\n", Violation::Length),
        ("$", "?\r\n", Violation::Length),
        ("$", "+1\r\n", Violation::Length),
        ("$", " 1\r\n", Violation::Length),
        ("$1", "\n", Violation::Length),
        ("$1\r", "1\n", Violation::Length),
        ("$1\r\na", "b\r\n", Violation::Terminator),
        ("$1\r\na\r", "\r\n", Violation::Terminator),
    ] {
        let bytes = [accepted, rejected].concat();
        assert_eq!(scan_whole(bytes.as_bytes()), Err(violation), "{bytes:?}");
        assert_eq!(
            accepted_length(bytes.as_bytes()),
            accepted.len(),
            "{bytes:?}"
        );
    }
}

#[test]
fn length_is_rejected_beyond_its_maximum_number_of_digits() {
    let digits = usize::from(MAX_DIGITS);
    let padded = |digits: usize| format!("${}1\r\na\r\n", "0".repeat(digits - 1));
    assert_eq!(scan_whole(padded(digits).as_bytes()), Ok(()));
    let longer = padded(digits + 1);
    assert_eq!(scan_whole(longer.as_bytes()), Err(ReplyViolation::Length));
}

#[test]
fn nested_aggregates_are_rejected_beyond_the_maximum_depth() {
    assert_eq!(scan_whole("*1\r\n".repeat(MAX_DEPTH).as_bytes()), Ok(()));
    let deeper = "*1\r\n".repeat(MAX_DEPTH + 1);
    assert_eq!(scan_whole(deeper.as_bytes()), Err(ReplyViolation::Depth));
    let attributes = "|0\r\n".repeat(MAX_DEPTH + 1);
    assert_eq!(
        scan_whole(attributes.as_bytes()),
        Err(ReplyViolation::Depth)
    );
}

#[test]
fn reply_of_short_values_is_rejected_beyond_its_maximum_length() {
    let value = "$20\r\n01234567890123456789\r\n";
    let reply = ["*5\r\n", &value.repeat(5)].concat();
    assert_eq!(scan_whole(reply.as_bytes()), Err(ReplyViolation::Reply));
    // the length of the fifth value would exceed it
    assert_eq!(accepted_length(reply.as_bytes()), 4 + 4 * value.len() + 2);
    let reply = ["*4\r\n", &value.repeat(4)].concat();
    assert_eq!(scan_whole(reply.as_bytes()), Ok(()));
}

#[test]
fn line_is_rejected_beyond_its_maximum_length() {
    let mut guard = ReplyLengthGuard::new(ReplyLimits {
        reply: u64::MAX,
        ..LIMITS
    });
    assert_eq!(guard.scan(b"-"), Ok(()));
    assert_eq!(guard.scan(&vec![b'a'; MAX_LINE as usize]), Ok(()));
    assert_eq!(guard.scan(b"a"), Err(ReplyViolation::Line));
}

#[test]
fn rejected_connection_stays_rejected() {
    let mut guard = ReplyLengthGuard::new(LIMITS);
    assert_eq!(guard.scan(b"$99"), Err(ReplyViolation::Bulk));
    assert_eq!(guard.scan(b""), Err(ReplyViolation::Bulk));
    assert_eq!(guard.scan(b"+OK\r\n"), Err(ReplyViolation::Bulk));
}

/// A reply of any type, for comparison with a model of the limits.
#[derive(Clone, Debug)]
enum ModelReply {
    Line(String),
    Null,
    Bulk(Vec<u8>),
    Array(Vec<ModelReply>),
    Map(Vec<(ModelReply, ModelReply)>),
}

impl ModelReply {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Line(text) => bytes.extend(format!("+{text}\r\n").bytes()),
            Self::Null => bytes.extend(b"$-1\r\n"),
            Self::Bulk(value) => {
                bytes.extend(format!("${}\r\n", value.len()).bytes());
                bytes.extend(value);
                bytes.extend(b"\r\n");
            }
            Self::Array(values) => {
                bytes.extend(format!("*{}\r\n", values.len()).bytes());
                values.iter().for_each(|value| value.encode(bytes));
            }
            Self::Map(pairs) => {
                bytes.extend(format!("%{}\r\n", pairs.len()).bytes());
                for (key, value) in pairs {
                    key.encode(bytes);
                    value.encode(bytes);
                }
            }
        }
    }

    fn elements(&self) -> Vec<&Self> {
        match self {
            Self::Array(values) => values.iter().collect(),
            Self::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the longest bulk string and the number of elements.
    fn measure(&self) -> (usize, usize) {
        let own = match self {
            Self::Bulk(value) => value.len(),
            _ => 0,
        };
        let elements = self.elements();
        let nested = elements.iter().map(|element| element.measure());
        nested.fold((own, elements.len()), |(longest, count), (bulk, more)| {
            (longest.max(bulk), count + more)
        })
    }
}

fn model_reply() -> impl Strategy<Value = ModelReply> {
    let leaf = prop_oneof![
        "[a-z]{0,6}".prop_map(ModelReply::Line),
        Just(ModelReply::Null),
        vec(any::<u8>(), 0..24).prop_map(ModelReply::Bulk),
    ];
    leaf.prop_recursive(4, 16, 4, |reply| {
        prop_oneof![
            vec(reply.clone(), 0..5).prop_map(ModelReply::Array),
            vec((reply.clone(), reply), 0..3).prop_map(ModelReply::Map),
        ]
    })
}

/// Bytes that are likely to be a reply, or nearly one.
fn reply_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => model_reply().prop_map(|reply| {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            bytes
        }),
        4 => "[-+:$*%~>|!=_,#(][-0-9]{0,3}(\r\n|\r|\n)?".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn bytes_in_any_pieces_are_scanned_as_in_one_piece(
        bytes in reply_bytes(),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut whole = ReplyLengthGuard::new(LIMITS);
        let expected = whole.scan(&bytes);
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let (mut split, mut start, mut scanned) = (ReplyLengthGuard::new(LIMITS), 0, Ok(()));
        for end in ends {
            scanned = split.scan(&bytes[start..end]);
            start = end;
            if scanned.is_err() {
                break;
            }
        }
        prop_assert_eq!(scanned, expected);
        // a rejection at another byte would leave other counts
        prop_assert_eq!(split, whole);
    }

    #[test]
    fn replies_are_accepted_exactly_within_the_limits(replies in vec(model_reply(), 1..4)) {
        let (mut bytes, mut is_accepted) = (Vec::new(), true);
        for reply in &replies {
            let start = bytes.len();
            reply.encode(&mut bytes);
            let (bulk, elements) = reply.measure();
            is_accepted &= bulk as u64 <= LIMITS.bulk
                && elements as u64 <= LIMITS.elements
                && (bytes.len() - start) as u64 <= LIMITS.reply;
        }
        let scanned = scan_whole(&bytes);
        prop_assert_eq!(scanned.is_ok(), is_accepted, "{:?}: {:?}", replies, scanned);
    }
}

//! Calls in a request target: Erigon accepts `GET /?method=...`, and other servers accept a
//! whole call in a parameter, as an early version of JSON-RPC over HTTP defined it.

/// Whether the query of a request target may name a method: it contains the word `method`, in
/// any case and with any escapes, or a brace.
pub(in crate::exchange) fn query_may_contain_call(target: &[u8]) -> bool {
    const WORD: [u8; 6] = *b"method";
    let Some(start) = target.iter().position(|&byte| byte == b'?') else {
        return false;
    };
    let mut rest = &target[start + 1..];
    let mut last = [0; WORD.len()];
    while let Some((byte, after)) = next_percent_decoded_byte(rest) {
        last.rotate_left(1);
        last[WORD.len() - 1] = byte.to_ascii_lowercase();
        if last == WORD || byte == b'{' {
            return true;
        }
        rest = after;
    }
    false
}

/// Returns the next byte of a path or query without its escape, and the rest.
pub(super) fn next_percent_decoded_byte(query: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match query {
        [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Some(((high * 16 + low) as u8, rest)),
            _ => Some((b'%', &query[1..])),
        },
        [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::query_may_contain_call;

    #[test]
    fn query_may_call_if_it_names_a_method() {
        for target in [
            "/?method=debug_x",
            "/a/b?id=1&method=debug_x",
            "/?METHOD=x",
            "/?%6detho%64=x",
            "/?id=1;method=x",
            "/?request=%7b%22m\\u0065thod%22:1}",
            "/?request={}",
            "/?x=%&method=y",
        ] {
            assert!(query_may_contain_call(target.as_bytes()), "{target}");
        }
        for target in [
            "/",
            "/method",
            "/?",
            "/?key=abc",
            "/?metho=d",
            "/?meth%6",
            "/?meth%zzod",
            "/eth/v1/beacon/blobs?versioned_hashes=0x01,0x02",
        ] {
            assert!(!query_may_contain_call(target.as_bytes()), "{target}");
        }
    }
}

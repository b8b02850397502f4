//! Detection of files that are no certificates or keys: PEM (RFC 7468), and the outermost DER
//! value (X.690). The owner's TLS library parses the rest.

/// Labels of private keys that are not encrypted.
const PRIVATE_KEYS: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];

/// Whether a text contains certificates, and all of them are complete.
pub(super) fn has_valid_certificates(text: &str) -> bool {
    let blocks = pem_blocks(text).filter(|(label, _)| *label == "CERTIFICATE");
    let mut certificates = blocks.peekable();
    certificates.peek().is_some() && certificates.all(|(_, body)| body.is_some_and(is_der_sequence))
}

/// Whether a text contains a private key without a passphrase.
pub(super) fn has_private_key(text: &str) -> bool {
    let mut keys = pem_blocks(text).filter(|(label, _)| PRIVATE_KEYS.contains(label));
    keys.any(|(_, body)| body.is_some_and(is_der_sequence))
}

/// Returns the labels and base64 bodies of PEM blocks; without a body if a block does not end.
fn pem_blocks(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split("-----BEGIN ").skip(1).filter_map(|block| {
        let (label, rest) = block.split_once("-----")?;
        let end = format!("-----END {label}-----");
        Some((label, rest.split_once(&end).map(|(body, _)| body)))
    })
}

/// Whether base64 contains one DER sequence, whose length is the announced one.
fn is_der_sequence(base64: &str) -> bool {
    match decode_base64(base64).as_deref() {
        Some([0x30, length @ 0..=0x7f, rest @ ..]) => rest.len() == usize::from(*length),
        Some([0x30, 0x81, length, rest @ ..]) => rest.len() == usize::from(*length),
        Some([0x30, 0x82, high, low, rest @ ..]) => {
            rest.len() == usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
    }
}

/// Decodes base64 (RFC 4648) with white space. Returns `None` if it has other characters.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{has_private_key, has_valid_certificates};

    fn block(label: &str, base64: &str) -> String {
        format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
    }

    /// Returns base64 on several lines: `head`, and this number of zero bytes.
    fn long_sequence(head: &str, bytes: usize) -> String {
        let body = "A".repeat(bytes / 3 * 4);
        format!("{head}{}", body.replace("AAAAAAAA", "AAAA\nAAAA"))
    }

    #[test]
    fn certificates_must_be_complete_der_sequences() {
        // MAMCAQU= is 30 03 02 01 05, MIIBKwAA is 30 82 01 2b 00 00
        for (text, is_valid) in [
            (block("CERTIFICATE", "MAMCAQU="), true),
            (block("CERTIFICATE", "MAMC\r\nAQU=\r\n"), true),
            (
                format!(
                    "subject: a\n{0}\nissuer: b\n{0}",
                    block("CERTIFICATE", "MAMCAQU=")
                ),
                true,
            ),
            (block("CERTIFICATE", &long_sequence("MIIBKwAA", 297)), true),
            (block("CERTIFICATE", &long_sequence("MIIBKwAA", 294)), false),
            (block("CERTIFICATE", "MAMCAQUA"), false),
            (block("CERTIFICATE", "MAQCAQU="), false),
            (block("CERTIFICATE", "AgEF"), false),
            (block("CERTIFICATE", "MAM-AQU="), false),
            (block("CERTIFICATE", ""), false),
            (block("CERTIFICATE REQUEST", "MAMCAQU="), false),
            (block("PRIVATE KEY", "MAMCAQU="), false),
            ("-----BEGIN CERTIFICATE-----\nMAMCAQU=\n".into(), false),
            (
                block("CERTIFICATE", "MAMCAQU=") + "-----BEGIN CERTIFICATE-----\nMAMC",
                false,
            ),
            ("MAMCAQU=".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(has_valid_certificates(&text), is_valid, "{text}");
        }
    }

    #[test]
    fn private_keys_must_not_be_encrypted() {
        for (text, is_valid) in [
            (block("PRIVATE KEY", "MAMCAQU="), true),
            (block("RSA PRIVATE KEY", "MAMCAQU="), true),
            (
                block("EC PARAMETERS", "BggqhkjOPQMBBw==") + &block("EC PRIVATE KEY", "MAMCAQU="),
                true,
            ),
            (block("ENCRYPTED PRIVATE KEY", "MAMCAQU="), false),
            (
                block("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\n\nMAMCAQU="),
                false,
            ),
            (block("PUBLIC KEY", "MAMCAQU="), false),
            (block("CERTIFICATE", "MAMCAQU="), false),
        ] {
            assert_eq!(has_private_key(&text), is_valid, "{text}");
        }
    }
}

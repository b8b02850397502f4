//! XXH64 with a seed of 0, of which a frame has the lower half.

const PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

fn round(sum: u64, lane: u64) -> u64 {
    sum.wrapping_add(lane.wrapping_mul(PRIMES[1]))
        .rotate_left(31)
        .wrapping_mul(PRIMES[0])
}

pub(super) fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = match stripes {
        [] => PRIMES[4],
        _ => {
            let mut sums = [
                PRIMES[0].wrapping_add(PRIMES[1]),
                PRIMES[1],
                0,
                PRIMES[0].wrapping_neg(),
            ];
            for stripe in stripes {
                for (sum, lane) in sums.iter_mut().zip(stripe.as_chunks::<8>().0) {
                    *sum = round(*sum, u64::from_le_bytes(*lane));
                }
            }
            let [a, b, c, d] = sums;
            let hash = a
                .rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18));
            sums.iter().fold(hash, |hash, sum| {
                (hash ^ round(0, *sum))
                    .wrapping_mul(PRIMES[0])
                    .wrapping_add(PRIMES[3])
            })
        }
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (eights, rest) = rest.as_chunks::<8>();
    for eight in eights {
        hash = (hash ^ round(0, u64::from_le_bytes(*eight)))
            .rotate_left(27)
            .wrapping_mul(PRIMES[0])
            .wrapping_add(PRIMES[3]);
    }
    let (fours, rest) = rest.as_chunks::<4>();
    for four in fours {
        hash = (hash ^ u64::from(u32::from_le_bytes(*four)).wrapping_mul(PRIMES[0]))
            .rotate_left(23)
            .wrapping_mul(PRIMES[1])
            .wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(PRIMES[4]))
            .rotate_left(11)
            .wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::xxh64;

    #[test]
    fn of_known_texts() {
        assert_eq!(xxh64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc"), 0x44BC_2CF5_AD77_0999);
    }
}

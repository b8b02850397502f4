//! In the place of `igzip_raw` where no library can be opened at run time.

pub(super) fn prepare() {}

pub(super) fn is_available() -> bool {
    false
}

/// `false`, and `output` as it was.
pub(super) fn deflate_into(_plain: &[u8], _output: &mut Vec<u8>) -> bool {
    false
}

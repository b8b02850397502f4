//! The content codings that a route's responses can have, and their compressors.

use super::RouteConfig;
use crate::body_compressor::BodyCompressor;
use crate::negotiate::accept_encoding::EncodingPreferences;
use crate::request_coding::SupportedContentCoding;

impl RouteConfig {
    /// Returns the compressor of this route's bodies for a content coding.
    pub fn body_compressor(&self, coding: SupportedContentCoding) -> BodyCompressor {
        match coding {
            SupportedContentCoding::Gzip => BodyCompressor::Gzip {
                level: self.comp_level,
                stream_level: self.stream_level,
            },
            SupportedContentCoding::Zstd => BodyCompressor::Zstd {
                level: self.zstd_level,
                stream_level: self.stream_level,
            },
        }
    }

    /// Returns the content coding that a client with these preferences receives on this route, and
    /// `None` for identity.
    pub fn preferred_coding(&self, accept: &EncodingPreferences) -> Option<SupportedContentCoding> {
        accept.preferred_coding(self.zstd)
    }
}

#[cfg(test)]
mod tests {
    use crate::body_compressor::BodyCompressor;
    use crate::config::{RouteConfig, RouteConfigBlock};
    use crate::memory::MemoryBudget;
    use crate::negotiate::accept_encoding::EncodingPreferences;
    use crate::request_coding::SupportedContentCoding::{Gzip, Zstd};

    fn block(lines: &[(&str, &str)]) -> RouteConfigBlock {
        let mut directives = RouteConfigBlock::default();
        for (name, value) in lines {
            let result = directives.set_directive(name, &[value.as_bytes()]);
            assert_eq!(result, Ok(()), "{name} {value}");
        }
        directives
    }

    fn config(lines: &[(&str, &str)]) -> RouteConfig {
        block(lines).resolve_route_config(MemoryBudget::new())
    }

    #[test]
    fn zstd_is_disabled_by_default_and_has_level_1() {
        let config = config(&[]);
        assert_eq!((config.zstd, config.zstd_level), (false, 1));
    }

    #[test]
    fn compressor_of_a_coding_has_the_levels_of_the_route() {
        let config = config(&[
            ("comp_level", "6"),
            ("stream_level", "2"),
            ("zstd", "on"),
            ("zstd_level", "19"),
        ]);
        let gzip = BodyCompressor::Gzip {
            level: 6,
            stream_level: 2,
        };
        let zstd = BodyCompressor::Zstd {
            level: 19,
            stream_level: 2,
        };
        assert_eq!(config.body_compressor(Gzip), gzip);
        assert_eq!(config.body_compressor(Zstd), zstd);
    }

    #[test]
    fn zstd_is_preferred_on_routes_that_enable_it() {
        let mut accept = EncodingPreferences::default();
        accept.read_accept_encoding_line(b"gzip, deflate, br, zstd");
        let of = |lines: &[(&str, &str)]| config(lines).preferred_coding(&accept);
        assert_eq!(of(&[]), Some(Gzip));
        assert_eq!(of(&[("zstd", "off")]), Some(Gzip));
        assert_eq!(of(&[("zstd", "on")]), Some(Zstd));
    }

    #[test]
    fn zstd_level_outside_its_range_is_rejected() {
        for value in ["0", "20", "-1", "+1", "1k", "", "fast"] {
            let result =
                RouteConfigBlock::default().set_directive("zstd_level", &[value.as_bytes()]);
            let error = format!(
                "has an invalid value \"{value}\": it must be a number from 1 to {}",
                crate::zstd::MAX_ZSTD_LEVEL
            );
            assert_eq!(result.map_err(|error| error.to_string()), Err(error));
        }
    }

    #[test]
    fn settings_of_zstd_are_inherited_and_overridden() {
        let outer = block(&[("zstd", "on"), ("zstd_level", "3")]);
        let mut inner = block(&[("zstd_level", "7")]);
        inner.inherit_unset_from(&outer);
        let inner = inner.resolve_route_config(MemoryBudget::new());
        assert_eq!((inner.zstd, inner.zstd_level), (true, 7));
        let mut disabled = block(&[("zstd", "off")]);
        disabled.inherit_unset_from(&outer);
        let disabled = disabled.resolve_route_config(MemoryBudget::new());
        assert_eq!((disabled.zstd, disabled.zstd_level), (false, 3));
    }
}

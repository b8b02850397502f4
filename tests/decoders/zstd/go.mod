// The newest release that Debian 12's Go can build.
module sszip/tests/decoders/zstd

go 1.19

require github.com/klauspost/compress v1.17.4

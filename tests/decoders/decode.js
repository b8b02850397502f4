// Decodes gzip members or zstd frames, or reads JSON, for the end-to-end tests: a 32-bit big-endian
// length and the bytes in, the same out (JSON as it was read); the length 0xffffffff and a text on
// error. `unzstd` needs Node.js 22.15, `fzstd` the package of that name.
//
//   node decode.js gunzip | unzstd | fzstd | parse_json
'use strict';

const fs = require('fs');
const zlib = require('zlib');

const decode = {
  gunzip: (bytes) => zlib.gunzipSync(bytes),
  unzstd: (bytes) => zlib.zstdDecompressSync(bytes),
  fzstd: (bytes) => Buffer.from(require('fzstd').decompress(bytes)),
  parse_json: (bytes) => Buffer.from(JSON.stringify(JSON.parse(bytes.toString('utf8')))),
}[process.argv[2]];

function readExactly(count) {
  const bytes = Buffer.alloc(count);
  let filled = 0;
  while (filled < count) {
    let got = 0;
    try {
      got = fs.readSync(0, bytes, filled, count - filled, null);
    } catch (error) {
      if (error.code === 'EAGAIN') continue;
      throw error;
    }
    if (got === 0) process.exit(filled === 0 ? 0 : 1);
    filled += got;
  }
  return bytes;
}

function writeAll(bytes) {
  let written = 0;
  while (written < bytes.length) {
    try {
      written += fs.writeSync(1, bytes, written);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function uint32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

for (;;) {
  const coded = readExactly(readExactly(4).readUInt32BE());
  let decoded;
  try {
    decoded = decode(coded);
  } catch (error) {
    const text = Buffer.from(String(error));
    writeAll(Buffer.concat([uint32(0xffffffff), uint32(text.length), text]));
    continue;
  }
  writeAll(Buffer.concat([uint32(decoded.length), decoded]));
}

// Parses JSON for the end-to-end tests: a 32-bit big-endian length and the text in, the
// same with the value as JSON out; the length 0xffffffff and a text on error.
'use strict';

const fs = require('fs');

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
    decoded = Buffer.from(JSON.stringify(JSON.parse(coded.toString('utf8'))));
  } catch (error) {
    const text = Buffer.from(String(error));
    writeAll(Buffer.concat([uint32(0xffffffff), uint32(text.length), text]));
    continue;
  }
  writeAll(Buffer.concat([uint32(decoded.length), decoded]));
}

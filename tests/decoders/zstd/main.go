// Decodes zstd frames for the end-to-end tests as clients in Go do, whole or as a stream: a 32-bit
// big-endian length and the bytes in, the same out; the length 0xffffffff and a text on error.
//
//	zstd-decoder whole | stream
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"log"
	"os"

	"github.com/klauspost/compress/zstd"
)

const (
	failed = 0xffffffff
	// the longest window of a content coding (RFC 9659)
	maxWindow = 8 << 20
)

func decodeWhole(coded []byte) ([]byte, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return decoder.DecodeAll(coded, nil)
}

func decodeStream(coded []byte) ([]byte, error) {
	source := bytes.NewReader(coded)
	decoder, err := zstd.NewReader(source, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return io.ReadAll(decoder)
}

func writeSized(out *bufio.Writer, content []byte) error {
	if err := binary.Write(out, binary.BigEndian, uint32(len(content))); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func answer(out *bufio.Writer, decoded []byte, err error) error {
	if err == nil {
		return writeSized(out, decoded)
	}
	if err := binary.Write(out, binary.BigEndian, uint32(failed)); err != nil {
		return err
	}
	return writeSized(out, []byte(err.Error()))
}

func main() {
	decode := map[string]func([]byte) ([]byte, error){"whole": decodeWhole, "stream": decodeStream}[os.Args[1]]
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		coded := make([]byte, length)
		if _, err := io.ReadFull(in, coded); err != nil {
			log.Fatal(err)
		}
		decoded, err := decode(coded)
		if err := answer(out, decoded, err); err != nil {
			log.Fatal(err)
		}
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
}

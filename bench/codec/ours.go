package codec

import (
	"bufio"
	"io"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/resp"
)

// Lockwire makes a resp.Value of any reply.
func Lockwire(_ string, src io.Reader) func() error {
	r := resp.NewReader(src, resp.Limits{})
	return func() error {
		_, err := r.Read()
		return err
	}
}

// Views looks at a reply where it lies and makes nothing of it. What is longer than a buffer is passed over.
func Views(_ string, src io.Reader) func() error {
	br := bufio.NewReaderSize(src, 32<<10)
	return func() error {
		_, err := floor.Read(br)
		return err
	}
}

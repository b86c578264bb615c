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

// LockwireTyped turns a Value into the type of its users.
func LockwireTyped(reply string, src io.Reader) func() error {
	r := resp.NewReader(src, resp.Limits{})
	use := func(v resp.Value) error { _, err := v.Text(); return err }
	switch reply {
	case "integer":
		use = func(v resp.Value) error { _, err := v.Int(); return err }
	case "array100":
		use = func(v resp.Value) error {
			list := make([]string, 0, v.Len())
			for e := range v.All() {
				text, err := e.Text()
				if err != nil {
					return err
				}
				list = append(list, text)
			}
			return nil
		}
	case "map":
		return nil
	}
	return func() error {
		v, err := r.Read()
		if err != nil {
			return err
		}
		return use(v)
	}
}

// Views looks at a reply in place and makes no value. Anything longer than a buffer is passed over.
func Views(_ string, src io.Reader) func() error {
	br := bufio.NewReaderSize(src, 32<<10)
	return func() error {
		_, err := floor.Read(br)
		return err
	}
}

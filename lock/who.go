package lock

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxName limits the length of the default Config.Name.
const maxName = 100

// defaultName returns the name of this process: the name of its pod, or else the host's name and the process id.
func defaultName() string {
	name := os.Getenv("POD_NAME")
	if name == "" {
		host, _ := os.Hostname()
		name = cmp.Or(host, "unknown") + "-" + strconv.Itoa(os.Getpid())
	}
	name = strings.Map(func(r rune) rune {
		if !inName(r) {
			return '-'
		}
		return r
	}, name)
	return name[max(0, len(name)-maxName):]
}

// inName reports whether r may be in the name of a process.
func inName(r rune) bool { return r > ' ' && r <= '~' && r != ',' }

// introduce adds the client's title to the names of its Server's connections, if the Server has names, until stop is
// called.
func introduce(s Server, title string) (stop func()) {
	if named, ok := find[interface {
		Introduce(name string) (stop func())
	}](s); ok {
		return named.Introduce(title)
	}
	return func() {}
}

// onLoss registers fn with a Server that reports lost connections, and returns a function to unregister.
func onLoss(s Server, fn func()) (stop func()) {
	if l, ok := find[interface {
		OnLoss(fn func()) (stop func())
	}](s); ok {
		return l.OnLoss(fn)
	}
	return func() {}
}

// find returns the first of a Server and of the Servers that it wraps that is a T.
func find[T any](s Server) (found T, ok bool) {
	for {
		if found, ok = s.(T); ok {
			return found, true
		}
		wrapper, wraps := s.(interface{ Unwrap() Server })
		if !wraps {
			return found, false
		}
		s = wrapper.Unwrap()
	}
}

// connection reads a line of CLIENT LIST.
func connection(line string) (names, addr string, age time.Duration) {
	for field := range strings.FieldsSeq(line) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "name":
			names = value
		case "addr":
			addr = value
		case "age":
			seconds, _ := strconv.ParseInt(value, 10, 32)
			age = time.Duration(seconds) * time.Second
		}
	}
	return names, addr, age
}

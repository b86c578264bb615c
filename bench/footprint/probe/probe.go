// Package probe is the main function of the small programs of package footprint. It needs only a little of the standard
// library.
package probe

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Program is a small program's use of its library.
type Program struct {
	// Open connects a new client to a server and returns a use of the client: SET and GET of a key. The client stays open.
	Open func(addr string) (use func() error, err error)

	// Lock takes and releases a lock. nil is for libraries without locks.
	Lock func(addr string) error
}

const clients = 50

// Main uses the library at the address in the only argument, and prints "reply" and then the cost.
func (p Program) Main() {
	if err := p.run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p Program) run(addr string) error {
	if err := p.client(addr); err != nil {
		return err
	}
	fmt.Println("reply")
	first := memory()
	goroutines := runtime.NumGoroutine() - 1
	rss := resident()
	for range clients {
		if err := p.client(addr); err != nil {
			return err
		}
	}
	each := (memory() - first) / clients
	runtime.KeepAlive(open)
	if p.Lock != nil {
		if err := p.Lock(addr); err != nil {
			return err
		}
	}
	fmt.Println(first, each, goroutines, rss)
	return nil
}

// open are the clients, kept from the collector while memory is measured.
var open []func() error

func (p Program) client(addr string) error {
	use, err := p.Open(addr)
	if err != nil {
		return err
	}
	open = append(open, use)
	return use()
}

// memory is the heap and the stacks in use, in bytes.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// resident is the memory of the process in KiB, 0 if not known.
func resident() (kib int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fmt.Sscan(rest, &kib)
	return kib
}

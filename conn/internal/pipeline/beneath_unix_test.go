//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package pipeline

import (
	"net"
	"testing"
)

// Beneath gives TLS one record at a time, and knows of bytes that TLS has not asked for.
func TestBeneath(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	b, ok := NewBeneath(client).(*Beneath)
	if !ok {
		t.Fatal("this system does not tell of unread data")
	}
	unread := func(when string, want bool) {
		t.Helper()
		if got, err := b.unread(); got != want || err != nil {
			t.Errorf("%s: unread() = %v, %v, want %v", when, got, err, want)
		}
	}
	read := func(size int, want string) {
		t.Helper()
		p := make([]byte, size)
		if n, err := b.Read(p); string(p[:n]) != want || err != nil {
			t.Errorf("Read() = %q, %v, want %q", p[:n], err, want)
		}
	}
	const first, second, empty = "\x17\x03\x03\x00\x03abc", "\x17\x03\x03\x00\x02de", "\x17\x03\x03\x00\x00"
	unread("nothing has arrived", false)
	if _, err := server.Write([]byte(first + second + empty + first[:4])); err != nil {
		t.Fatal(err)
	}
	read(100, first)
	unread("TLS has the first record", true)
	b.noteDecrypted()
	unread("the first record is decrypted", true)
	read(5, second[:5])
	read(1, "d")
	read(100, "e")
	read(100, empty)
	b.noteDecrypted()
	if got, want := b.decrypted.Load(), int64(len(first+second+empty)); got != want {
		t.Errorf("%d bytes are decrypted, want %d", got, want)
	}
	unread("a record has begun", true)
	if _, err := server.Write([]byte(first[4:])); err != nil {
		t.Fatal(err)
	}
	read(100, first)
	b.noteDecrypted()
	unread("all records are decrypted", false)
}

// Over a connection that is no socket nothing is beneath TLS but the connection.
func TestBeneathWithoutSocket(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	if b := NewBeneath(client); b != client {
		t.Errorf("NewBeneath() = %v, want the connection", b)
	}
}

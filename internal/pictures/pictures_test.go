package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// The files are what the program draws.
func TestFiles(t *testing.T) {
	for name, draw := range pictures {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != draw().svg() {
			t.Errorf("%s is not what the program draws: go run ./internal/pictures", name)
		}
	}
}

// The pictures are XML, and have colors for light and for dark ground.
func TestWellFormed(t *testing.T) {
	for name, draw := range pictures {
		text := draw().svg()
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, s := range []shade{ink, faint, good, other, bad} {
			if n := strings.Count(text, "\n."+string(s)+" {") + strings.Count(text, " ."+string(s)+" {"); n != 2 {
				t.Errorf("%s has %d colors for %s, want 2", name, n, s)
			}
		}
	}
}

// No text covers another one, and all are inside.
func TestTextsDoNotOverlap(t *testing.T) {
	for name, draw := range pictures {
		c := draw()
		for i, a := range c.labels {
			if a.x0 < 0 || a.y0 < 0 || a.x1 > float64(c.width) || a.y1 > float64(c.height) {
				t.Errorf("%s: %q is not inside: %+v", name, a.text, a)
			}
			for _, b := range c.labels[:i] {
				if a.overlaps(b) {
					t.Errorf("%s: %q covers %q", name, a.text, b.text)
				}
			}
		}
	}
}

func (l label) overlaps(m label) bool {
	return l.x0 < m.x1 && m.x0 < l.x1 && l.y0 < m.y1 && m.y0 < l.y1
}

// The test of overlaps finds one.
func TestOverlapIsFound(t *testing.T) {
	c := newCanvas("title", 100, 100)
	c.text(20, 34, small, ink, left, "covers the title")
	if !c.labels[1].overlaps(c.labels[0]) {
		t.Errorf("%+v and %+v do not overlap", c.labels[0], c.labels[1])
	}
}

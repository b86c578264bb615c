package claim

import (
	"sync"
	"testing"
)

func TestTransitions(t *testing.T) {
	outcome := new(int)
	for _, test := range []struct {
		name  string
		steps func(c *Claim[int]) []bool
		want  []bool
	}{
		{"nothing is offered", func(c *Claim[int]) []bool { return []bool{c.Claim(), c.Withdraw(), c.Abandon(), c.Delivered()} },
			[]bool{false, true, false, false}},
		{"withdrawn in time", func(c *Claim[int]) []bool { c.Offer(nil); return []bool{c.Withdraw(), c.Claim()} }, []bool{true, false}},
		{"delivered", func(c *Claim[int]) []bool {
			c.Offer(nil)
			return []bool{c.Claim(), c.Withdraw(), c.Deliver(outcome), c.Delivered(), c.Abandon(), c.Take() == outcome, c.Withdraw()}
		}, []bool{true, false, true, true, false, true, true}},
		{"abandoned", func(c *Claim[int]) []bool {
			c.Offer(nil)
			return []bool{c.Claim(), c.Abandon(), c.Deliver(outcome), c.Delivered(), c.Abandoned(), c.Withdraw()}
		}, []bool{true, true, false, false, true, false}},
		{"no offer while a hand-over is under way", func(c *Claim[int]) []bool {
			c.Offer(nil)
			claimed := c.Claim()
			c.Offer(nil)
			return []bool{claimed, c.Claim(), c.Deliver(outcome)}
		}, []bool{true, false, true}},
	} {
		got := test.steps(new(Claim[int]))
		for i := range test.want {
			if got[i] != test.want[i] {
				t.Errorf("%s: step %d is %v, want %v", test.name, i, got[i], test.want[i])
			}
		}
	}
}

func TestOver(t *testing.T) {
	var c Claim[int]
	over := make(chan struct{})
	c.Offer(over)
	if !c.Claim() || c.Over() {
		t.Error("the waiter is over at once")
	}
	if close(over); !c.Over() {
		t.Error("the end of the waiter is not seen")
	}
}

// Of many holders one claims an offer, also while the waiter withdraws.
func TestOneHolderClaims(t *testing.T) {
	for range 1000 {
		var c Claim[int]
		c.Offer(nil)
		var wg sync.WaitGroup
		got := make([]bool, 3)
		for i := range got {
			wg.Go(func() {
				if i == 0 {
					got[i] = c.Withdraw()
				} else {
					got[i] = c.Claim()
				}
			})
		}
		wg.Wait()
		n := 0
		for _, won := range got {
			if won {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d of a withdrawal and two claims succeeded, want 1", n)
		}
	}
}

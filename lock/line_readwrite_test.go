package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

const jobReadWrite = "redisson_rwlock:{job}"

func toRead(c *lock.Client) goldenLock  { return c.ReadWrite("job").Read() }
func toWrite(c *lock.Client) goldenLock { return c.ReadWrite("job").Write() }

// Readers who stand one behind the other come in together, and those behind the next writer do not. Nobody asks often.
func TestLineOfReadersAndWriters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const processes, callers = 5, 5
		lease := mustWrite(t, w.client(lock.Config{}))
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		come := func(of lockOf, mark string, hold time.Duration) {
			c := w.client(lock.Config{HandOvers: -1})
			c.OnlyWoken()
			for range callers {
				wg.Go(func() {
					l, err := of(c).Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, mark)
					mu.Unlock()
					w.sleep(hold)
					mustUnlock(t, l)
				})
			}
			w.sleep(time.Millisecond)
		}
		for range processes {
			come(toRead, "a", 50*time.Millisecond)
		}
		come(toWrite, "w", time.Millisecond)
		for range processes {
			come(toRead, "b", 50*time.Millisecond)
		}
		w.srv.ClearLog()
		begin := time.Now()
		mustUnlock(t, lease)
		wg.Wait()
		want := strings.Repeat("a", processes*callers) + "w" + strings.Repeat("b", processes*callers) + strings.Repeat("w", callers-1)
		if got := strings.Join(order, ""); got != want {
			t.Errorf("served in the order %s, want %s", got, want)
		}
		if took := time.Since(begin); took > 150*time.Millisecond {
			t.Errorf("that took %v, want 105 ms", took)
		}
		if asked, all := w.asked(), len(want); asked > 2*all {
			t.Errorf("%d callers asked %d times, want twice each at most", all, asked)
		}
		w.sleep(time.Second)
		w.free()
	})
}

// While a writer waits for readers, others do not come in, by Lock or TryLock; those who have the lock do.
func TestReadersBehindAWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		keeper := mustRead(t, c, lock.As(owner))
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		reader := lockOf(toRead).waits(t, t.Context(), other)
		w.sleep(2 * time.Second)
		if len(reader) != 0 {
			t.Error("a reader passed a writer")
		}
		isTaken(t, other.ReadWrite("job").Read())
		isTaken(t, c.ReadWrite("job").Read())
		mustUnlock(t, mustRead(t, c, lock.As(owner)))
		mustUnlock(t, keeper)
		synctest.Wait()
		if len(writer) != 1 || len(reader) != 0 {
			t.Errorf("the writer has the lock: %d, the reader: %d", len(writer), len(reader))
		}
		begin := time.Now()
		mustUnlock(t, <-writer)
		mustUnlock(t, <-reader)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the reader has the lock after %v", took)
		}
		w.sleep(time.Second)
		w.free()
	})
}

// Readers that wait for each other go on within seconds, although writers wait between them: a caller takes the read lock again without an
// Owner, and another reader has to come in before the first leaves. Then the writers have their turns.
func TestReadersThatWaitForEachOther(t *testing.T) {
	for _, processes := range []int{1, 4} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			first := mustRead(t, c)
			var writers, readers []<-chan *lock.Lease
			for range processes {
				writers = append(writers, lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{})))
				w.sleep(10 * time.Millisecond)
				readers = append(readers, lockOf(toRead).waits(t, t.Context(), w.client(lock.Config{})))
				w.sleep(10 * time.Millisecond)
			}
			begin := time.Now()
			again := mustRead(t, c)
			for _, reader := range readers {
				mustUnlock(t, <-reader)
			}
			if took := time.Since(begin); took > 6*time.Second {
				t.Errorf("%d processes: the readers went on after %v", processes, took)
			}
			mustUnlock(t, again)
			mustUnlock(t, first)
			begin = time.Now()
			for _, writer := range writers {
				mustUnlock(t, <-writer)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("%d processes: the writers had the lock after %v", processes, took)
			}
			w.sleep(time.Second)
			w.free()
		})
	}
}

// A writer that lets readers in now and then has the lock all the same beside readers that come and go, however long each has the lock.
func TestWriterBesideSlowReaders(t *testing.T) {
	for hold, most := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 3 * time.Second,
		5 * time.Second:        12 * time.Second, // out for 3 s, in for 2 s, out for 5 s
		8 * time.Second:        25 * time.Second, // and so on for 3, 2, 6, 3, 8 s
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 6 {
				c := w.client(lock.Config{})
				wg.Go(func() {
					w.sleep(time.Duration(i) * hold / 6)
					for ctx.Err() == nil {
						l := mustRead(t, c)
						w.sleep(hold)
						mustUnlock(t, l)
					}
				})
			}
			w.sleep(time.Second)
			for range 3 {
				wait, end := context.WithTimeout(t.Context(), most)
				l, err := w.client(lock.Config{}).ReadWrite("job").Write().Lock(wait)
				end()
				if err != nil {
					t.Errorf("beside readers of %v: Lock() = %v after %v", hold, err, most)
					break
				}
				mustUnlock(t, l)
			}
			cancel()
			wg.Wait()
			w.sleep(time.Second)
			w.free()
		})
	}
}

// comesIn fails the test unless a reader of c has the lock before most is over. It lets go of the lock.
func comesIn(t *testing.T, c *lock.Client, most time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	l, err := c.ReadWrite("job").Read().Lock(ctx)
	if err != nil {
		t.Errorf("the reader has not come in after %v: %v", most, err)
		return
	}
	mustUnlock(t, l)
}

// The waits of a process's writers count together: a reader comes in although each writer gives up within two seconds.
func TestReaderBehindImpatientWriters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const patience = 2 * time.Second
		c, writers := w.client(lock.Config{}), w.client(lock.Config{})
		first := mustRead(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				w.sleep(time.Duration(i) * patience / 4)
				for ctx.Err() == nil {
					wait, end := context.WithTimeout(ctx, patience)
					if _, err := writers.ReadWrite("job").Write().Lock(wait); err == nil {
						t.Error("a writer beside a reader")
					}
					end()
				}
			})
		}
		w.sleep(patience)
		comesIn(t, c, 2*time.Second)
		cancel()
		wg.Wait()
		mustUnlock(t, first)
		w.sleep(time.Second)
		w.free()
	})
}

// A reader comes in as soon behind many writers as behind one.
func TestReaderBehindManyWriters(t *testing.T) {
	for _, processes := range []int{10, 18, 20, 40} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			first := mustRead(t, c)
			var writers []<-chan *lock.Lease
			for range processes {
				writers = append(writers, lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{})))
				w.sleep(10 * time.Millisecond)
			}
			comesIn(t, c, 5*time.Second)
			mustUnlock(t, first)
			for _, writer := range writers {
				mustUnlock(t, <-writer)
			}
			w.sleep(time.Second)
			w.free()
		})
	}
}

// While a writer lets readers in, all who wait come in, not only those whose request is the first.
func TestManyReadersBehindAWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const readers = 100
		w.srv.Latency(5 * time.Millisecond)
		first := mustRead(t, w.client(lock.Config{}))
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(100 * time.Millisecond)
		var inside sync.WaitGroup
		inside.Add(readers)
		var wg sync.WaitGroup
		begin := time.Now()
		for range readers {
			c := w.client(lock.Config{})
			wg.Go(func() {
				l := mustRead(t, c)
				inside.Done()
				inside.Wait()
				mustUnlock(t, l)
			})
		}
		inside.Wait()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("all readers have the lock after %v", took)
		}
		wg.Wait()
		mustUnlock(t, first)
		mustUnlock(t, <-writer)
		w.srv.Latency(0)
		w.sleep(time.Second)
		w.free()
	})
}

// Readers refused by a writer that had the lock come in while the next writer lets readers in, whatever the order of the line: the first of
// them is told of that writer, and each calls the next.
func TestReadersRefusedByAnotherWriter(t *testing.T) {
	lines := []string{"rwr", "rwrrr", "rwrrrrrrrrrrrrrrrrrrrr", "rwrwr", "rwwwrwrr", "rwwwwwwwwwwwwrrrrwrwrr"}
	random := rand.New(rand.NewPCG(1, 0))
	for range 30 { // a writer that asks before the last reader in front of it has come in is rare
		line := "rrrw"
		for range 1 + random.IntN(16) {
			line += string("rw"[random.IntN(2)])
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Latency(time.Millisecond)
				lease := mustWrite(t, w.client(lock.Config{}))
				var readers, writers []<-chan *lock.Lease
				for _, mark := range line {
					if mark == 'r' {
						readers = append(readers, lockOf(toRead).waits(t, t.Context(), w.client(lock.Config{})))
					} else {
						writers = append(writers, lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{})))
					}
					w.sleep(50 * time.Millisecond)
				}
				mustUnlock(t, lease)
				begin := time.Now()
				var leases []*lock.Lease
				for _, reader := range readers {
					leases = append(leases, <-reader)
				}
				if took := time.Since(begin); took > 4500*time.Millisecond {
					t.Errorf("all readers have the lock after %v", took)
				}
				for _, l := range leases {
					mustUnlock(t, l)
				}
				for _, writer := range writers {
					mustUnlock(t, <-writer)
				}
				w.srv.Latency(0)
				w.sleep(time.Second)
				w.free()
			})
		})
	}
}

// A writer that has waited for another writer does not let readers in before it has waited for readers.
func TestWriterBehindAWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease := mustWrite(t, w.client(lock.Config{}))
		var got []<-chan *lock.Lease
		for _, of := range []lockOf{toRead, toWrite, toRead} {
			got = append(got, of.waits(t, t.Context(), w.client(lock.Config{})))
			w.sleep(time.Millisecond)
		}
		w.sleep(3500 * time.Millisecond)
		mustUnlock(t, lease)
		reader := <-got[0]
		w.sleep(2500 * time.Millisecond)
		if len(got[2]) != 0 {
			t.Error("a reader passed a writer that has waited for readers for 2.5 s")
		}
		w.sleep(2 * time.Second)
		if len(got[2]) == 0 {
			t.Error("a writer keeps a reader out for 4.5 s")
		}
		mustUnlock(t, <-got[2])
		mustUnlock(t, reader)
		mustUnlock(t, <-got[1])
		w.sleep(time.Second)
		w.free()
	})
}

// A writer that is hung, or dead, keeps readers out for no more than about a second. So does one that is hung when it is called.
func TestHungWriter(t *testing.T) {
	for _, state := range []string{"hung", "dead", "hung when called"} {
		t.Run(state, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				hung, arrive := w.client(lock.Config{}), func() {}
				var writer <-chan *lock.Lease
				keeper := mustRead(t, w.client(lock.Config{}))
				if state == "dead" {
					place := hung.ID() + ":1:100"
					w.srv.Do("ZADD", jobLine, fmt.Sprint(time.Now().UnixMicro()), place, fmt.Sprint(-time.Now().UnixMilli()-1000), "~"+place)
				} else {
					writer = lockOf(toWrite).waits(t, t.Context(), hung)
					arrive = w.hangs(hung)
				}
				var readers []<-chan *lock.Lease
				for range 3 {
					w.sleep(time.Millisecond)
					readers = append(readers, lockOf(toRead).waits(t, t.Context(), w.client(lock.Config{})))
				}
				begin, most := time.Now(), 1100*time.Millisecond
				if state == "hung when called" {
					mustUnlock(t, keeper)
					most = 110 * time.Millisecond
				}
				var leases []*lock.Lease
				for _, got := range readers {
					leases = append(leases, <-got)
				}
				if took := time.Since(begin); took > most {
					t.Errorf("the readers have the lock after %v", took)
				}
				if state != "hung when called" {
					leases = append(leases, keeper)
				}
				arrive()
				for _, lease := range leases {
					mustUnlock(t, lease)
				}
				if writer != nil {
					mustUnlock(t, <-writer)
				}
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// A writer that leaves, at any time, lets the readers behind it in at once.
func TestWriterLeavesTheLine(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 8 * time.Millisecond, 12 * time.Millisecond, 17 * time.Millisecond} {
		for _, stays := range []bool{true, false} {
			t.Run(fmt.Sprint(after, " keeper stays ", stays), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					keeper := mustRead(t, w.client(lock.Config{}))
					ctx, cancel := context.WithCancel(t.Context())
					writer := lockOf(toWrite).waits(t, ctx, w.client(lock.Config{}))
					var readers []<-chan *lock.Lease
					for range 3 {
						c := w.client(lock.Config{})
						c.OnlyWoken()
						w.sleep(time.Millisecond)
						readers = append(readers, lockOf(toRead).waits(t, t.Context(), c))
					}
					w.srv.Latency(5 * time.Millisecond)
					var wg sync.WaitGroup
					if !stays {
						wg.Go(func() { mustUnlock(t, keeper) })
					}
					w.sleep(after) // the release is on its way, then the call, then the acquire
					cancel()
					begin := time.Now()
					if lease := <-writer; lease != nil {
						mustUnlock(t, lease)
					}
					for _, got := range readers {
						mustUnlock(t, <-got)
					}
					if took := time.Since(begin); took > 200*time.Millisecond {
						t.Errorf("the readers have the lock after %v", took)
					}
					wg.Wait()
					w.srv.Latency(0)
					if stays {
						mustUnlock(t, keeper)
					}
					w.sleep(latchLife)
					w.free()
				})
			})
		}
	}
}

// A downgrade lets in the readers in front of the next writer.
func TestDowngradeCallsTheLine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		write := mustWrite(t, c)
		var front, back []<-chan *lock.Lease
		for range 3 {
			front = append(front, lockOf(toRead).waits(t, t.Context(), w.client(lock.Config{})))
			w.sleep(time.Millisecond)
		}
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		back = append(back, lockOf(toRead).waits(t, t.Context(), w.client(lock.Config{})))
		read, err := write.Downgrade(t.Context())
		wantOK(t, "Downgrade", err)
		synctest.Wait()
		for _, got := range front {
			mustUnlock(t, <-got)
		}
		if len(writer) != 0 || len(back[0]) != 0 {
			t.Errorf("beside a reader %d write and %d came in behind a writer", len(writer), len(back[0]))
		}
		mustUnlock(t, read)
		mustUnlock(t, <-writer)
		mustUnlock(t, <-back[0])
		w.sleep(time.Second)
		w.free()
	})
}

// A writer that goes first passes the readers in front of it, and stands behind other such writers.
func TestPreferringWriterPassesReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease := mustWrite(t, w.client(preferring))
		var got []<-chan *lock.Lease
		for i, of := range []lockOf{toRead, toWrite, toRead, toWrite} {
			cfg := lock.Config{}
			if i != 2 {
				cfg = preferring
			}
			got = append(got, of.waits(t, t.Context(), w.client(cfg)))
			w.sleep(time.Millisecond)
		}
		mustUnlock(t, lease)
		for _, next := range []int{1, 3, 0, 2} {
			synctest.Wait()
			for _, behind := range []int{1, 3, 0, 2}[slices.Index([]int{1, 3, 0, 2}, next)+1:] {
				if next != 0 && len(got[behind]) != 0 {
					t.Errorf("%d has the lock before %d", behind, next)
				}
			}
			mustUnlock(t, <-got[next])
		}
		w.sleep(time.Second)
		w.free()
	})
}

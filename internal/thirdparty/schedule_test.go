package thirdparty

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/locktest"
)

// gocronLocker is a Locker for gocron.WithDistributedLocker. A *lock.Lease is a gocron.Lock.
type gocronLocker struct {
	locks   *lock.Client
	atLeast time.Duration // longer than the clocks of the processes differ, and shorter than the pause between two firings
}

func (l gocronLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locks.Reentrant(key).TryLock(ctx, lock.AtLeast(l.atLeast))
	if err != nil {
		return nil, err // not a nil *lock.Lease
	}
	return lease, nil
}

// onceEach is a wrapper for jobs of robfig/cron.
func onceEach(ctx context.Context, locks *lock.Client, name string, atLeast time.Duration) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			lease, err := locks.Reentrant(name).TryLock(ctx, lock.AtLeast(atLeast))
			if err != nil {
				return // ErrNotAcquired: another process runs the job. Log any other error.
			}
			defer func() { _ = lease.Unlock(ctx) }()
			job.Run()
		})
	}
}

// runs is when a job has run, in any process.
type runs struct {
	mu    sync.Mutex
	times []time.Time
}

// job takes less time than the clocks of the processes differ.
func (r *runs) job() {
	r.mu.Lock()
	r.times = append(r.times, time.Now().Truncate(time.Minute))
	r.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
}

// skewed is the Locker of a process whose clock is late.
type skewed struct {
	gocron.Locker
	by time.Duration
}

func (s skewed) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	time.Sleep(s.by)
	return s.Locker.Lock(ctx, key)
}

// want fails the test unless the job has run once a minute, so many times.
func (r *runs) want(t *testing.T, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if once := slices.Compact(slices.Clone(r.times)); len(r.times) != n || len(once) != n {
		t.Errorf("the job ran at %v, want %d minutes, once each", r.times, n)
	}
}

func TestGocron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		var ran runs
		for i := range 3 { // processes
			locker := skewed{gocronLocker{srv.Client(lock.Config{}), 30 * time.Second}, time.Duration(i) * time.Second}
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithLocation(time.UTC))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(ran.job), gocron.WithName("report")); err != nil {
				t.Fatal(err)
			}
			s.Start()
			t.Cleanup(func() { _ = s.Shutdown() })
		}
		time.Sleep(10*time.Minute + 45*time.Second)
		ran.want(t, 10)
	})
}

func TestCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		var ran runs
		for i := range 3 { // processes, whose clocks differ
			c := cron.New(cron.WithLocation(time.UTC))
			job := onceEach(t.Context(), srv.Client(lock.Config{}), "report", 30*time.Second)(cron.FuncJob(ran.job))
			if _, err := c.AddFunc("* * * * *", func() { time.Sleep(time.Duration(i) * time.Second); job.Run() }); err != nil {
				t.Fatal(err)
			}
			c.Start()
			t.Cleanup(func() { <-c.Stop().Done() })
		}
		time.Sleep(10*time.Minute + 45*time.Second)
		ran.want(t, 10)
	})
}

package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// The requests of Multi and Redlock to many servers at once.

// nodeTimeoutMin and nodeTimeoutMax bound the wait for a server among others.
const nodeTimeoutMin, nodeTimeoutMax = 20 * time.Millisecond, 250 * time.Millisecond

// sameServer reports whether two locks are certainly on the same server.
func (h *Handle) sameServer(other *Handle) bool {
	a, b := h.client, other.client
	return a == b || a.nature.same(&b.nature) || a.nature.place() != "" && a.nature.place() == b.nature.place()
}

// forceAll is ForceUnlock of many locks.
func forceAll(ctx context.Context, handles []*Handle) (bool, error) {
	forced := make([]bool, len(handles))
	err := atOnce(handles, func(i int, h *Handle) (err error) {
		forced[i], err = h.ForceUnlock(ctx)
		return err
	})
	return slices.Contains(forced, true), err
}

// infoAll is Info of many locks.
func infoAll(ctx context.Context, handles []*Handle) ([]Info, error) {
	infos := make([]Info, len(handles))
	err := atOnce(handles, func(i int, h *Handle) (err error) {
		infos[i], err = h.Info(ctx)
		return err
	})
	return infos, err
}

// atOnce calls fn for all handles concurrently and joins the errors.
func atOnce(handles []*Handle, fn func(i int, h *Handle) error) error {
	errs := make([]error, len(handles))
	var wg sync.WaitGroup
	for i, h := range handles {
		wg.Go(func() { errs[i] = fn(i, h) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

//go:build !linux

package system

import "time"

func exactSleep() {}

func sleep(d time.Duration) { time.Sleep(d) }

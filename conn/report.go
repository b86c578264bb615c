package conn

import (
	"errors"

	"github.com/lockwire/lockwire/conn/internal/sentinel"
)

// errRetired is the reason for closing a connection that the Pool no longer needs.
var errRetired = errors.New("conn: connection retired by its pool")

// onPurpose reports whether this program closed a link that failed with err.
func onPurpose(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, errRetired) || errors.Is(err, sentinel.ErrSwitched)
}

// report calls the callbacks for a failed link.
func report(cfg *Config, info LostInfo) {
	if cfg.Trace != nil && cfg.Trace.Lost != nil {
		cfg.Trace.Lost(info)
	}
	warn(cfg, "connection lost", "error", info.Err, "unanswered", info.InFlight)
}

// warn logs a change of state.
func warn(cfg *Config, text string, args ...any) {
	if cfg.Logger != nil {
		cfg.Logger.Warn("conn: "+text, append([]any{"addr", cfg.Addr}, args...)...)
	}
}

package lock

import "fmt"

func (c *Client) Debug() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("entries %d jobs %d latches %d schedule %d watched %d", len(c.entries), len(c.cleanup.jobs), len(c.cleanup.latches), len(c.watchdog.schedule), len(c.watchdog.watched))
}

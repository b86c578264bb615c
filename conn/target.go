package conn

import (
	"slices"
	"strconv"
	"strings"
)

// DB is the number of the database that the Pool uses.
func (p *Pool) DB() int { return p.cfg.DB }

// Target names what the Pool is connected to, with the network, address and number of the database: Pools with the same
// Target use the same data. With Config.Sentinel the master's name and the addresses of its sentinels take the place of the
// address. It is "" where a Dial of Config decides that.
func (p *Pool) Target() string {
	if p.cfg.Dial != nil {
		return ""
	}
	addr := p.cfg.Addr
	if s := &p.cfg.Sentinel; s.used() {
		addr = s.Master + "@" + strings.Join(slices.Sorted(slices.Values(s.Addrs)), ",")
	}
	return p.cfg.Network + " " + addr + "/" + strconv.Itoa(p.cfg.DB)
}

package conn

import (
	"slices"
	"strconv"
	"strings"
)

// DB returns the database number of the Pool.
func (p *Pool) DB() int { return p.cfg.DB }

// Target identifies the Pool's data by network, address and database number: Pools with the same Target use the same
// data. With Config.Sentinel, the master's name and the sentinels' addresses replace the address. Target returns ""
// if Config.Dial is set, since the function alone decides where connections lead.
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

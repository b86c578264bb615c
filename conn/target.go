package conn

import "strconv"

// Target names what the Pool is connected to, with the network, address and number of the database: Pools with the same
// Target use the same data. It is "" where a Dial of Config decides that.
func (p *Pool) Target() string {
	if p.cfg.Dial != nil {
		return ""
	}
	return p.cfg.Network + " " + p.cfg.Addr + "/" + strconv.Itoa(p.cfg.DB)
}

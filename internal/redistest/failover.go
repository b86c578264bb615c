package redistest

// Failover is a way to lose a master under sentinels.
type Failover struct {
	Name  string
	Begin func(s *Sentinels, master *Server)
	End   func(s *Sentinels, master *Server) // reverts Begin
}

// Failovers are the ways used by tests.
var Failovers = []Failover{
	{
		"SENTINEL FAILOVER",
		func(s *Sentinels, _ *Server) { s.Failover() },
		func(*Sentinels, *Server) {},
	},
	{
		"SIGSTOP",
		func(_ *Sentinels, master *Server) { master.Pause() },
		func(_ *Sentinels, master *Server) { master.Continue() },
	},
	{
		"SIGKILL",
		func(_ *Sentinels, master *Server) { master.Kill() },
		func(_ *Sentinels, master *Server) { master.Restart() },
	},
	{
		"SIGKILL and a sentinel down",
		func(s *Sentinels, master *Server) {
			s.Sentinels()[0].Pause()
			master.Kill()
		},
		func(s *Sentinels, master *Server) {
			s.Sentinels()[0].Continue()
			master.Restart()
		},
	},
}

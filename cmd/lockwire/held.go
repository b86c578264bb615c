package main

import (
	"context"
	"strings"

	"github.com/lockwire/lockwire"
)

func heldCommand() *command {
	return &command{
		name:  "held",
		args:  "[TEXT] [flags]",
		short: "show which process holds which locks",
		long: `
Shows the held locks with the process behind each owner: its name, which is the name of the pod or of the host with the
process id unless the program sets another, and its address. With TEXT it shows only those whose name, address or owner
contains TEXT. Like lockwire list, it scans all keys of the server.`,
		examples: []example{
			{"all processes", `lockwire held`, 0},
			{"those of this host", `lockwire held "$(hostname)"`, 0},
		},
		most: 1,
		run:  connected(held),
	}
}

// heldLock is a lock of a process.
type heldLock struct {
	Process   string `json:"process"`
	Addr      string `json:"addr"`
	Connected bool   `json:"connected"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Owner     string `json:"owner"`
	Remaining int64  `json:"remaining_ms"`
}

func held(ctx context.Context, in *invocation, client *lockwire.Client) error {
	wanted := in.first("")
	states, err := listed(ctx, client, "*")
	if err != nil {
		return err
	}
	var rows [][]string
	for _, s := range states {
		seen, err := client.Inspect(ctx, s.Name)
		if err != nil {
			return because(ctx, err)
		}
		for _, h := range heldBy(inspectedState(seen)) {
			switch {
			case !strings.Contains(h.Process+"\n"+h.Addr+"\n"+h.Owner, wanted):
			case in.json():
				printJSON(in.out, h)
			default:
				rows = append(rows, []string{orDash(h.Process), orDash(h.Addr), h.Name, h.Kind, h.Owner, remaining(h.Remaining)})
			}
		}
	}
	if !in.json() {
		printTable(in.out, "PROCESS ADDRESS NAME KIND OWNER LEFT", rows)
	}
	return nil
}

// heldBy returns the holds of a lock with their processes.
func heldBy(s lockState) (all []heldLock) {
	for _, h := range s.Holders {
		one := heldLock{Name: s.Name, Kind: s.Kind, Owner: h.Owner, Remaining: h.Remaining}
		for _, p := range s.Processes {
			if strings.HasPrefix(h.Owner, p.ID+":") {
				one.Process, one.Addr, one.Connected = p.Name, p.Addr, p.Connected
			}
		}
		all = append(all, one)
	}
	return all
}

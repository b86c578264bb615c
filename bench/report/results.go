package report

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Results are all cases that were ever measured into one file, each as it was measured last.
type Results struct {
	Machine  string            // processor, CPUs, system
	Versions map[string]string // of servers, modules and Go
	Cases    []Case
}

// Case is what was measured of one case.
type Case struct {
	Group, Name, Title string

	Place   string
	When    time.Time
	Rounds  int
	Load    float64 // load average of the machine when the case began
	Foreign float64 // CPUs that processes kept busy meanwhile which are no part of the measurement, on average
	Metrics []Metric
	Rows    []Row
}

// Metric is a column. The first one of a case decides who is better.
type Metric struct {
	Name  string
	Lower bool // is better
}

// Row is one contender.
type Row struct {
	Name    string
	Kind    string // ours, variant, peer or floor
	Numbers map[string]Spread
	Errors  []string `json:",omitempty"` // of rounds that failed
}

// Spread is the median of the rounds, the least and the most.
type Spread struct{ Median, Min, Max float64 }

// Collect makes a Spread for each name in the rounds of one contender.
func Collect(rounds []map[string]float64) map[string]Spread {
	values := map[string][]float64{}
	for _, round := range rounds {
		for name, value := range round {
			values[name] = append(values[name], value)
		}
	}
	spreads := map[string]Spread{}
	for name, list := range values {
		slices.Sort(list)
		middle := list[len(list)/2]
		if len(list)%2 == 0 {
			middle = (middle + list[len(list)/2-1]) / 2
		}
		spreads[name] = Spread{Median: middle, Min: list[0], Max: list[len(list)-1]}
	}
	return spreads
}

// Load reads a file that Save wrote. Without one there are no results.
func Load(path string) (Results, error) {
	var r Results
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// Save writes the file.
func (r *Results) Save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Put adds a case, or replaces what there was of it.
func (r *Results) Put(c Case) {
	if old := r.Case(c.Name); old != nil {
		*old = c
		return
	}
	r.Cases = append(r.Cases, c)
}

// Sort puts the cases in the order of these names, and drops those that have none.
func (r *Results) Sort(names []string) {
	var sorted []Case
	for _, name := range names {
		if c := r.Case(name); c != nil {
			sorted = append(sorted, *c)
		}
	}
	r.Cases = sorted
}

// Case returns the case of this name, or nil.
func (r *Results) Case(name string) *Case {
	for i := range r.Cases {
		if r.Cases[i].Name == name {
			return &r.Cases[i]
		}
	}
	return nil
}

// Row returns the contender of this name, or nil.
func (c *Case) Row(name string) *Row {
	for i := range c.Rows {
		if c.Rows[i].Name == name {
			return &c.Rows[i]
		}
	}
	return nil
}

// Best returns the one of a kind that is best by a metric, and its median; nil if there is none.
func (c *Case) Best(kind, metric string) (*Row, float64) {
	var best *Row
	var value float64
	for i := range c.Rows {
		row := &c.Rows[i]
		s, ok := row.Numbers[metric]
		if row.Kind != kind || !ok {
			continue
		}
		if best == nil || c.lower(metric) == (s.Median < value) && s.Median != value {
			best, value = row, s.Median
		}
	}
	return best, value
}

func (c *Case) lower(metric string) bool {
	i := slices.IndexFunc(c.Metrics, func(m Metric) bool { return m.Name == metric })
	return i >= 0 && c.Metrics[i].Lower
}

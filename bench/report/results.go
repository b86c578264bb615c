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

// Results are all cases ever measured into a file, each with its last measurement.
type Results struct {
	Machine  string            // processor, CPUs, system
	Versions map[string]string // of servers, modules and Go
	Cases    []Case
}

// Case is the result of a case.
type Case struct {
	Group, Name, Title string

	Place   string
	When    time.Time
	Rounds  int
	Load    float64 // load average of the machine when the case began
	Foreign float64 // CPUs kept busy meanwhile by processes outside of the measurement, on average
	Metrics []Metric
	Rows    []Row
}

// Metric is a column. The first metric of a case decides the comparison.
type Metric struct {
	Name  string
	Lower bool // is better
}

// Row is a contender.
type Row struct {
	Name    string
	Kind    string // ours, variant, peer or floor
	Numbers map[string]Spread
	Errors  []string `json:",omitempty"` // of failed rounds
}

// Spread is the median of the rounds, the least and the most.
type Spread struct{ Median, Min, Max float64 }

// Collect makes a Spread for each name in the rounds of a contender.
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

// Load reads a file written by Save. Without a file the results are empty.
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

// Put adds a case, or replaces its former results.
func (r *Results) Put(c Case) {
	if old := r.Case(c.Name); old != nil {
		*old = c
		return
	}
	r.Cases = append(r.Cases, c)
}

// Sort puts the cases in the order of names, and drops unnamed cases.
func (r *Results) Sort(names []string) {
	var sorted []Case
	for _, name := range names {
		if c := r.Case(name); c != nil {
			sorted = append(sorted, *c)
		}
	}
	r.Cases = sorted
}

// Case returns the case with a name, or nil.
func (r *Results) Case(name string) *Case {
	for i := range r.Cases {
		if r.Cases[i].Name == name {
			return &r.Cases[i]
		}
	}
	return nil
}

// Row returns the contender with a name, or nil.
func (c *Case) Row(name string) *Row {
	for i := range c.Rows {
		if c.Rows[i].Name == name {
			return &c.Rows[i]
		}
	}
	return nil
}

// Best returns the best contender of a kind by a metric, and its median; nil for none.
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

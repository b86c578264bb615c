package dashboard

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// history is time series by their names and labels. It is a storage for queries.
type history map[string]*series

// series is a storage.Series.
type series struct {
	labels labels.Labels
	points []chunks.Sample
}

func (s *series) Labels() labels.Labels { return s.labels }

func (s *series) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	return storage.NewListSeries(s.labels, s.points).Iterator(it)
}

func (h history) add(name labels.Labels, at time.Time, value float64) {
	s := h[name.String()]
	if s == nil {
		s = &series{labels: name}
		h[name.String()] = s
	}
	s.points = append(s.points, point{at.UnixMilli(), value})
}

// Querier returns the whole history for any range: the engine picks the samples of the range.
func (h history) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{}
		for _, name := range slices.Sorted(maps.Keys(h)) {
			if matches(h[name].labels, matchers) {
				found.all = append(found.all, h[name])
			}
		}
		return found
	}}, nil
}

func matches(name labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(name.Get(m.Name)) {
			return false
		}
	}
	return true
}

// seriesSet is a storage.SeriesSet. at counts from 1.
type seriesSet struct {
	all []*series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at <= len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// point is a chunks.Sample.
type point struct {
	at    int64
	value float64
}

func (p point) T() int64                      { return p.at }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.value }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// span returns the times of the first and of the last scrape.
func (h history) span() (first, last time.Time) {
	for _, s := range h {
		begin, end := time.UnixMilli(s.points[0].T()), time.UnixMilli(s.points[len(s.points)-1].T())
		if first.IsZero() || begin.Before(first) {
			first = begin
		}
		if end.After(last) {
			last = end
		}
	}
	return first, last
}

// firing is an alert that has begun to fire, so long after the first scrape.
type firing struct {
	alert  string
	labels string
	after  time.Duration
}

// fire evaluates the rules of alerts.yml at each interval, and returns the alerts that fire, in the order of the rules.
func fire(t *testing.T, h history, interval time.Duration) (all []firing) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(folder+"alerts.yml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	defer engine.Close()
	begin, end := h.span()
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			query, err := engine.NewRangeQuery(context.Background(), h, nil, rule.Expr, begin, end, interval)
			if err != nil {
				t.Fatal(err)
			}
			result := query.Exec(context.Background())
			matrix, err := result.Matrix()
			if err != nil || len(result.Warnings) > 0 {
				t.Fatalf("%s: %v, %v", rule.Alert, err, result.Warnings)
			}
			for _, element := range matrix {
				for _, at := range begins(element.Floats, interval, time.Duration(rule.For)) {
					all = append(all, firing{rule.Alert, strings.ReplaceAll(element.Metric.String(), `"`, ""), at.Sub(begin)})
				}
			}
			query.Close()
		}
	}
	return all
}

// begins returns the times at which an element has been there for so long, at each evaluation since.
func begins(there []promql.FPoint, interval, long time.Duration) (all []time.Time) {
	var since, last time.Time
	for _, p := range there {
		at := time.UnixMilli(p.T)
		if last.IsZero() || at.Sub(last) > interval {
			since = at
		}
		if last = at; at.Sub(since) >= long && at.Sub(since)-interval < long {
			all = append(all, at)
		}
	}
	return all
}

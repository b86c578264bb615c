// Package dashboard checks the dashboard and the alert rules of contrib/prometheus with Prometheus' own parsers.
package dashboard

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	lockprom "github.com/lockwire/lockwire/contrib/prometheus"
)

const folder = "../../../contrib/prometheus/"

// known returns the labels of each metric of lockprom, with those that Prometheus adds.
func known(t *testing.T) map[string][]string {
	t.Helper()
	form := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	descriptions, metrics := make(chan *prometheus.Desc), map[string][]string{}
	go func() {
		defer close(descriptions)
		lockprom.New(lockprom.Config{}).Describe(descriptions)
	}()
	for d := range descriptions {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("description %v", d)
		}
		metrics[m[1]] = append(strings.Split(m[2], ","), "job", "instance", "le")
	}
	if len(metrics) < 10 {
		t.Fatalf("only %d metrics", len(metrics))
	}
	return metrics
}

// check parses an expression and compares its metrics and labels with those that there are. It notes the metrics in used.
func check(t *testing.T, metrics map[string][]string, expr string, used map[string]bool) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return
	}
	var labels, all []string
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			base := n.Name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				base = strings.TrimSuffix(base, suffix)
			}
			has, ok := metrics[base]
			if !ok {
				t.Errorf("%s: no metric %s", expr, n.Name)
			}
			used[base] = true
			all = append(all, has...)
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(has, m.Name) {
					t.Errorf("%s: %s has no label %s", expr, base, m.Name)
				}
			}
		case *parser.AggregateExpr:
			labels = append(labels, n.Grouping...)
		}
		return nil
	})
	for _, label := range labels {
		if !slices.Contains(all, label) {
			t.Errorf("%s: no label %s", expr, label)
		}
	}
}

func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile(folder+"alerts.yml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	metrics, used := known(t), map[string]bool{}
	var names []string
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			check(t, metrics, rule.Expr, used)
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
				t.Errorf("%s has no severity or no summary", rule.Alert)
			}
		}
	}
	for _, name := range []string{"LockwireLockLost", "LockwireRenewalsLate", "LockwireWaitsWithoutProgress", "LockwireReleasesPending"} {
		if !slices.Contains(names, name) {
			t.Errorf("no alert %s", name)
		}
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(folder + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	metrics, used, ids := known(t), map[string]bool{}, map[int]bool{}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "x", "$instance", "x")
	for _, panel := range board.Panels {
		if ids[panel.ID] || panel.Title == "" || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("panel %+v", panel)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %s shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			check(t, metrics, variables.Replace(target.Expr), used)
		}
	}
	for name := range metrics {
		if !used[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// Command evaluate evaluates PromQL queries over scraped metrics, with Prometheus' own engine.
//
// It reads one JSON document from stdin: `queries`, and `scrapes` in order of time. Each scrape has `at` (seconds since
// the epoch), `labels` (added by the scraper) and `text` (of /metrics). Queries are evaluated at the time of the last
// scrape. For each it prints one JSON line: the error or the number of values, and the series that each selector matches.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

type scrape struct {
	At     float64           `json:"at"`
	Labels map[string]string `json:"labels"`
	Text   string            `json:"text"`
}

type request struct {
	Scrapes []scrape `json:"scrapes"`
	Queries []string `json:"queries"`
}

// selected is a selector of a query: its metric, its labels, and the number of matching series.
type selected struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
	Series int      `json:"series"`
}

type answer struct {
	Query     string     `json:"query"`
	Error     string     `json:"error,omitempty"`
	Values    int        `json:"values"`
	Selectors []selected `json:"selectors"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var request request
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return err
	}
	if len(request.Scrapes) == 0 {
		return errors.New("there is no scrape")
	}
	dir, err := os.MkdirTemp("", "evaluate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer db.Close()
	for number, scrape := range request.Scrapes {
		if err := ingest(db, scrape); err != nil {
			return fmt.Errorf("scrape %d: %w", number, err)
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	at := moment(request.Scrapes[len(request.Scrapes)-1].At)
	lines := json.NewEncoder(out)
	for _, query := range request.Queries {
		if err := lines.Encode(evaluate(engine, db, query, at)); err != nil {
			return err
		}
	}
	return nil
}

func moment(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)) }

// ingest appends every value of a scrape, like a scraper with honor_labels: false.
func ingest(db *tsdb.DB, scrape scrape) error {
	appender := db.Appender(context.Background())
	text := textparse.NewPromParser([]byte(scrape.Text), labels.NewSymbolTable(), false)
	for {
		entry, err := text.Next()
		if errors.Is(err, io.EOF) {
			return appender.Commit()
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := text.Series()
		var own labels.Labels
		text.Labels(&own)
		builder := labels.NewBuilder(own)
		for name, value := range scrape.Labels {
			builder.Set(name, value)
		}
		if _, err := appender.Append(0, builder.Labels(), moment(scrape.At).UnixMilli(), value); err != nil {
			return fmt.Errorf("%s: %w", own, err)
		}
	}
}

func evaluate(engine *promql.Engine, db *tsdb.DB, query string, at time.Time) answer {
	answer := answer{Query: query, Selectors: []selected{}}
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	answer.Values, err = count(engine, db, query, at)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		one := selected{Metric: selector.Name, Labels: []string{}}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName {
				one.Labels = append(one.Labels, matcher.Name)
			}
		}
		found, err := count(engine, db, selector.String(), at)
		if err != nil {
			answer.Error = err.Error()
		}
		one.Series = found
		answer.Selectors = append(answer.Selectors, one)
		return nil
	})
	return answer
}

// count returns the number of values of a query at a time.
func count(engine *promql.Engine, db *tsdb.DB, text string, at time.Time) (int, error) {
	query, err := engine.NewInstantQuery(context.Background(), db, promql.NewPrometheusQueryOpts(false, 0), text, at)
	if err != nil {
		return 0, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return 0, result.Err
	}
	switch values := result.Value.(type) {
	case promql.Vector:
		return len(values), nil
	case promql.Matrix:
		return len(values), nil
	default:
		return 1, nil
	}
}

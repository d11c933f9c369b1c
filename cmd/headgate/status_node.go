package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/headgate/headgate/internal/server/wording"
)

const (
	// nodeTimeout bounds each request to a server.
	nodeTimeout = 3 * time.Second
	// maxMetrics bounds the size of /metrics: 10,000 series by rule.
	maxMetrics = 16 << 20
	// minDecisions is how many decisions a p99 needs.
	minDecisions = 100
)

// The values of rules_source, or unknown.
const (
	rulesInFiles    = "files"
	rulesInPostgres = "PostgreSQL"
)

// unknown is a value that a server did not report.
const unknown = "unknown"

// nodeStatus is the state of one server. Pointers are nil if a value is unknown.
type nodeStatus struct {
	Address string `json:"address"`
	// Status is that of /readyz, unreachable, or unknown if what answers is not a Headgate server.
	Status   string   `json:"status"`
	Problems []string `json:"problems"`
	Version  string   `json:"version"`
	Uptime   *float64 `json:"uptime_seconds"`
	Rules    string   `json:"rules_version"`
	// RulesSource is files, PostgreSQL or unknown.
	RulesSource string     `json:"rules_source"`
	RulesSince  *time.Time `json:"rules_since"`
	// Redis is connecting, ok, unavailable, memory or unknown.
	Redis             string `json:"redis"`
	ShardsUnavailable int    `json:"shards_unavailable"`
	// NodesSeen is the number of servers that share the Redis, as this one knows it; 0 if unknown.
	NodesSeen          int      `json:"nodes_seen"`
	DecisionsPerSecond *float64 `json:"decisions_per_second"`
	// Denied and Local are shares of the decisions, from 0 to 1. Local is the share that was decided without Redis.
	Denied *float64 `json:"denied_share"`
	Local  *float64 `json:"local_share"`
	P99    *float64 `json:"p99_seconds"`
	// P99SinceStart is whether P99 covers all decisions since the server's start instead of the window.
	P99SinceStart bool `json:"p99_since_start"`
}

// nodeHealth is the part of /readyz that is shown.
type nodeHealth struct {
	Status string `json:"status"`
	Rules  struct {
		Version string    `json:"version"`
		Since   time.Time `json:"since"`
		Problem string    `json:"problem"`
	} `json:"rules"`
	Redis *struct {
		Status            string    `json:"status"`
		Since             time.Time `json:"since"`
		Problem           string    `json:"problem"`
		ShardsUnavailable int       `json:"shards_unavailable"`
		CountersPending   int       `json:"counters_pending"`
	} `json:"redis"`
	Callers *struct {
		Rejected int64     `json:"rejected"`
		Last     time.Time `json:"last"`
		Peer     string    `json:"peer"`
		Reason   string    `json:"reason"`
	} `json:"callers"`
}

// probeNode asks one server for its health, and twice for its metrics.
func probeNode(ctx context.Context, address string, window time.Duration) nodeStatus {
	n := nodeStatus{Address: strings.TrimPrefix(address, "http://"), Status: statusUnreachable, Problems: []string{}}
	base := strings.TrimSuffix(withScheme(address, "http://"), "/")
	code, body, err := fetchOps(ctx, base+"/readyz")
	if err != nil {
		n.Problems = append(n.Problems, err.Error())
		return n
	}
	var h nodeHealth
	if json.Unmarshal(body, &h) != nil || !slices.Contains(nodeStatuses, h.Status) {
		return n.foreign(base + "/readyz")
	}
	before, err := scrape(ctx, base)
	if err == nil && before["headgate_build_info"] == nil {
		return n.foreign(base + "/metrics")
	}
	n.apply(&h)
	if code != http.StatusOK && n.Status == statusOK {
		n.Status = statusDegraded
		n.Problems = append(n.Problems, fmt.Sprintf("%s/readyz says ok, with HTTP status %d: load balancers take it for not ready", base, code))
	}
	if err == nil {
		n.describe(before)
		if h.Redis == nil {
			n.Redis = "memory"
		}
		select {
		case <-ctx.Done():
		case <-time.After(window):
		}
		var after metrics
		if after, err = scrape(ctx, base); err == nil {
			n.measure(before, after)
		}
	}
	if err != nil {
		n.Problems = append(n.Problems, "metrics are not available: "+err.Error())
		if n.Status == statusOK {
			n.Status = statusDegraded
		}
	}
	return n
}

// nodeStatuses are the statuses of /readyz.
var nodeStatuses = []string{statusOK, statusDegraded, "not_ready", "draining"}

// foreign returns the state of a server that is not a Headgate, as a page shows.
func (n nodeStatus) foreign(page string) nodeStatus {
	n.Status = unknown
	n.Problems = append(n.Problems, page+" is not that of a Headgate server: name its listen.ops")
	return n
}

// fetchOps reads a page. /readyz has a body also if it is 503.
func fetchOps(ctx context.Context, url string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return 0, nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxMetrics))
	return response.StatusCode, body, err
}

func (n *nodeStatus) apply(h *nodeHealth) {
	n.Status, n.Rules, n.RulesSource, n.Redis = h.Status, h.Rules.Version, unknown, unknown
	if !h.Rules.Since.IsZero() {
		n.RulesSince = &h.Rules.Since
	}
	if h.Rules.Problem != "" {
		n.Problems = append(n.Problems, "rules: "+h.Rules.Problem)
	}
	if r := h.Redis; r != nil {
		n.Redis, n.ShardsUnavailable = cmp.Or(r.Status, unknown), r.ShardsUnavailable
		if r.Problem != "" {
			n.Problems = append(n.Problems, fmt.Sprintf("Redis is %s since %s: %s", r.Status, formatTime(r.Since), r.Problem))
		}
		if r.ShardsUnavailable > 0 {
			n.Problems = append(n.Problems, wording.Count(r.ShardsUnavailable, "shard")+" of Redis unavailable: their circuits are open, and subjects are decided without Redis")
		}
		if r.CountersPending > 0 {
			n.Problems = append(n.Problems, wording.Count(r.CountersPending, "counter")+" with local admissions not yet charged to Redis")
		}
	}
	if c := h.Callers; c != nil && h.Status != statusOK { // a long time ago, it is no longer a reason
		n.Problems = append(n.Problems, fmt.Sprintf("callers rejected: %d, the last at %s: %s, %s", c.Rejected, formatTime(c.Last), c.Peer, c.Reason))
	}
}

// describe reads what does not change within the window.
func (n *nodeStatus) describe(m metrics) {
	for _, metric := range m["headgate_build_info"].GetMetric() {
		n.Version = label(metric, "version")
	}
	if start, ok := m.value("process_start_time_seconds"); ok {
		uptime := max(0, float64(time.Now().UnixMilli())/1000-start)
		n.Uptime = &uptime
	}
	n.RulesSource = rulesInFiles
	if _, ok := m.value("headgate_rules_last_check_timestamp_seconds"); ok {
		n.RulesSource = rulesInPostgres
	}
	if nodes, ok := m.value("headgate_nodes"); ok {
		n.NodesSeen = int(nodes)
	}
}

// measure derives rates from two readings.
func (n *nodeStatus) measure(before, after metrics) {
	seconds := after.at().Sub(before.at()).Seconds()
	first, last := before.decisions(), after.decisions()
	total := last.total - first.total
	if seconds > 0 {
		rate := total / seconds
		n.DecisionsPerSecond = &rate
	}
	if total > 0 {
		denied, local := (last.denied-first.denied)/total, (last.local-first.local)/total
		n.Denied, n.Local = &denied, &local
	}
	const latency = "headgate_check_duration_seconds"
	if old, now := before.histogram(latency), after.histogram(latency); now != nil {
		if now.GetSampleCount()-old.GetSampleCount() < minDecisions {
			n.P99SinceStart, old = now.GetSampleCount() > 0, nil
		}
		n.P99 = quantile(old, now, 0.99)
	}
}

// isHeadgate reports whether a Headgate server answered.
func (n *nodeStatus) isHeadgate() bool { return n.Status != statusUnreachable && n.Status != unknown }

// row returns the row of the table.
func (n *nodeStatus) row() []string {
	if !n.isHeadgate() {
		return []string{n.Address, n.Status}
	}
	const none = "–"
	percent := func(share *float64) string {
		if share == nil {
			return none
		}
		return strconv.FormatFloat(*share*100, 'f', 1, 64) + " %"
	}
	uptime, rate, p99, redis := none, none, none, n.Redis
	if n.Uptime != nil {
		uptime = (time.Duration(*n.Uptime) * time.Second).String()
	}
	if n.DecisionsPerSecond != nil {
		rate = strconv.FormatFloat(*n.DecisionsPerSecond, 'f', 1, 64)
	}
	if n.P99 != nil {
		p99 = strconv.FormatFloat(*n.P99*1000, 'g', 3, 64) + " ms"
		if n.P99SinceStart {
			p99 += "*"
		}
	}
	if n.ShardsUnavailable > 0 {
		redis = wording.Count(n.ShardsUnavailable, "circuit") + " open"
	}
	return []string{
		n.Address, n.Status, printable(cmp.Or(n.Version, none)), uptime, printable(cmp.Or(n.Rules, unknown)) + ", " + n.RulesSource, printable(redis), rate, percent(n.Denied), percent(n.Local), p99,
	}
}

// metrics are the families of /metrics by name. The family "" has the time of the reading.
type metrics map[string]*dto.MetricFamily

func scrape(ctx context.Context, base string) (metrics, error) {
	code, body, err := fetchOps(ctx, base+"/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s/metrics: HTTP status %d", base, code)
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	now := float64(time.Now().UnixMicro())
	m[""] = &dto.MetricFamily{Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &now}}}}
	return m, nil
}

func (m metrics) at() time.Time {
	return time.UnixMicro(int64(m[""].GetMetric()[0].GetGauge().GetValue()))
}

// value returns a metric without labels.
func (m metrics) value(name string) (float64, bool) {
	list := m[name].GetMetric()
	if len(list) == 0 {
		return 0, false
	}
	return list[0].GetGauge().GetValue() + list[0].GetCounter().GetValue() + list[0].GetUntyped().GetValue(), true
}

func (m metrics) histogram(name string) *dto.Histogram {
	list := m[name].GetMetric()
	if len(list) == 0 {
		return nil
	}
	return list[0].GetHistogram()
}

// decisionCounts are numbers of decisions since a server's start.
type decisionCounts struct{ total, denied, local float64 }

func (m metrics) decisions() (c decisionCounts) {
	for _, metric := range m["headgate_decisions_total"].GetMetric() {
		n := metric.GetCounter().GetValue()
		c.total += n
		if label(metric, "result") == "denied" {
			c.denied += n
		}
		if path := label(metric, "path"); path == "local" || path == "failed" {
			c.local += n
		}
	}
	return c
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// quantile returns the upper bound of the bucket that contains the quantile of what now has more than old, or nil if there is none.
func quantile(old, now *dto.Histogram, q float64) *float64 {
	before := map[float64]uint64{}
	for _, b := range old.GetBucket() {
		before[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	total := now.GetSampleCount() - old.GetSampleCount()
	if total == 0 {
		return nil
	}
	rank := uint64(math.Ceil(q * float64(total)))
	for _, b := range now.GetBucket() {
		bound := b.GetUpperBound()
		if b.GetCumulativeCount()-before[bound] >= rank && !math.IsInf(bound, 0) {
			return &bound
		}
	}
	return nil
}

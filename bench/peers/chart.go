package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/bench/internal/chart"
	"github.com/headgate/headgate/bench/internal/paired"
)

// chart has variants drawn. What the client uses counts too if it is the limiter.
func (s *suite) chart(title string, got samples, variants []paired.Variant, clientToo bool) {
	speed, cost := chart.Group{Title: title}, chart.Group{Title: title}
	for _, v := range variants {
		add := func(to *chart.Group, pick func(paired.Sample) float64) {
			to.Bars = append(to.Bars, chart.Bar{
				Name: v.Name, Value: paired.Of(paired.Field(got[v.Name], pick)).Value, Ours: strings.HasPrefix(v.Name, "Headgate"),
			})
		}
		add(&speed, func(p paired.Sample) float64 { return p.PerSecond / 1000 })
		add(&cost, func(p paired.Sample) float64 {
			if clientToo {
				return p.ServerCPU + p.ClientCPU
			}
			return p.ServerCPU
		})
	}
	s.speed.Groups, s.cost.Groups = append(s.speed.Groups, speed), append(s.cost.Groups, cost)
}

// drawCharts writes them where documents are.
func (s *suite) drawCharts() error {
	if s.docs == "" {
		return nil
	}
	dir := filepath.Join(s.docs, "performance")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for name, bars := range map[string]*chart.Bars{"decisions.svg": &s.speed, "cpu.svg": &s.cost} {
		if err := os.WriteFile(filepath.Join(dir, name), bars.SVG(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

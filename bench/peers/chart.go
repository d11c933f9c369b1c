package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/bench/internal/chart"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// chart adds variants to the charts. clientToo adds the client's CPU, for variants in which the client is the limiter.
func (b *bench) chart(title string, got paired.Samples, variants []paired.Variant, clientToo bool) {
	speed, cost := chart.Group{Title: title}, chart.Group{Title: title}
	for _, v := range variants {
		add := func(to *chart.Group, pick func(paired.Sample) float64) {
			to.Bars = append(to.Bars, chart.Bar{
				Name: v.Name, Value: got.Median(v.Name, pick).Value, Ours: strings.HasPrefix(v.Name, "Headgate"),
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
	b.speed.Groups, b.cost.Groups = append(b.speed.Groups, speed), append(b.cost.Groups, cost)
}

// drawCharts writes the charts to the documentation's directory.
func (b *bench) drawCharts(docs string) {
	dir := filepath.Join(docs, "performance")
	testenv.NoError(b, os.MkdirAll(dir, 0o750))
	testenv.WriteFiles(b, dir, map[string]string{"decisions.svg": string(b.speed.SVG()), "cpu.svg": string(b.cost.SVG())})
}

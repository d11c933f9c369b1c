package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/bench/internal/paired"
)

const cutEvery = 300 * time.Millisecond

// newProxy passes connections on until it is told otherwise.
func newProxy(scope *paired.Scope, upstream string) (*toxiproxy.Proxy, error) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // some of its parts have a logger of their own
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", upstream)
	if err := proxy.Start(); err != nil {
		return nil, err
	}
	scope.Cleanup(proxy.Stop)
	return proxy, nil
}

// delay holds every answer up for a time.
func delay(w *world) error {
	w.mark("200 ms latency")
	const slow = `{"name":"slow","type":"latency","attributes":{"latency":200}}`
	if _, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(slow)); err != nil {
		return err
	}
	w.hold()
	w.mark("latency gone")
	return w.proxy.Toxics.RemoveToxic(context.Background(), "slow")
}

const (
	// chokedRate is how many calls a second go through when Redis is slow; each has chokedCall bytes.
	chokedRate = 500
	chokedCall = 190
	// busyShare is how much more than the limit may be admitted while some requests are decided by Redis and others by share,
	// of which Redis hears later.
	busyShare = 1
)

// choke lets through what a Redis would answer that is twenty times too slow for the load.
func choke(w *world) error {
	w.mark("a 20th of the bandwidth")
	slow := fmt.Sprintf(`{"name":"slow","type":"bandwidth","stream":"upstream","attributes":{"rate":%d}}`, chokedRate*chokedCall/1000)
	if _, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(slow)); err != nil {
		return err
	}
	w.hold()
	w.mark("all of it")
	return w.proxy.Toxics.RemoveToxic(context.Background(), "slow")
}

// reset cuts all connections again and again. Between two cuts they work.
func reset(w *world) error {
	w.mark("resets")
	defer w.mark("no more resets")
	return w.every(cutEvery, faultLength, w.cut)
}

// cut resets every connection on which something is being answered.
func (w *world) cut() error {
	const resets = `{"name":"cut","type":"reset_peer"}`
	if _, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(resets)); err != nil {
		return err
	}
	w.sleep(20 * time.Millisecond)
	return w.proxy.Toxics.RemoveToxic(context.Background(), "cut")
}

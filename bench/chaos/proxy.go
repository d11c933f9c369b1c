package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/testenv"
)

const cutEvery = 300 * time.Millisecond

// behindProxy is one server that nodes reach through a proxy.
func behindProxy(w *world) {
	standalone(aof...)(w)
	zerolog.SetGlobalLevel(zerolog.Disabled) // some of its parts have a logger of their own
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w.proxy = toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", w.redis.Addr())
	testenv.NoError(w, w.proxy.Start())
	w.Cleanup(w.proxy.Stop)
	w.address = "redis://" + w.proxy.Listen
}

// toxic lets the proxy do something to what passes through it, for a time.
func (w *world) toxic(how string, length time.Duration) {
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"toxic",` + how + `}`))
	testenv.NoError(w, err)
	w.Sleep(length)
	testenv.NoError(w, w.proxy.Toxics.RemoveToxic(context.Background(), "toxic"))
}

// delay holds every answer up for a time.
func delay(w *world) {
	w.mark("200 ms latency")
	defer w.mark("latency gone")
	w.toxic(`"type":"latency","attributes":{"latency":200}`, faultLength)
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
func choke(w *world) {
	w.mark("a 20th of the bandwidth")
	defer w.mark("all of it")
	w.toxic(fmt.Sprintf(`"type":"bandwidth","stream":"upstream","attributes":{"rate":%d}`, chokedRate*chokedCall/1000), faultLength)
}

// reset cuts all connections again and again. Between two cuts they work.
func reset(w *world) {
	w.mark("resets")
	defer w.mark("no more resets")
	w.every(cutEvery, faultLength, w.cut)
}

// cut resets every connection on which something is being answered.
func (w *world) cut() { w.toxic(`"type":"reset_peer"`, 20*time.Millisecond) }
